-- rpt_quarantine: Which rules of the contract were broken, in which fields, how often.
-- grain: one rule on one field of one source file
-- keys:  source_uri, rule, field
-- units: counts in rows
SELECT
    source_uri,
    rule,
    field,
    count(DISTINCT row_locator) AS n_rows,
    min(row_locator) AS example_row,
    arg_min(value, row_locator) AS example_value
FROM fct_quarantine
GROUP BY source_uri, rule, field
ORDER BY n_rows DESC, source_uri, rule, field
