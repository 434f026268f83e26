-- fct_block: Median time per call of each side in each timing block, and the time per call in each row of calls
--   (end_to_end). Warm-ups do not count. Where the judge's clock does not bear the worker's out (basis = 'judge'), a row
--   of the candidate counts with no less than trusted clocks say: the baseline's row, plus what the judge's clock saw more
--   on the candidate's side.
-- grain: one side of one block, or of one row of calls, of one attempt
-- keys:  attempt_id, end_to_end, block, side
-- units: call_us microseconds per call: device span on cuda, host clock on cpu and in rows
SELECT
    attempt_id,
    end_to_end,
    block,
    side,
    any_value(is_scored) AS is_scored,
    median(call_us) AS call_us,
    count(*) AS n_samples
FROM fct_timing_sample
WHERE NOT warmup AND NOT end_to_end AND call_us > 0
GROUP BY attempt_id, end_to_end, block, side
UNION ALL
SELECT
    ours.attempt_id,
    true AS end_to_end,
    ours.block,
    ours.side,
    ours.is_scored,
    CASE
        WHEN ours.side = 'eager' OR ours.basis <> 'judge' THEN ours.call_us
        ELSE greatest(ours.host_us, eager.host_us + ours.judge_us - eager.judge_us) / ours.batch
    END AS call_us,
    1 AS n_samples
FROM fct_timing_sample AS ours
JOIN fct_timing_sample AS eager
    ON eager.attempt_id = ours.attempt_id AND eager.block = ours.block AND eager.side = 'eager'
WHERE ours.end_to_end AND eager.end_to_end AND NOT ours.warmup AND NOT eager.warmup
