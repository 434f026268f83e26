-- attempt: One evaluation of one kernel on one problem in one environment; exactly one verdict.
-- grain: one attempt
-- keys:  attempt_id
-- units: speedup = baseline_us / candidate_us; _us microseconds per call; times UTC
CREATE TABLE IF NOT EXISTS attempt (
    attempt_id          VARCHAR NOT NULL,
    kernel_id           VARCHAR,
    problem_id          VARCHAR,
    environment_id      VARCHAR,
    protocol_version    BIGINT,
    plan                VARCHAR,
    device              VARCHAR,
    ordinal             BIGINT,
    seed_commitment     VARCHAR,
    seed                VARCHAR,
    verdict             VARCHAR,
    honesty             VARCHAR,
    started_at          TIMESTAMPTZ,
    ended_at            TIMESTAMPTZ,
    stages_json         VARCHAR,
    evidence_json       VARCHAR,
    labels_json         VARCHAR,
    basis               VARCHAR,
    speedup             DOUBLE,
    speedup_low         DOUBLE,
    speedup_high        DOUBLE,
    baseline_us         DOUBLE,
    candidate_us        DOUBLE,
    kernelbench_correct BOOLEAN,
    file_sha256         VARCHAR
)
