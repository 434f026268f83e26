-- dim_environment: Machines and software that produced results, with the parts that decide comparability as columns.
-- grain: one environment
-- keys:  environment_id
-- units: times UTC
SELECT
    environment_id,
    identity_json ->> '$.device' AS device,
    coalesce(nullif(identity_json ->> '$.gpu', ''), identity_json ->> '$.cpu') AS processor,
    identity_json ->> '$.cpu' AS cpu,
    identity_json ->> '$.gpu' AS gpu,
    identity_json ->> '$.driver' AS driver,
    identity_json ->> '$.nvcc' AS nvcc,
    identity_json ->> '$.cxx' AS cxx,
    identity_json ->> '$.torch' AS torch,
    identity_json ->> '$.python' AS python,
    identity_json ->> '$.isolation' AS isolation,
    facts_json ->> '$.git_commit' AS git_commit,
    facts_json ->> '$.git_dirty' AS git_dirty,
    identity_json,
    facts_json,
    first_seen_at
FROM environment
ORDER BY environment_id
