-- dim_dataset_version: Published data set versions with the size of each split.
-- grain: one data set version
-- keys:  dataset_version_id
-- units: counts in records; times UTC
WITH member AS (
    SELECT
        dataset_version_id,
        count(*) AS n_members,
        count(*) FILTER (split = 'train') AS n_train,
        count(*) FILTER (split <> 'train') AS n_held_out
    FROM dataset_member
    GROUP BY dataset_version_id
)
SELECT
    version.dataset_version_id,
    version.name,
    version.merkle_root,
    version.parent_version_id,
    version.curation_id,
    version.n_records,
    coalesce(member.n_members, 0) AS n_members,
    coalesce(member.n_train, 0) AS n_train,
    coalesce(member.n_held_out, 0) AS n_held_out,
    version.created_at
FROM dataset_version AS version
LEFT JOIN member USING (dataset_version_id)
ORDER BY version.created_at, version.dataset_version_id
