-- rpt_augmentation: Structures that augmentation produced: how many records, how many stayed, how fast they are.
-- grain: one structure of one curation
-- keys:  curation_id, structure
-- units: counts in records; speedup = baseline time / candidate time
WITH timed AS (
    SELECT
        attempt.kernel_id,
        attempt.problem_id,
        median(speedup.speedup) FILTER (attempt.honesty NOT IN ('library', 'none')) AS speedup
    FROM fct_speedup AS speedup
    JOIN attempt USING (attempt_id)
    GROUP BY attempt.kernel_id, attempt.problem_id
)
SELECT
    record.curation_id,
    record.structure,
    count(*) AS n_records,
    count(*) FILTER (record.decision = 'keep') AS n_kept,
    count(record.split) AS n_in_dataset,
    min(timed.speedup) AS min_speedup,
    median(timed.speedup) AS median_speedup,
    max(timed.speedup) AS max_speedup
FROM fct_record AS record
LEFT JOIN timed ON timed.kernel_id = record.kernel_id AND timed.problem_id = record.problem_id
WHERE record.origin = 'augmentation'
GROUP BY record.curation_id, record.structure
ORDER BY record.curation_id, record.structure
