-- model_version: Registered models: recipe, data set, digests of the weights, final metrics.
-- grain: one model version
-- keys:  model_version_id
-- units: times UTC
CREATE TABLE IF NOT EXISTS model_version (
    model_version_id   VARCHAR NOT NULL,
    name               VARCHAR,
    version            VARCHAR,
    recipe_id          VARCHAR,
    dataset_version_id VARCHAR,
    mlflow_run_id      VARCHAR,
    digests_json       VARCHAR,
    metrics_json       VARCHAR,
    created_at         TIMESTAMPTZ
)
