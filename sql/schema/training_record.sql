-- training_record: (PyTorch module, kernel) pairs as read from a source or made by augmentation; never
--   changed afterwards.
-- grain: one record
-- keys:  record_id
-- units: claimed_speedup = baseline time / candidate time, as the source claims it
CREATE TABLE IF NOT EXISTS training_record (
    record_id        VARCHAR NOT NULL,
    source_file_id   VARCHAR,
    row_locator      VARCHAR,
    uuid             VARCHAR,
    problem_name     VARCHAR,
    pytorch_code     VARCHAR,
    kernel_code      VARCHAR,
    reasoning        VARCHAR,
    claimed_speedup  DOUBLE,
    language         VARCHAR,
    origin           VARCHAR,
    structure        VARCHAR,
    parent_record_id VARCHAR,
    problem_id       VARCHAR,
    kernel_id        VARCHAR,
    ingested_at      TIMESTAMPTZ
)
