-- fct_funnel: Rows in, kept and out (by reason) at each step of each curation. Of the runs that counted a curation,
--   the one that finished it speaks (the run that the curation names, else the one with the most counters).
-- grain: one counter at one step of one curation
-- keys:  curation_id, step, kind, reason
-- units: n_rows in rows
WITH run AS (
    SELECT counter.scope, counter.run_id
    FROM counter
    LEFT JOIN curation ON curation.curation_id = counter.scope
    WHERE counter.step <> 'attempts' AND counter.scope NOT LIKE 'rdg_%'  -- of readings of single files
    GROUP BY counter.scope, counter.run_id, curation.run_id
    QUALIFY row_number() OVER (
        PARTITION BY counter.scope
        ORDER BY counter.run_id IS NOT DISTINCT FROM curation.run_id DESC, count(*) DESC, counter.run_id
    ) = 1
)
SELECT
    counter.scope AS curation_id,
    counter.run_id,
    list_position(['ingest', 'contract', 'dedup', 'overlap', 'honesty', 'speedup', 'augment', 'cuke'], counter.step)
        AS step_order,
    counter.step,
    CASE
        WHEN counter.name = 'in' THEN 'in'
        WHEN counter.name = 'kept' THEN 'kept'
        -- Left out by a declaration, or a task without a kernel: no fault of the row.
        WHEN counter.name IN ('out:not_selected', 'out:task_without_kernel') THEN 'dropped'
        WHEN counter.name LIKE 'out:%' AND counter.step IN ('ingest', 'contract') THEN 'quarantined'
        WHEN counter.name LIKE 'out:%' AND counter.step = 'dedup' THEN 'duplicate'
        WHEN counter.name LIKE 'out:%' THEN 'dropped'
        ELSE 'other'
    END AS kind,
    CASE WHEN counter.name LIKE 'out:%' THEN substr(counter.name, 5) ELSE counter.name END AS reason,
    counter.value AS n_rows
FROM counter
JOIN run USING (scope, run_id)
ORDER BY curation_id, step_order, kind, reason
