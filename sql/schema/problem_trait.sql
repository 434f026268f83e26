-- problem_trait: What a problem lets pass, measured by the referee on the problem's own inputs.
-- grain: one trait of one problem in one environment under one protocol
-- keys:  problem_id, environment_id, protocol_version, trait
-- units: evidence is the largest share of the tolerance that was used (at most 1 holds), 0 or 1 for plain facts, null
--   where there is nothing to measure; tolerance is KernelBench's, absolute and relative alike
CREATE TABLE IF NOT EXISTS problem_trait (
    problem_id       VARCHAR NOT NULL,
    environment_id   VARCHAR NOT NULL,
    protocol_version BIGINT NOT NULL,
    trait            VARCHAR NOT NULL,
    holds            BOOLEAN,
    evidence         DOUBLE,
    tolerance        DOUBLE,
    device           VARCHAR
)
