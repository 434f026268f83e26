-- chk_attempt_without_environment: Every attempt's environment, problem and kernel are in the lake.
-- grain: one attempt that names something unknown
-- keys:  attempt_id
-- units: none
SELECT
    attempt.attempt_id,
    attempt.environment_id,
    environment.environment_id IS NULL AS no_environment,
    problem.problem_id IS NULL AS no_problem,
    kernel.kernel_id IS NULL AS no_kernel
FROM attempt
LEFT JOIN environment USING (environment_id)
LEFT JOIN problem USING (problem_id)
LEFT JOIN kernel USING (kernel_id)
WHERE environment.environment_id IS NULL OR problem.problem_id IS NULL OR kernel.kernel_id IS NULL
ORDER BY attempt.attempt_id
