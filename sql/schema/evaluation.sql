-- evaluation: One evaluation of a model or of a folder of kernels on a suite.
-- grain: one evaluation
-- keys:  evaluation_id
-- units: times UTC
CREATE TABLE IF NOT EXISTS evaluation (
    evaluation_id    VARCHAR NOT NULL,
    run_id           VARCHAR,
    name             VARCHAR,
    suite            VARCHAR,
    model_version_id VARCHAR,
    kernel_source    VARCHAR,
    config_json      VARCHAR,
    created_at       TIMESTAMPTZ
)
