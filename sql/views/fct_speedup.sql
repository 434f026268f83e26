-- fct_speedup: The speedup that counts of every CORRECT attempt, recomputed from its raw samples. Its basis is the device's
--   span (cuda) or the host's clock (cpu) around single calls, or whole rows of calls where the judge's clock does not bear
--   the claim about single calls out. The end-to-end figures stand beside it in any case.
-- grain: one CORRECT attempt with at least one block timed on both sides
-- keys:  attempt_id
-- units: speedup = baseline time / candidate time; _us microseconds per call
SELECT
    scored.attempt_id,
    attempt.basis,
    scored.n_blocks,
    scored.n_samples,
    scored.speedup,
    scored.speedup_low,
    scored.speedup_high,
    scored.baseline_us,
    scored.candidate_us,
    whole.speedup AS end_to_end_speedup,
    whole.speedup_low AS end_to_end_low,
    whole.speedup_high AS end_to_end_high,
    whole.baseline_us AS end_to_end_baseline_us,
    whole.candidate_us AS end_to_end_candidate_us
FROM fct_ratio AS scored
JOIN attempt USING (attempt_id)
LEFT JOIN fct_ratio AS whole ON whole.attempt_id = scored.attempt_id AND whole.end_to_end
WHERE scored.is_scored
