-- rpt_problem_trait: Problems that let something pass that is no kernel, or that measure little else than launching.
-- grain: one problem of one suite with measured traits
-- keys:  suite, level, number, problem_id
-- units: none
SELECT
    coalesce(place.suite, '') AS suite,
    coalesce(place.level, -1) AS level,
    coalesce(place.number, -1) AS number,
    trait.problem_id,
    coalesce(place.name, problem.problem_name) AS problem_name,
    trait.is_discriminating,
    trait.zero_passable,
    trait.constant_passable,
    trait.replay_passable,
    trait.weight_independent,
    trait.tf32_indistinguishable,
    trait.stochastic,
    trait.mutates_inputs,
    trait.tuple_output,
    trait.overhead_bound
FROM dim_problem_trait AS trait
LEFT JOIN suite_problem AS place USING (problem_id)
LEFT JOIN dim_problem AS problem USING (problem_id)
ORDER BY suite, level, number, trait.problem_id
