-- build: Compiled build requests of the kernels: compiler arguments, header tier, log, cost.
-- grain: one build request of one attempt
-- keys:  attempt_id, build_key
-- units: seconds wall, cpu_seconds processor
CREATE TABLE IF NOT EXISTS build (
    attempt_id      VARCHAR NOT NULL,
    build_key       VARCHAR NOT NULL,
    kernel_id       VARCHAR,
    status          VARCHAR,
    tier            VARCHAR,
    artefact_sha256 VARCHAR,
    seconds         DOUBLE,
    cpu_seconds     DOUBLE,
    cached          BOOLEAN,
    argv_json       VARCHAR,
    log             VARCHAR
)
