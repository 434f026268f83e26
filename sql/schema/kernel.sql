-- kernel: Candidate sources, stored once by content.
-- grain: one candidate source
-- keys:  kernel_id
-- units: none
CREATE TABLE IF NOT EXISTS kernel (
    kernel_id   VARCHAR NOT NULL,
    source      VARCHAR,
    language    VARCHAR,
    entry_point VARCHAR
)
