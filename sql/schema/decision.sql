-- decision: The word of one rule on one record in one curation: keep, drop or flag, with the reason.
-- grain: one record, step and rule of one curation
-- keys:  curation_id, record_id, step, rule
-- units: none
CREATE TABLE IF NOT EXISTS decision (
    curation_id VARCHAR NOT NULL,
    record_id   VARCHAR NOT NULL,
    step        VARCHAR NOT NULL,
    rule        VARCHAR NOT NULL,
    verdict     VARCHAR,
    reason      VARCHAR
)
