-- fct_block: Median time per call of each side in each timing block. Warm-ups and excluded samples do not count.
-- grain: one side of one block of one attempt
-- keys:  attempt_id, block, side
-- units: call_us microseconds per call: device span on cuda, host clock on cpu
SELECT
    attempt_id,
    block,
    side,
    median(call_us) AS call_us,
    count(*) AS n_samples
FROM fct_timing_sample
WHERE NOT warmup AND NOT coalesce(is_excluded, false) AND call_us > 0
GROUP BY attempt_id, block, side
