-- chk_file_recorded: Every data file recorded in the lake has one hash and a size.
-- grain: one path with another number of hashes than one
-- keys:  path
-- units: size_bytes in bytes
SELECT path, count(*) AS n_rows, min(size_bytes) AS size_bytes
FROM lake_file
GROUP BY path
HAVING count(*) <> 1 OR count(sha256) <> 1 OR NOT (min(size_bytes) > 0)
ORDER BY path
