-- rpt_score: fast_p of each evaluation in three views. `all`: correct by KernelBench's own comparison, over all problems
--   of the level. `discriminating`: correct and honest by ours, over the problems that tell a kernel from zeros, a
--   constant, another input's answer or other weights; a problem whose traits were never measured stays in. `repaired`:
--   correct and honest by ours (harder inputs, other weights), over all problems.
--   fast_p = n_passed / n_problems, strictly more than p times as fast as eager, as KernelBench defines it. A correct
--   kernel without a time passes no p, also not 0, as in KernelBench; where we stopped before timing because our own
--   verdict was another one, it is counted in n_untimed. INFRA_ attempts were never judged and are in no denominator.
-- grain: one p of one view of one level of one evaluation, plus one row for all levels (level is null)
-- keys:  evaluation_id, scope, score_view, p
-- units: counts in problems; shares between 0 and 1; `_low` and `_high` Wilson 95 % intervals; `_low_bound` asks the
--   lower end of the speedup's own 95 % interval
WITH judged AS (
    SELECT
        member.evaluation_id,
        member.level,
        member.speedup,
        member.speedup_low,
        coalesce(member.kernelbench_correct, false) AS is_kernelbench_correct,
        member.is_honest_correct,
        coalesce(trait.is_discriminating, true) AS is_discriminating
    FROM fct_evaluation_member AS member
    LEFT JOIN dim_problem_trait AS trait ON trait.problem_id = member.problem_id
    WHERE member.is_first_sample AND NOT member.is_infra
),
viewed AS (
    SELECT *, 'all' AS score_view, is_kernelbench_correct AS is_right FROM judged
    UNION ALL
    SELECT *, 'discriminating' AS score_view, is_honest_correct AS is_right FROM judged WHERE is_discriminating
    UNION ALL
    SELECT *, 'repaired' AS score_view, is_honest_correct AS is_right FROM judged
),
counted AS (
    SELECT
        evaluation_id,
        level,
        score_view,
        p,
        count(*) AS n_problems,
        count(*) FILTER (is_right) AS n_correct,
        count(*) FILTER (is_right AND speedup IS NULL) AS n_untimed,
        count(*) FILTER (is_right AND speedup > p) AS n_passed,
        count(*) FILTER (is_right AND speedup_low > p) AS n_passed_low_bound
    FROM viewed
    CROSS JOIN (SELECT unnest([0.0, 0.5, 0.8, 1.0, 1.5, 2.0]) AS p)
    GROUP BY GROUPING SETS ((evaluation_id, level, score_view, p), (evaluation_id, score_view, p))
),
rated AS (
    SELECT
        *,
        n_passed / n_problems AS fast_p,
        n_passed_low_bound / n_problems AS fast_p_low_bound,
        3.841458820694124 / n_problems AS z2_n
    FROM counted
),
bounded AS (
    SELECT
        *,
        (fast_p + z2_n / 2) / (1 + z2_n) AS middle,
        sqrt(z2_n * (fast_p * (1 - fast_p) + z2_n / 4)) / (1 + z2_n) AS half,
        (fast_p_low_bound + z2_n / 2) / (1 + z2_n) AS bound_middle,
        sqrt(z2_n * (fast_p_low_bound * (1 - fast_p_low_bound) + z2_n / 4)) / (1 + z2_n) AS bound_half
    FROM rated
)
SELECT
    bounded.evaluation_id,
    evaluation.name AS evaluation_name,
    bounded.level,
    coalesce('level ' || bounded.level, 'all') AS scope,
    bounded.score_view,
    bounded.p,
    bounded.n_problems,
    bounded.n_correct,
    bounded.n_untimed,
    bounded.n_passed,
    bounded.fast_p,
    CASE WHEN n_passed = 0 THEN 0 ELSE middle - half END AS fast_p_low,
    CASE WHEN n_passed = n_problems THEN 1 ELSE middle + half END AS fast_p_high,
    bounded.n_passed_low_bound,
    bounded.fast_p_low_bound,
    CASE WHEN n_passed_low_bound = 0 THEN 0 ELSE bound_middle - bound_half END AS fast_p_low_bound_low,
    CASE WHEN n_passed_low_bound = n_problems THEN 1 ELSE bound_middle + bound_half END AS fast_p_low_bound_high,
    evaluation.created_at
FROM bounded
LEFT JOIN evaluation USING (evaluation_id)
ORDER BY evaluation.created_at, bounded.evaluation_id, bounded.level NULLS LAST, bounded.score_view, bounded.p
