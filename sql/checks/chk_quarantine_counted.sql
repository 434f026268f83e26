-- chk_quarantine_counted: Every row that a curation counts as quarantined is in quarantine, whole.
-- grain: one curation with fewer rows in quarantine than it counted
-- keys:  curation_id
-- units: counts in rows of sources
WITH counted AS (
    SELECT curation_id, sum(n_rows) AS n_counted
    FROM fct_funnel
    WHERE kind = 'quarantined'
    GROUP BY curation_id
),
source AS (
    SELECT curation_id, unnest(CAST(source_files_json AS VARCHAR[])) AS source_file_id
    FROM curation
),
held AS (
    SELECT source.curation_id, count(DISTINCT (quarantine.source_file_id, quarantine.row_locator)) AS n_held
    FROM source
    JOIN quarantine USING (source_file_id)
    GROUP BY source.curation_id
)
SELECT counted.curation_id, counted.n_counted, coalesce(held.n_held, 0) AS n_held
FROM counted
LEFT JOIN held USING (curation_id)
WHERE coalesce(held.n_held, 0) < counted.n_counted
ORDER BY counted.curation_id
