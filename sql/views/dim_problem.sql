-- dim_problem: Every reference module, with its place in a suite or the name it has in the training data.
-- grain: one problem
-- keys:  problem_id
-- units: source_chars in characters
WITH placed AS (
    SELECT problem_id, suite, level, number, name
    FROM suite_problem
    QUALIFY row_number() OVER (PARTITION BY problem_id ORDER BY suite, level, number) = 1
),
trained AS (
    SELECT problem_id, min(problem_name) AS problem_name, count(*) AS n_records
    FROM training_record
    GROUP BY problem_id
)
SELECT
    problem.problem_id,
    coalesce(placed.name, trained.problem_name, problem.problem_id) AS problem_name,
    placed.suite,
    placed.level,
    placed.number,
    coalesce(trained.n_records, 0) AS n_records,
    length(problem.source) AS source_chars
FROM problem
LEFT JOIN placed USING (problem_id)
LEFT JOIN trained USING (problem_id)
ORDER BY problem.problem_id
