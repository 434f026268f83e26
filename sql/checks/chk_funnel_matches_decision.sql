-- chk_funnel_matches_decision: The rows that a step of a curation counts as duplicates or dropped are those that it has a
--   decision for: one record for each.
-- grain: one step of one curation whose counters and decisions differ
-- keys:  curation_id, step
-- units: counts in records
WITH counted AS (
    SELECT curation_id, step, sum(n_rows) FILTER (kind IN ('duplicate', 'dropped')) AS n_counted
    FROM fct_funnel
    WHERE step IN ('dedup', 'overlap', 'honesty', 'speedup', 'augment', 'cuke')
    GROUP BY curation_id, step
),
decided AS (
    SELECT curation_id, step, count(DISTINCT record_id) FILTER (verdict = 'drop') AS n_decided
    FROM decision
    GROUP BY curation_id, step
)
SELECT curation_id, step, coalesce(n_counted, 0) AS n_counted, coalesce(n_decided, 0) AS n_decided
FROM counted
FULL JOIN decided USING (curation_id, step)
WHERE coalesce(n_counted, 0) <> coalesce(n_decided, 0)
ORDER BY curation_id, step
