-- Speedup of each item under both timing protocols, and from end to end, from the raw samples beside this file.
-- Run with: duckdb < 2026-12-h200-launching.sql   (in this folder)
CREATE OR REPLACE TEMP VIEW sample AS FROM '2026-12-h200-launching.samples.parquet';
CREATE OR REPLACE TEMP VIEW block AS
SELECT item, protocol, end_to_end, block, side,
    median(CASE WHEN end_to_end THEN host_us ELSE device_us END / batch) AS call_us
FROM sample WHERE NOT warmup AND NOT excluded GROUP BY ALL;
CREATE OR REPLACE TEMP VIEW ratio AS
SELECT item, protocol, end_to_end, count(*) AS blocks, exp(avg(d)) AS speedup, median(eager_us) AS eager_us,
    median(candidate_us) AS candidate_us, exp(1.96 * stddev_samp(d) / sqrt(count(*))) - 1 AS half_width
FROM (
    SELECT e.item, e.protocol, e.end_to_end, e.call_us AS eager_us, c.call_us AS candidate_us,
        ln(e.call_us) - ln(c.call_us) AS d
    FROM block e JOIN block c USING (item, protocol, end_to_end, block)
    WHERE e.side = 'eager' AND c.side = 'candidate'
) GROUP BY ALL;
CREATE OR REPLACE TEMP VIEW result AS
SELECT item, a.eager_us AS eager_us_1, b.eager_us AS eager_us_2, a.candidate_us AS candidate_us_1,
    b.candidate_us AS candidate_us_2, a.speedup AS speedup_1, a.half_width AS half_width_1, b.speedup AS speedup_2,
    b.half_width AS half_width_2, w.speedup AS end_to_end_2
FROM ratio a JOIN ratio b USING (item) LEFT JOIN ratio w USING (item)
WHERE a.protocol = 1 AND NOT a.end_to_end AND b.protocol = 2 AND NOT b.end_to_end AND w.protocol = 2 AND w.end_to_end;
SELECT count(*) AS items, median(speedup_1) AS speedup_1, median(speedup_2) AS speedup_2,
    median(end_to_end_2) AS end_to_end_2, median(half_width_1) AS half_width_1, median(half_width_2) AS half_width_2,
    count(*) FILTER (speedup_1 / (1 + half_width_1) >= 2) AS at_least_2x_1,
    count(*) FILTER (speedup_2 / (1 + half_width_2) >= 2) AS at_least_2x_2 FROM result;
SELECT * FROM result ORDER BY speedup_1 DESC;
