-- dataset_member: Which record belongs to which data set version, in which split, on what evidence.
-- grain: one record of one data set version
-- keys:  dataset_version_id, record_id
-- units: none
CREATE TABLE IF NOT EXISTS dataset_member (
    dataset_version_id VARCHAR NOT NULL,
    record_id          VARCHAR NOT NULL,
    split              VARCHAR,
    evidence           VARCHAR
)
