-- chk_split_leak: Every member is in training or validation, and no module or kernel of a version is in both.
-- grain: one member of no split, or one text on both sides (record_id is the first of its members)
-- keys:  dataset_version_id, record_id, fault
-- units: none
WITH member AS (
    SELECT member.dataset_version_id, member.record_id, member.split, record.problem_id, record.kernel_id
    FROM dataset_member AS member
    JOIN training_record AS record USING (record_id)
)
SELECT dataset_version_id, record_id, 'split ' || coalesce(split, 'null') AS fault
FROM member
WHERE split IS NULL OR split NOT IN ('train', 'validation')
UNION ALL
SELECT dataset_version_id, min(record_id) AS record_id, 'module ' || problem_id || ' is in both' AS fault
FROM member
GROUP BY dataset_version_id, problem_id
HAVING count(DISTINCT split) > 1
UNION ALL
SELECT dataset_version_id, min(record_id) AS record_id, 'kernel ' || kernel_id || ' is in both' AS fault
FROM member
GROUP BY dataset_version_id, kernel_id
HAVING count(DISTINCT split) > 1
ORDER BY dataset_version_id, record_id, fault
