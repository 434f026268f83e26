-- rpt_augmentation: Structures that augmentation proposed: family, how many dimension sets, what the arena said about them,
--   how many stayed, and how fast they are with the widest bounds of their 95% intervals.
-- grain: one structure of one curation
-- keys:  curation_id, structure
-- units: counts in records, sets in distinct problems; speedup = baseline time / candidate time, library and none left
--   out; _us microseconds per call, medians over the sets; verdicts as text, most frequent first
WITH judged AS (
    SELECT
        attempt.kernel_id,
        attempt.problem_id,
        attempt.verdict,
        CASE WHEN attempt.honesty NOT IN ('library', 'none') THEN speedup.speedup END AS speedup,
        CASE WHEN attempt.honesty NOT IN ('library', 'none') THEN speedup.speedup_low END AS speedup_low,
        CASE WHEN attempt.honesty NOT IN ('library', 'none') THEN speedup.speedup_high END AS speedup_high,
        speedup.baseline_us,
        speedup.candidate_us
    FROM attempt
    LEFT JOIN fct_speedup AS speedup USING (attempt_id)
    WHERE attempt.verdict NOT LIKE 'INFRA\_%' ESCAPE '\'
),
proposed AS (
    SELECT
        *,
        -- An augmented record's place is family/structure/sizes.
        CASE WHEN row_locator LIKE '%/%/%' THEN split_part(row_locator, '/', 1) END AS family
    FROM fct_record
    WHERE origin = 'augmentation'
),
verdicts AS (
    SELECT
        curation_id,
        structure,
        string_agg(verdict || ' ' || times, ', ' ORDER BY times DESC, verdict) AS verdicts
    FROM (
        SELECT record.curation_id, record.structure, judged.verdict, count(DISTINCT record.record_id) AS times
        FROM proposed AS record
        JOIN judged USING (kernel_id, problem_id)
        GROUP BY ALL
    )
    GROUP BY curation_id, structure
)
SELECT
    record.curation_id,
    record.structure,
    min(record.family) AS family,
    count(DISTINCT record.record_id) AS n_records,
    count(DISTINCT record.problem_id) AS n_sets,
    count(DISTINCT record.record_id) FILTER (record.decision = 'keep') AS n_kept,
    count(DISTINCT record.record_id) FILTER (record.split IS NOT NULL) AS n_in_dataset,
    any_value(verdicts.verdicts) AS verdicts,
    median(judged.baseline_us) AS baseline_us,
    median(judged.candidate_us) AS candidate_us,
    min(judged.speedup) AS min_speedup,
    median(judged.speedup) AS median_speedup,
    max(judged.speedup) AS max_speedup,
    min(judged.speedup_low) AS speedup_low,
    max(judged.speedup_high) AS speedup_high
FROM proposed AS record
LEFT JOIN judged ON judged.kernel_id = record.kernel_id AND judged.problem_id = record.problem_id
LEFT JOIN verdicts ON verdicts.curation_id = record.curation_id AND verdicts.structure = record.structure
GROUP BY record.curation_id, record.structure
ORDER BY record.curation_id, record.structure
