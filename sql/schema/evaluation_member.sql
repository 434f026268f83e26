-- evaluation_member: The denominator of an evaluation: each problem and sample, also where no kernel came
--   out.
-- grain: one sample of one problem of one evaluation
-- keys:  evaluation_id, suite, level, number, sample_id
-- units: none
CREATE TABLE IF NOT EXISTS evaluation_member (
    evaluation_id    VARCHAR NOT NULL,
    suite            VARCHAR NOT NULL,
    level            BIGINT NOT NULL,
    number           BIGINT NOT NULL,
    sample_id        BIGINT NOT NULL,
    problem_id       VARCHAR,
    kernel_id        VARCHAR,
    attempt_id       VARCHAR,
    no_kernel_reason VARCHAR
)
