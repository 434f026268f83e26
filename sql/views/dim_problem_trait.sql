-- dim_problem_trait: The traits of a problem side by side. A trait holds when it held in any environment. A problem is
--   discriminating when neither zeros, nor a constant, nor the answer to other inputs, nor an answer from other weights
--   passes KernelBench's comparison.
-- grain: one problem with measured traits
-- keys:  problem_id
-- units: none
SELECT
    problem_id,
    coalesce(bool_or(holds) FILTER (trait = 'zero_passable'), false) AS zero_passable,
    coalesce(bool_or(holds) FILTER (trait = 'constant_passable'), false) AS constant_passable,
    coalesce(bool_or(holds) FILTER (trait = 'replay_passable'), false) AS replay_passable,
    coalesce(bool_or(holds) FILTER (trait = 'weight_independent'), false) AS weight_independent,
    coalesce(bool_or(holds) FILTER (trait = 'tf32_indistinguishable'), false) AS tf32_indistinguishable,
    coalesce(bool_or(holds) FILTER (trait = 'stochastic'), false) AS stochastic,
    coalesce(bool_or(holds) FILTER (trait = 'mutates_inputs'), false) AS mutates_inputs,
    coalesce(bool_or(holds) FILTER (trait = 'tuple_output'), false) AS tuple_output,
    coalesce(bool_or(holds) FILTER (trait = 'overhead_bound'), false) AS overhead_bound,
    NOT coalesce(bool_or(holds) FILTER (
        trait IN ('zero_passable', 'constant_passable', 'replay_passable', 'weight_independent')), false)
        AS is_discriminating
FROM fct_problem_trait
GROUP BY problem_id
HAVING bool_or(trait = 'zero_passable')
