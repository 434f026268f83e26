-- dim_model_version: Registered models with their data set and the ends of their training curve.
-- grain: one model version
-- keys:  model_version_id
-- units: losses in nats per token; training_s in seconds; times UTC
WITH curve AS (
    SELECT
        model_version_id,
        count(*) AS n_steps_logged,
        max(step) AS last_step,
        arg_min(loss, step) AS first_loss,
        arg_max(loss, step) AS last_loss,
        sum(seconds) AS training_s
    FROM training_step
    GROUP BY model_version_id
)
SELECT
    model.model_version_id,
    model.name,
    model.version,
    model.recipe_id,
    model.dataset_version_id,
    dataset.name AS dataset_name,
    model.mlflow_run_id,
    coalesce(curve.n_steps_logged, 0) AS n_steps_logged,
    curve.last_step,
    curve.first_loss,
    curve.last_loss,
    curve.training_s,
    model.metrics_json,
    model.created_at
FROM model_version AS model
LEFT JOIN curve USING (model_version_id)
LEFT JOIN dataset_version AS dataset USING (dataset_version_id)
ORDER BY model.created_at, model.model_version_id
