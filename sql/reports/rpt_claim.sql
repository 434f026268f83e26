-- rpt_claim: Claimed verdicts beside ours. `outcome` sorts them: confirmed, refuted (claimed correct, and wrong, broken or
--   not the kernel's own work here), vindicated (claimed wrong, right here), agreed_wrong, or undecided (the task itself
--   fails, the clocks disagree, or we failed).
-- grain: one sample with a claim
-- keys:  evaluation_id, suite, level, number, sample_id
-- units: claimed_ms and our_ms milliseconds per call, on different hardware; speedup = baseline time / candidate time
SELECT
    claim.evaluation_id,
    claim.suite,
    claim.level,
    claim.number,
    claim.sample_id,
    member.problem_name,
    claim.model,
    claim.claimed_compiled,
    claim.claimed_correct,
    claim.claimed_runtime_ms AS claimed_ms,
    claim.claimed_hardware,
    member.verdict,
    member.honesty,
    member.is_compiled,
    member.kernelbench_correct,
    member.is_honest_correct,
    attempt.candidate_us / 1000 AS our_ms,
    member.speedup,
    member.speedup_low,
    member.speedup_high,
    trait.is_discriminating,
    trait.zero_passable,
    trait.constant_passable,
    trait.replay_passable,
    trait.weight_independent,
    trait.tf32_indistinguishable,
    CASE
        WHEN member.is_infra OR member.verdict IN ('TASK_ERROR', 'TIMING_DISAGREE') THEN 'undecided'
        WHEN claim.claimed_correct AND member.is_honest_correct THEN 'confirmed'
        WHEN claim.claimed_correct THEN 'refuted'
        WHEN member.is_honest_correct THEN 'vindicated'
        ELSE 'agreed_wrong'
    END AS outcome,
    CAST(json_extract_string(attempt.evidence_json, '$.reason') AS VARCHAR) AS reason,
    member.attempt_id
FROM kernel_claim AS claim
JOIN fct_evaluation_member AS member USING (evaluation_id, suite, level, number, sample_id)
LEFT JOIN attempt ON attempt.attempt_id = member.attempt_id
LEFT JOIN dim_problem_trait AS trait ON trait.problem_id = member.problem_id
ORDER BY claim.level, claim.number, claim.sample_id
