-- curation: One pass of the curation over one set of sources under one configuration.
-- grain: one curation
-- keys:  curation_id
-- units: times UTC
CREATE TABLE IF NOT EXISTS curation (
    curation_id       VARCHAR NOT NULL,
    run_id            VARCHAR,
    config_json       VARCHAR,
    source_files_json VARCHAR,
    started_at        TIMESTAMPTZ,
    ended_at          TIMESTAMPTZ
)
