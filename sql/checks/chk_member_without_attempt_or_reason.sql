-- chk_member_without_attempt_or_reason: Every sample of an evaluation has an attempt that is in the lake, or says why no
--   kernel came out. Nothing drops out of a denominator.
-- grain: one sample of an evaluation without either
-- keys:  evaluation_id, suite, level, number, sample_id
-- units: none
SELECT member.evaluation_id, member.suite, member.level, member.number, member.sample_id, member.attempt_id
FROM evaluation_member AS member
LEFT JOIN attempt USING (attempt_id)
WHERE (member.attempt_id IS NULL AND coalesce(member.no_kernel_reason, '') = '')
    OR (member.attempt_id IS NOT NULL AND attempt.attempt_id IS NULL)
ORDER BY member.evaluation_id, member.suite, member.level, member.number, member.sample_id
