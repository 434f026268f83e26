-- rpt_speedup: The speedup table: every timed CORRECT attempt with its interval, whose code did the work, and whether
--   the difference from 1x is significant (the 95 % interval does not contain 1).
-- grain: one attempt
-- keys:  attempt_id
-- units: speedup = baseline time / candidate time; _us microseconds per call
SELECT
    attempt.problem_name,
    attempt.suite,
    attempt.level,
    attempt.number,
    attempt.attempt_id,
    attempt.kernel_id,
    attempt.language,
    attempt.device,
    attempt.environment_id,
    attempt.verdict,
    attempt.honesty,
    attempt.is_deceptive,
    speedup.speedup,
    speedup.speedup_low,
    speedup.speedup_high,
    coalesce(speedup.speedup_low > 1 OR speedup.speedup_high < 1, false) AS is_significant,
    coalesce(speedup.speedup_low >= 2, false) AS is_2x,
    speedup.baseline_us,
    speedup.candidate_us,
    speedup.basis,
    speedup.n_blocks,
    speedup.n_samples,
    speedup.end_to_end_speedup
FROM fct_speedup AS speedup
JOIN fct_attempt AS attempt USING (attempt_id)
ORDER BY speedup.speedup DESC, attempt.attempt_id
