-- rpt_funnel: The curation funnel: rows in, kept and lost at each step, and why.
-- grain: one step of one curation
-- keys:  curation_id, step
-- units: counts in rows; rows_in = rows_kept + rows_quarantined + rows_duplicate + rows_dropped
SELECT
    curation_id,
    any_value(run_id) AS run_id,
    any_value(step_order) AS step_order,
    step,
    CAST(coalesce(sum(n_rows) FILTER (kind = 'in'), 0) AS BIGINT) AS rows_in,
    CAST(coalesce(sum(n_rows) FILTER (kind = 'kept'), 0) AS BIGINT) AS rows_kept,
    CAST(coalesce(sum(n_rows) FILTER (kind = 'quarantined'), 0) AS BIGINT) AS rows_quarantined,
    CAST(coalesce(sum(n_rows) FILTER (kind = 'duplicate'), 0) AS BIGINT) AS rows_duplicate,
    CAST(coalesce(sum(n_rows) FILTER (kind = 'dropped'), 0) AS BIGINT) AS rows_dropped,
    string_agg(reason || ' ' || n_rows, ', ' ORDER BY n_rows DESC, reason)
        FILTER (kind IN ('quarantined', 'duplicate', 'dropped') AND n_rows > 0) AS reasons
FROM fct_funnel
GROUP BY curation_id, step
ORDER BY curation_id, step_order, step
