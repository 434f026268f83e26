-- chk_funnel_matches_version: The closing step of a curation takes in what the speedup filter and the augmentation kept,
--   and its version has the members that the step kept.
-- grain: one curation whose closing step does not add up
-- keys:  curation_id
-- units: counts in records
WITH step AS (
    SELECT
        curation_id,
        sum(n_rows) FILTER (kind = 'kept' AND step IN ('speedup', 'augment')) AS n_passed,
        sum(n_rows) FILTER (kind = 'in' AND step = 'cuke') AS n_in,
        sum(n_rows) FILTER (kind = 'kept' AND step = 'cuke') AS n_kept
    FROM fct_funnel
    GROUP BY curation_id
)
SELECT curation_id, version.dataset_version_id, step.n_passed, step.n_in, step.n_kept, version.n_records
FROM dataset_version AS version
FULL JOIN step USING (curation_id)
WHERE (version.dataset_version_id IS NOT NULL AND step.n_kept IS DISTINCT FROM version.n_records)
    OR (step.n_in IS NOT NULL AND step.n_in IS DISTINCT FROM coalesce(step.n_passed, 0))
ORDER BY curation_id, version.dataset_version_id
