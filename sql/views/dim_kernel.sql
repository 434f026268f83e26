-- dim_kernel: Every candidate source, with the training record it first came from, if any.
-- grain: one kernel
-- keys:  kernel_id
-- units: source_chars in characters, source_lines in lines
WITH trained AS (
    SELECT
        kernel_id,
        min(record_id) AS record_id,
        min(origin) AS origin,
        min(structure) AS structure,
        min(nullif(language, 'unknown')) AS language
    FROM training_record
    GROUP BY kernel_id
)
SELECT
    kernel.kernel_id,
    coalesce(nullif(kernel.language, 'unknown'), trained.language, 'unknown') AS language,
    kernel.entry_point,
    trained.record_id,
    coalesce(trained.origin, 'evaluation') AS origin,
    nullif(trained.structure, '') AS structure,
    length(kernel.source) AS source_chars,
    length(kernel.source) - length(replace(kernel.source, chr(10), '')) + 1 AS source_lines
FROM kernel
LEFT JOIN trained USING (kernel_id)
ORDER BY kernel.kernel_id
