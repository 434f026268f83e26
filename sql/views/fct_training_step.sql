-- fct_training_step: The training curve of each model version.
-- grain: one logged step of one model version
-- keys:  model_version_id, step
-- units: loss in nats per token; tokens_per_s in tokens per second; elapsed_s in seconds since the first logged step
SELECT
    step.model_version_id,
    model.name AS model_name,
    model.version AS model_version,
    step.step,
    step.loss,
    step.learning_rate,
    step.gradient_norm,
    step.tokens,
    sum(step.tokens) OVER curve AS tokens_total,
    step.seconds,
    sum(step.seconds) OVER curve AS elapsed_s,
    step.tokens / nullif(step.seconds, 0) AS tokens_per_s
FROM training_step AS step
LEFT JOIN model_version AS model USING (model_version_id)
WINDOW curve AS (PARTITION BY step.model_version_id ORDER BY step.step)
ORDER BY step.model_version_id, step.step
