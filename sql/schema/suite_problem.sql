-- suite_problem: Where a problem stands in a suite: level, number, name, and the sizes that were replaced
--   on request.
-- grain: one problem of one suite
-- keys:  suite, level, number, problem_id
-- units: none
CREATE TABLE IF NOT EXISTS suite_problem (
    suite          VARCHAR NOT NULL,
    level          BIGINT NOT NULL,
    number         BIGINT NOT NULL,
    name           VARCHAR,
    problem_id     VARCHAR NOT NULL,
    overrides_json VARCHAR
)
