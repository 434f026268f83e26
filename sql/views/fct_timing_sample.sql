-- fct_timing_sample: Every timed call, raw, with the per-call time on the clock that counts for its device.
-- grain: one timing sample
-- keys:  attempt_id, sample
-- units: device_us and host_us microseconds per sample; call_us microseconds per call (sample / batch)
SELECT
    sample.attempt_id,
    sample.sample,
    attempt.device,
    sample.side,
    sample.block,
    sample.order_in_block,
    sample.repetition,
    sample.warmup,
    sample.flags LIKE '%excluded:%' AS is_excluded,
    sample.batch,
    sample.device_us,
    sample.host_us,
    CASE WHEN attempt.device = 'cuda' THEN sample.device_us ELSE sample.host_us END / sample.batch AS call_us,
    sample.checked,
    sample.input_seed,
    sample.flags
FROM timing_sample AS sample
JOIN attempt USING (attempt_id)
