-- chk_counter_balance: No row vanishes: at each step rows in = rows kept + rows out for all reasons, and from ingest to
--   the speedup filter each step takes in what the step before it kept.
-- grain: one step of one run that does not balance
-- keys:  run_id, scope, step
-- units: counts in rows
WITH step AS (
    SELECT
        run_id,
        scope,
        step,
        list_position(['ingest', 'contract', 'dedup', 'overlap', 'honesty', 'speedup'], step) AS step_order,
        sum(value) FILTER (name = 'in') AS rows_in,
        sum(value) FILTER (name = 'kept') AS rows_kept,
        coalesce(sum(value) FILTER (name LIKE 'out:%'), 0) AS rows_out
    FROM counter
    GROUP BY run_id, scope, step
),
chained AS (
    SELECT
        *,
        CASE WHEN step_order IS NOT NULL THEN
            lag(rows_kept) OVER (PARTITION BY run_id, scope, step_order IS NULL ORDER BY step_order)
        END AS kept_before
    FROM step
)
SELECT run_id, scope, step, rows_in, rows_kept, rows_out, kept_before
FROM chained
WHERE rows_in IS DISTINCT FROM rows_kept + rows_out OR (kept_before IS NOT NULL AND kept_before <> rows_in)
ORDER BY run_id, scope, step_order, step
