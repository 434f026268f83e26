-- problem: Reference modules in KernelBench's form, stored once by content.
-- grain: one reference source
-- keys:  problem_id
-- units: none
CREATE TABLE IF NOT EXISTS problem (
    problem_id VARCHAR NOT NULL,
    source     VARCHAR
)
