-- rpt_leaderboard: Scores of each evaluation by level, and over all levels (level is null, scope is 'all').
--   fast_p = share of problems whose first sample is correct, honest and strictly more than p times as fast as eager;
--   the denominator is every problem of the level in that evaluation, also those without a kernel. A problem whose
--   attempt ended in our own INFRA_ error was never judged: it is counted in n_infra and not in n_problems. The columns
--   `_low_bound` ask the same of the lower end of the speedup's 95 % interval. fast_p_any ignores honesty, as
--   KernelBench does. `_low` and `_high` are Wilson 95 % intervals of the share.
-- grain: one level of one evaluation, plus one row for all levels
-- keys:  evaluation_id, scope
-- units: counts in problems; shares between 0 and 1
WITH first_sample AS (
    SELECT * FROM fct_evaluation_member WHERE is_first_sample
),
counted AS (
    SELECT
        evaluation_id,
        level,
        count(*) FILTER (NOT is_infra) AS n_problems,
        count(*) FILTER (is_infra) AS n_infra,
        count(*) FILTER (is_compiled) AS n_compiled,
        count(*) FILTER (is_correct) AS n_correct,
        count(*) FILTER (is_deceptive) AS n_deceptive,
        count(*) FILTER (is_honest_correct) AS n_fast_0,
        count(*) FILTER (is_honest_correct AND speedup > 1) AS n_fast_1,
        count(*) FILTER (is_honest_correct AND speedup > 2) AS n_fast_2,
        count(*) FILTER (is_honest_correct AND speedup_low > 1) AS n_fast_1_low_bound,
        count(*) FILTER (is_honest_correct AND speedup_low > 2) AS n_fast_2_low_bound,
        count(*) FILTER (is_correct AND speedup > 1) AS n_fast_1_any,
        count(*) FILTER (is_correct AND speedup > 2) AS n_fast_2_any,
        median(speedup) FILTER (is_honest_correct) AS median_speedup
    FROM first_sample
    GROUP BY GROUPING SETS ((evaluation_id, level), (evaluation_id))
),
rated AS (
    SELECT
        *,
        n_compiled / nullif(n_problems, 0) AS compiled_rate,
        n_correct / nullif(n_problems, 0) AS correct_rate,
        n_fast_0 / nullif(n_problems, 0) AS fast_0,
        n_fast_1 / nullif(n_problems, 0) AS fast_1,
        n_fast_2 / nullif(n_problems, 0) AS fast_2,
        n_fast_1_low_bound / nullif(n_problems, 0) AS fast_1_low_bound,
        n_fast_2_low_bound / nullif(n_problems, 0) AS fast_2_low_bound,
        n_correct / nullif(n_problems, 0) AS fast_0_any,
        n_fast_1_any / nullif(n_problems, 0) AS fast_1_any,
        n_fast_2_any / nullif(n_problems, 0) AS fast_2_any,
        1.959963984540054 * 1.959963984540054 AS z2,
        1.959963984540054 AS z
    FROM counted
),
bounded AS (
    SELECT
        *,
        (fast_0 + z2 / (2 * n_problems)) / (1 + z2 / n_problems) AS middle_0,
        (fast_1 + z2 / (2 * n_problems)) / (1 + z2 / n_problems) AS middle_1,
        (fast_2 + z2 / (2 * n_problems)) / (1 + z2 / n_problems) AS middle_2,
        z / (1 + z2 / n_problems) * sqrt(fast_0 * (1 - fast_0) / n_problems + z2 / (4 * n_problems * n_problems))
            AS half_0,
        z / (1 + z2 / n_problems) * sqrt(fast_1 * (1 - fast_1) / n_problems + z2 / (4 * n_problems * n_problems))
            AS half_1,
        z / (1 + z2 / n_problems) * sqrt(fast_2 * (1 - fast_2) / n_problems + z2 / (4 * n_problems * n_problems))
            AS half_2
    FROM rated
)
SELECT
    bounded.evaluation_id,
    evaluation.name AS evaluation_name,
    evaluation.suite,
    evaluation.model_version_id,
    model.name AS model_name,
    model.version AS model_version,
    evaluation.kernel_source,
    bounded.level,
    coalesce('level ' || bounded.level, 'all') AS scope,
    bounded.n_problems,
    bounded.n_infra,
    bounded.n_compiled,
    bounded.n_correct,
    bounded.n_deceptive,
    bounded.compiled_rate,
    bounded.correct_rate,
    bounded.n_fast_0,
    bounded.fast_0,
    CASE WHEN bounded.n_fast_0 = 0 THEN 0 ELSE bounded.middle_0 - bounded.half_0 END AS fast_0_low,
    CASE WHEN bounded.n_fast_0 = bounded.n_problems THEN 1 ELSE bounded.middle_0 + bounded.half_0 END AS fast_0_high,
    bounded.n_fast_1,
    bounded.fast_1,
    CASE WHEN bounded.n_fast_1 = 0 THEN 0 ELSE bounded.middle_1 - bounded.half_1 END AS fast_1_low,
    CASE WHEN bounded.n_fast_1 = bounded.n_problems THEN 1 ELSE bounded.middle_1 + bounded.half_1 END AS fast_1_high,
    bounded.n_fast_2,
    bounded.fast_2,
    CASE WHEN bounded.n_fast_2 = 0 THEN 0 ELSE bounded.middle_2 - bounded.half_2 END AS fast_2_low,
    CASE WHEN bounded.n_fast_2 = bounded.n_problems THEN 1 ELSE bounded.middle_2 + bounded.half_2 END AS fast_2_high,
    bounded.fast_1_low_bound,
    bounded.fast_2_low_bound,
    bounded.fast_0_any,
    bounded.fast_1_any,
    bounded.fast_2_any,
    bounded.median_speedup,
    evaluation.created_at
FROM bounded
LEFT JOIN evaluation USING (evaluation_id)
LEFT JOIN model_version AS model USING (model_version_id)
ORDER BY evaluation.created_at, bounded.evaluation_id, bounded.level NULLS LAST
