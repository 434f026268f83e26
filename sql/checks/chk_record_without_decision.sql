-- chk_record_without_decision: No record lies in the lake without a word of any rule on it.
-- grain: one record that no curation decided on
-- keys:  record_id
-- units: none
SELECT record.record_id, record.source_file_id, record.row_locator
FROM training_record AS record
LEFT JOIN decision USING (record_id)
WHERE decision.record_id IS NULL
ORDER BY record.record_id
