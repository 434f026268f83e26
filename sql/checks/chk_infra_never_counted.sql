-- chk_infra_never_counted: Our own failures say nothing about a kernel: an INFRA_ attempt has no speedup, and no rule
--   called a record incorrect because of one.
-- grain: one INFRA_ attempt or one decision that counted it
-- keys:  id
-- units: none
SELECT attempt_id AS id, verdict, 'has a speedup' AS fault
FROM attempt
WHERE verdict LIKE 'INFRA\_%' ESCAPE '\'
    AND (speedup IS NOT NULL OR speedup_low IS NOT NULL OR speedup_high IS NOT NULL)
UNION ALL
SELECT record_id AS id, verdict, 'rule ' || rule || ': ' || reason AS fault
FROM decision
WHERE verdict = 'drop' AND rule = 'incorrect' AND reason LIKE '%INFRA\_%' ESCAPE '\'
ORDER BY id
