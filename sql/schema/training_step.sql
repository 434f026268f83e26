-- training_step: The training curve: one logged optimizer step.
-- grain: one step of one model version
-- keys:  model_version_id, step
-- units: loss in nats per token; seconds since the previous logged step
CREATE TABLE IF NOT EXISTS training_step (
    model_version_id VARCHAR NOT NULL,
    step             BIGINT NOT NULL,
    loss             DOUBLE,
    learning_rate    DOUBLE,
    gradient_norm    DOUBLE,
    tokens           BIGINT,
    seconds          DOUBLE
)
