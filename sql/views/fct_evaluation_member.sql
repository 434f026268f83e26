-- fct_evaluation_member: The denominator of each evaluation with the outcome of every sample: verdict, honesty and the
--   speedup recomputed from raw samples. Where no kernel came out, the sample counts as neither compiled nor correct.
-- grain: one sample of one problem of one evaluation
-- keys:  evaluation_id, suite, level, number, sample_id
-- units: speedup = baseline time / candidate time
SELECT
    member.evaluation_id,
    evaluation.name AS evaluation_name,
    member.suite,
    member.level,
    member.number,
    place.name AS problem_name,
    member.sample_id,
    row_number() OVER (
        PARTITION BY member.evaluation_id, member.suite, member.level, member.number ORDER BY member.sample_id
    ) = 1 AS is_first_sample,
    member.problem_id,
    member.kernel_id,
    member.attempt_id,
    member.no_kernel_reason,
    coalesce(attempt.verdict, 'NO_KERNEL') AS verdict,
    coalesce(attempt.honesty, 'unknown') AS honesty,
    coalesce(attempt.is_infra, false) AS is_infra,
    coalesce(attempt.is_compiled, false) AS is_compiled,
    coalesce(attempt.is_correct, false) AS is_correct,
    coalesce(attempt.is_correct AND attempt.is_deceptive, false) AS is_deceptive,
    coalesce(attempt.is_correct AND NOT attempt.is_deceptive, false) AS is_honest_correct,
    attempt.kernelbench_correct,
    speedup.speedup,
    speedup.speedup_low,
    speedup.speedup_high
FROM evaluation_member AS member
LEFT JOIN evaluation USING (evaluation_id)
LEFT JOIN suite_problem AS place
    ON place.suite = member.suite AND place.level = member.level AND place.number = member.number
    AND place.problem_id = member.problem_id
LEFT JOIN fct_attempt AS attempt ON attempt.attempt_id = member.attempt_id
LEFT JOIN fct_speedup AS speedup ON speedup.attempt_id = member.attempt_id
ORDER BY member.evaluation_id, member.suite, member.level, member.number, member.sample_id
