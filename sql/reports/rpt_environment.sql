-- rpt_environment: What machines and software produced the results, one recorded property a row.
-- grain: one property of one environment
-- keys:  environment_id, kind, name
-- units: as each property states; times UTC
WITH used AS (
    SELECT environment_id, count(*) AS n_attempts, max(ended_at) AS last_used_at
    FROM attempt
    GROUP BY environment_id
),
property AS (
    SELECT environment_id, 'identity' AS kind, unnest(json_keys(identity_json)) AS name, identity_json AS source
    FROM environment
    UNION ALL
    SELECT environment_id, 'fact' AS kind, unnest(json_keys(facts_json)) AS name, facts_json AS source
    FROM environment
)
SELECT
    property.environment_id,
    coalesce(used.n_attempts, 0) AS n_attempts,
    used.last_used_at,
    property.kind,
    property.name,
    property.source -> ('$."' || property.name || '"') ->> '$' AS value
FROM property
LEFT JOIN used USING (environment_id)
ORDER BY n_attempts DESC, property.environment_id, property.kind DESC, property.name
