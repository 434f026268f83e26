-- fct_block: Median time per call of each side in each timing block, and in each row of calls (end_to_end). Warm-ups do
--   not count.
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
WHERE NOT warmup AND call_us > 0
GROUP BY attempt_id, end_to_end, block, side
