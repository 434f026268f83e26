-- chk_sample_impossible: Times are positive, batches hold at least one call, sides are known.
-- grain: one impossible sample
-- keys:  attempt_id, sample
-- units: device_us, host_us, judge_us microseconds per sample
SELECT attempt_id, sample, side, batch, device_us, host_us, judge_us
FROM timing_sample
WHERE NOT (host_us > 0) OR NOT (coalesce(device_us, 1) > 0) OR NOT (batch >= 1) OR side NOT IN ('candidate', 'eager')
ORDER BY attempt_id, sample
