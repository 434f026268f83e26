-- counter: Rows in, kept and out (by reason) at each step of each run; in = kept + sum of out:*.
-- grain: one counter of one step of one scope (curation_id, evaluation_id or reading of a file) in one run
-- keys:  run_id, scope, step, name
-- units: value in rows
CREATE TABLE IF NOT EXISTS counter (
    run_id VARCHAR NOT NULL,
    scope  VARCHAR NOT NULL,
    step   VARCHAR NOT NULL,
    name   VARCHAR NOT NULL,
    value  BIGINT
)
