-- rpt_total: Rows of the main tables: what the lake holds.
-- grain: one row
-- keys:  none
-- units: counts in rows
SELECT
    (SELECT count(source_file_id) FROM source_file) AS n_sources,
    (SELECT count(record_id) FROM training_record WHERE origin = 'source') AS n_records,
    (SELECT count(record_id) FROM training_record WHERE origin = 'augmentation') AS n_augmented,
    (SELECT count(DISTINCT (source_file_id, row_locator)) FROM quarantine) AS n_quarantined,
    (SELECT count(DISTINCT record_id) FROM dataset_member) AS n_dataset_records,
    (SELECT count(dataset_version_id) FROM dataset_version) AS n_dataset_versions,
    (SELECT count(attempt_id) FROM attempt) AS n_attempts,
    (SELECT count(attempt_id) FROM timing_sample) AS n_timings,
    (SELECT count(model_version_id) FROM model_version) AS n_models,
    (SELECT count(evaluation_id) FROM evaluation) AS n_evaluations
