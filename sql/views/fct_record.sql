-- fct_record: Each training record with its final fate in each curation: dropped at the first rule that says drop, else
--   kept. Records that no rule has spoken on have no curation_id.
-- grain: one record of one curation
-- keys:  record_id, curation_id
-- units: claimed_speedup = baseline time / candidate time, as claimed by the source
WITH ranked AS (
    SELECT
        *,
        row_number() OVER (
            PARTITION BY curation_id, record_id
            ORDER BY
                verdict <> 'drop',
                list_position(['ingest', 'contract', 'dedup', 'overlap', 'honesty', 'speedup', 'augment', 'cuke'], step),
                rule
        ) AS place,
        count(*) FILTER (verdict = 'flag') OVER (PARTITION BY curation_id, record_id) AS n_flags
    FROM decision
),
final AS (
    SELECT * FROM ranked WHERE place = 1
),
member AS (
    SELECT version.curation_id, member.record_id, min(member.split) AS split, min(member.evidence) AS evidence
    FROM dataset_member AS member
    JOIN dataset_version AS version USING (dataset_version_id)
    GROUP BY version.curation_id, member.record_id
)
SELECT
    record.record_id,
    final.curation_id,
    record.problem_name,
    record.origin,
    nullif(record.structure, '') AS structure,
    record.language,
    record.claimed_speedup,
    CASE WHEN final.verdict = 'drop' THEN 'drop' WHEN final.verdict IS NOT NULL THEN 'keep' END AS decision,
    CASE WHEN final.verdict = 'drop' THEN final.step END AS dropped_at,
    CASE WHEN final.verdict = 'drop' THEN final.rule END AS dropped_by,
    CASE WHEN final.verdict = 'drop' THEN final.reason END AS reason,
    coalesce(final.n_flags, 0) AS n_flags,
    member.split,
    member.evidence,
    record.source_file_id,
    record.row_locator,
    record.problem_id,
    record.kernel_id
FROM training_record AS record
LEFT JOIN final USING (record_id)
LEFT JOIN member ON member.curation_id = final.curation_id AND member.record_id = record.record_id
ORDER BY final.curation_id, record.record_id
