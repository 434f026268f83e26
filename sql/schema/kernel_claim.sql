-- kernel_claim: What somebody else's run of KernelBench said about a kernel that was evaluated here.
-- grain: one sample of one problem of one evaluation
-- keys:  evaluation_id, suite, level, number, sample_id
-- units: claimed_runtime_ms mean milliseconds per call, as claimed
CREATE TABLE IF NOT EXISTS kernel_claim (
    evaluation_id      VARCHAR NOT NULL,
    suite              VARCHAR NOT NULL,
    level              BIGINT NOT NULL,
    number             BIGINT NOT NULL,
    sample_id          BIGINT NOT NULL,
    claim_source       VARCHAR,
    model              VARCHAR,
    claimed_compiled   BOOLEAN,
    claimed_correct    BOOLEAN,
    claimed_runtime_ms DOUBLE,
    claimed_hardware   VARCHAR
)
