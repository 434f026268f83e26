-- fct_ratio: Baseline against candidate of every CORRECT attempt, recomputed from its raw samples: once over its blocks,
--   once over its rows of calls (end_to_end). Per block d = ln(eager median) - ln(candidate median);
--   speedup = exp(mean d); 95 % interval by Student's t over the blocks.
-- grain: one CORRECT attempt and one of the two ways of measuring it
-- keys:  attempt_id, end_to_end
-- units: speedup = baseline time / candidate time; _us microseconds per call
WITH paired AS (
    SELECT
        block.attempt_id,
        block.end_to_end,
        any_value(block.is_scored) AS is_scored,
        max(block.call_us) FILTER (block.side = 'eager') AS baseline_us,
        max(block.call_us) FILTER (block.side = 'candidate') AS candidate_us,
        sum(block.n_samples) AS n_samples
    FROM fct_block AS block
    JOIN attempt ON attempt.attempt_id = block.attempt_id AND attempt.verdict = 'CORRECT'
    GROUP BY block.attempt_id, block.end_to_end, block.block
    HAVING baseline_us > 0 AND candidate_us > 0
),
summed AS (
    SELECT
        attempt_id,
        end_to_end,
        any_value(is_scored) AS is_scored,
        count(*) AS n_blocks,
        CAST(sum(n_samples) AS BIGINT) AS n_samples,
        avg(ln(baseline_us) - ln(candidate_us)) AS mean_d,
        stddev_samp(ln(baseline_us) - ln(candidate_us)) / sqrt(count(*)) AS error_d,
        median(baseline_us) AS baseline_us,
        median(candidate_us) AS candidate_us
    FROM paired
    GROUP BY attempt_id, end_to_end
)
SELECT
    summed.attempt_id,
    summed.end_to_end,
    summed.is_scored,
    summed.n_blocks,
    summed.n_samples,
    exp(summed.mean_d) AS speedup,
    exp(summed.mean_d - quantile.t * summed.error_d) AS speedup_low,
    exp(summed.mean_d + quantile.t * summed.error_d) AS speedup_high,
    summed.baseline_us,
    summed.candidate_us
FROM summed
LEFT JOIN dim_t_quantile AS quantile ON quantile.df = least(summed.n_blocks - 1, 201)
