-- fct_problem_trait: Every measured trait of every problem, and whether its baseline is bound by launch overhead
--   (median baseline of its CORRECT attempts under 50 us), which the timings say.
-- grain: one trait of one problem in one environment under one protocol
-- keys:  problem_id, environment_id, protocol_version, trait
-- units: evidence as in problem_trait; for overhead_bound the baseline in microseconds per call, tolerance 50 of them
SELECT problem_id, environment_id, protocol_version, trait, holds, evidence, tolerance, device
FROM problem_trait
UNION ALL
SELECT
    attempt.problem_id,
    attempt.environment_id,
    attempt.protocol_version,
    'overhead_bound' AS trait,
    median(speedup.baseline_us) < 50 AS holds,
    median(speedup.baseline_us) AS evidence,
    50.0 AS tolerance,
    any_value(attempt.device) AS device
FROM fct_speedup AS speedup
JOIN attempt USING (attempt_id)
GROUP BY attempt.problem_id, attempt.environment_id, attempt.protocol_version
