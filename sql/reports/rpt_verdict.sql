-- rpt_verdict: How attempts ended, by device.
-- grain: one verdict on one device
-- keys:  device, verdict
-- units: counts in attempts; share of all attempts on the device, between 0 and 1
SELECT
    device,
    verdict,
    count(*) AS n_attempts,
    count(*) FILTER (is_deceptive) AS n_deceptive,
    count(*) / sum(count(*)) OVER (PARTITION BY device) AS share,
    any_value(is_infra) AS is_infra
FROM fct_attempt
GROUP BY device, verdict
ORDER BY device, n_attempts DESC, verdict
