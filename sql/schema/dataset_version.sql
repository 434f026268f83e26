-- dataset_version: Published versions of a data set: members' Merkle root, recipe, funnel.
-- grain: one data set version
-- keys:  dataset_version_id
-- units: n_records in records; times UTC
CREATE TABLE IF NOT EXISTS dataset_version (
    dataset_version_id VARCHAR NOT NULL,
    name               VARCHAR,
    merkle_root        VARCHAR,
    parent_version_id  VARCHAR,
    curation_id        VARCHAR,
    recipe_json        VARCHAR,
    funnel_json        VARCHAR,
    n_records          BIGINT,
    path               VARCHAR,
    created_at         TIMESTAMPTZ
)
