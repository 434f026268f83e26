-- chk_dataset_member_without_record: Every member of a data set version is a record in the lake, was not dropped by the
--   curation that made the version, and the version has as many members as it says.
-- grain: one faulty member, or one version with a wrong count (record_id is null)
-- keys:  dataset_version_id, record_id
-- units: counts in records
WITH dropped AS (
    SELECT DISTINCT curation_id, record_id FROM decision WHERE verdict = 'drop'
)
SELECT member.dataset_version_id, member.record_id, 'not in training_record' AS fault
FROM dataset_member AS member
LEFT JOIN training_record AS record USING (record_id)
WHERE record.record_id IS NULL
UNION ALL
SELECT member.dataset_version_id, member.record_id, 'dropped by a rule' AS fault
FROM dataset_member AS member
JOIN dataset_version AS version USING (dataset_version_id)
JOIN dropped ON dropped.curation_id = version.curation_id AND dropped.record_id = member.record_id
UNION ALL
SELECT version.dataset_version_id, NULL AS record_id, 'states ' || version.n_records || ' records' AS fault
FROM dataset_version AS version
LEFT JOIN dataset_member AS member USING (dataset_version_id)
GROUP BY version.dataset_version_id, version.n_records
HAVING count(member.record_id) <> version.n_records
ORDER BY dataset_version_id, record_id
