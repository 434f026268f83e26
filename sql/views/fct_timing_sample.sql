-- fct_timing_sample: Every timed call, raw, with the per-call time on the clock that counts for it: the device's in a
--   block on cuda, the host's otherwise. `is_scored`: the attempt's speedup rests on this sample.
-- grain: one timing sample
-- keys:  attempt_id, sample
-- units: device_us, host_us, judge_us microseconds per sample; call_us microseconds per call (sample / batch)
SELECT
    sample.attempt_id,
    sample.sample,
    attempt.device,
    sample.side,
    attempt.basis,
    sample.block,
    sample.order_in_block,
    sample.repetition,
    sample.warmup,
    sample.end_to_end,
    NOT sample.warmup AND sample.end_to_end = (attempt.basis IN ('end_to_end', 'judge')) AS is_scored,
    sample.batch,
    sample.device_us,
    sample.host_us,
    sample.judge_us,
    CASE WHEN attempt.device = 'cuda' AND NOT sample.end_to_end THEN sample.device_us ELSE sample.host_us END
        / sample.batch AS call_us,
    sample.checked,
    sample.input_seed,
    sample.flags
FROM timing_sample AS sample
JOIN attempt USING (attempt_id)
