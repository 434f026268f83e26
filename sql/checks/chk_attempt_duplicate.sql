-- chk_attempt_duplicate: Each attempt is in the lake once, and so is each of its timing samples.
-- grain: one attempt id with more rows than it may have
-- keys:  attempt_id, table_name
-- units: n_rows in rows
SELECT 'attempt' AS table_name, attempt_id, NULL AS sample, count(*) AS n_rows
FROM attempt
GROUP BY attempt_id
HAVING count(*) > 1
UNION ALL
SELECT 'timing_sample' AS table_name, attempt_id, sample, count(*) AS n_rows
FROM timing_sample
GROUP BY attempt_id, sample
HAVING count(*) > 1
ORDER BY table_name, attempt_id, sample
