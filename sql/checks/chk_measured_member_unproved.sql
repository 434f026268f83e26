-- chk_measured_member_unproved: A member of a data set version that rests on measurement has a CORRECT attempt of its
--   kernel on its problem, and not only deceptive ones.
-- grain: one member without proof
-- keys:  dataset_version_id, record_id
-- units: none
SELECT member.dataset_version_id, member.record_id, record.problem_name
FROM dataset_member AS member
JOIN training_record AS record USING (record_id)
LEFT JOIN attempt AS proof
    ON proof.kernel_id = record.kernel_id AND proof.problem_id = record.problem_id
    AND proof.verdict = 'CORRECT' AND proof.honesty NOT IN ('library', 'none') AND proof.speedup IS NOT NULL
WHERE member.evidence = 'measured'
GROUP BY member.dataset_version_id, member.record_id, record.problem_name
HAVING count(proof.attempt_id) = 0
ORDER BY member.dataset_version_id, member.record_id
