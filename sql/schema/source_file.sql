-- source_file: Files that rows were read from; the same content is one source whatever its name.
-- grain: one source file
-- keys:  source_file_id
-- units: size_bytes in bytes
CREATE TABLE IF NOT EXISTS source_file (
    source_file_id VARCHAR NOT NULL,
    uri            VARCHAR,
    revision       VARCHAR,
    sha256         VARCHAR,
    size_bytes     BIGINT,
    licence        VARCHAR,
    fetched_at     TIMESTAMPTZ
)
