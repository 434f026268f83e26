-- chk_speedup_only_when_correct: Only a CORRECT attempt has a speedup.
-- grain: one attempt with a speedup that it may not have
-- keys:  attempt_id
-- units: speedup = baseline time / candidate time
SELECT attempt_id, verdict, speedup, speedup_low, speedup_high
FROM attempt
WHERE verdict <> 'CORRECT' AND (speedup IS NOT NULL OR speedup_low IS NOT NULL OR speedup_high IS NOT NULL)
ORDER BY attempt_id
