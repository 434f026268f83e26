-- quarantine: Source rows that broke the contract, kept whole, with the rule, the field and the value that
--   broke it.
-- grain: one broken rule of one source row
-- keys:  quarantine_id
-- units: none
CREATE TABLE IF NOT EXISTS quarantine (
    quarantine_id  VARCHAR NOT NULL,
    source_file_id VARCHAR,
    row_locator    VARCHAR,
    rule           VARCHAR,
    field          VARCHAR,
    value          VARCHAR,
    raw_json       VARCHAR,
    quarantined_at TIMESTAMPTZ
)
