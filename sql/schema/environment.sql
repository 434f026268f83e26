-- environment: Machines and software that produced results: identity decides the id, facts are what was
--   found at capture.
-- grain: one environment
-- keys:  environment_id
-- units: times UTC
CREATE TABLE IF NOT EXISTS environment (
    environment_id VARCHAR NOT NULL,
    identity_json  VARCHAR,
    facts_json     VARCHAR,
    first_seen_at  TIMESTAMPTZ
)
