-- timing_sample: Every timed call, raw, warm-ups included and marked.
-- grain: one timed call (or batch of calls) of one attempt
-- keys:  attempt_id, sample
-- units: device_us, host_us, judge_us: microseconds per sample, that is for all `batch` calls together
CREATE TABLE IF NOT EXISTS timing_sample (
    attempt_id     VARCHAR NOT NULL,
    sample         BIGINT NOT NULL,
    side           VARCHAR,
    block          BIGINT,
    order_in_block BIGINT,
    repetition     BIGINT,
    warmup         BOOLEAN,
    batch          BIGINT,
    device_us      DOUBLE,
    host_us        DOUBLE,
    checked        BOOLEAN,
    input_seed     BIGINT,
    judge_us       DOUBLE,
    end_to_end     BOOLEAN,
    flags          VARCHAR
)
