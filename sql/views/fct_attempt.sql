-- fct_attempt: Every attempt with the names of what it is about, and its verdict's meaning spelled out.
-- grain: one attempt
-- keys:  attempt_id
-- units: speedup = baseline_us / candidate_us as the arena computed it; _us microseconds per call; _s seconds; times UTC
WITH unbuilt AS (
    SELECT DISTINCT attempt_id FROM build WHERE status = 'timeout'
)
SELECT
    attempt.attempt_id,
    attempt.problem_id,
    problem.problem_name,
    problem.suite,
    problem.level,
    problem.number,
    attempt.kernel_id,
    kernel.language,
    kernel.origin,
    attempt.environment_id,
    attempt.device,
    attempt.plan,
    attempt.ordinal,
    attempt.protocol_version,
    attempt.verdict,
    attempt.verdict = 'CORRECT' AS is_correct,
    attempt.verdict LIKE 'INFRA\_%' ESCAPE '\' AS is_infra,
    attempt.verdict NOT IN ('COMPILE_ERROR', 'TASK_ERROR', 'INFRA_ERROR', 'INFRA_TIMEOUT')
        AND NOT (attempt.verdict = 'TIMEOUT' AND unbuilt.attempt_id IS NOT NULL) AS is_compiled,
    attempt.honesty,
    attempt.honesty IN ('library', 'none') AS is_deceptive,
    attempt.kernelbench_correct,
    attempt.basis,
    attempt.speedup,
    attempt.speedup_low,
    attempt.speedup_high,
    attempt.baseline_us,
    attempt.candidate_us,
    CAST(attempt.stages_json ->> '$.build' AS DOUBLE) AS build_s,
    CAST(attempt.stages_json ->> '$.check' AS DOUBLE) AS check_s,
    CAST(attempt.stages_json ->> '$.time' AS DOUBLE) AS time_s,
    date_diff('millisecond', attempt.started_at, attempt.ended_at) / 1000.0 AS elapsed_s,
    attempt.started_at,
    attempt.ended_at,
    attempt.file_sha256
FROM attempt
LEFT JOIN unbuilt USING (attempt_id)
LEFT JOIN dim_problem AS problem USING (problem_id)
LEFT JOIN dim_kernel AS kernel USING (kernel_id)
ORDER BY attempt.started_at, attempt.attempt_id
