-- fct_quarantine: Source rows that broke the contract, with the file they came from.
-- grain: one broken rule of one source row
-- keys:  quarantine_id
-- units: raw_chars in characters; times UTC
SELECT
    quarantine.quarantine_id,
    source.uri AS source_uri,
    quarantine.source_file_id,
    quarantine.row_locator,
    quarantine.rule,
    quarantine.field,
    quarantine.value,
    length(quarantine.raw_json) AS raw_chars,
    quarantine.quarantined_at
FROM quarantine
LEFT JOIN source_file AS source USING (source_file_id)
ORDER BY source.uri, quarantine.row_locator, quarantine.rule
