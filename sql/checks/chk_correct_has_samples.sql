-- chk_correct_has_samples: A CORRECT attempt that states a speedup has raw samples of both sides that give the same one.
-- grain: one attempt whose stated speedup does not follow from its samples
-- keys:  attempt_id
-- units: speedup = baseline time / candidate time
SELECT attempt.attempt_id, attempt.speedup AS stated, speedup.speedup AS recomputed
FROM attempt
LEFT JOIN fct_speedup AS speedup USING (attempt_id)
WHERE attempt.verdict = 'CORRECT' AND attempt.speedup IS NOT NULL
    AND (speedup.speedup IS NULL OR abs(ln(attempt.speedup) - ln(speedup.speedup)) > 1e-6)
ORDER BY attempt.attempt_id
