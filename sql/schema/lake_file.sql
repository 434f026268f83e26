-- lake_file: sha256 of each Parquet file of the lake, recorded in the transaction that wrote it.
-- grain: one data file
-- keys:  path
-- units: size_bytes in bytes; path relative to the lake's data folder; times UTC
CREATE TABLE IF NOT EXISTS lake_file (
    path        VARCHAR NOT NULL,
    table_name  VARCHAR,
    sha256      VARCHAR,
    size_bytes  BIGINT,
    snapshot_id BIGINT,
    recorded_at TIMESTAMPTZ
)
