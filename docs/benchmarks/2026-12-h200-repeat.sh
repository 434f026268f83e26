#!/usr/bin/env bash
# Twenty kernels measured five times, each time in processes of their own: do speedups agree, do intervals cover?
#
#   2026-12-h200-repeat.sh export kernel_infilling_66.json box/     on the host: box/0 … box/4
#   (copy box/ to the GPU box, there `for i in 0 1 2 3 4; do (cd $i && python3 run.py); done`, copy it back)
#   2026-12-h200-repeat.sh report box/                              on the host: import and write the report
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/sections.sh"
name=2026-12-h200-repeat

# A repeat's interval covers when the geometric mean of the other four lies in it, widened by that mean's own error.
repeats="with measured as (
  select p.name as item, a.ordinal, s.basis, s.baseline_us, ln(s.speedup) as d, ln(s.speedup_high / s.speedup_low) / 2 as half,
    ln(s.end_to_end_speedup) as whole
  from fct_speedup s join attempt a using (attempt_id) join suite_problem p on p.problem_id = a.problem_id
), others as (
  select one.item, one.ordinal, avg(other.d) as mean_d, stddev_samp(other.d) / sqrt(count(*)) as error_d
  from measured one join measured other on other.item = one.item and other.ordinal <> one.ordinal
  group by all
)"
summary="$repeats, items as (
  select item, median(baseline_us) as baseline_us, exp(stddev_samp(d)) - 1 as spread,
    exp(max(d) - min(d)) - 1 as range, exp(stddev_samp(whole)) - 1 as end_to_end_spread, count(*) as repeats
  from measured group by item
), covered as (
  select avg((abs(d - mean_d) <= sqrt(half * half + error_d * error_d))::int) as covered,
    avg((abs(d - mean_d) <= half)::int) as covered_strictly
  from measured join others using (item, ordinal)
)
select count(*) as items, sum(repeats) as measurements, median(spread) as median_spread, max(spread) as largest_spread,
  median(range) as median_range, count(*) filter (range <= 0.03) as within_3_percent,
  count(*) filter (baseline_us > 20) as over_20_us, count(*) filter (baseline_us > 20 and range <= 0.03) as over_20_us_within_3_percent,
  any_value(covered) as covered, any_value(covered_strictly) as covered_strictly
from items, covered"
each="$repeats
select item, any_value(basis) as basis, median(baseline_us) as baseline_us, exp(avg(d)) as speedup,
  exp(stddev_samp(d)) - 1 as spread, exp(max(d) - min(d)) - 1 as range, exp(median(half)) - 1 as median_half_width,
  exp(avg(whole)) as end_to_end_speedup, exp(stddev_samp(whole)) - 1 as end_to_end_spread, count(*) as repeats
from measured group by item order by range desc"
verdicts="select p.name as item, list(distinct a.verdict) as verdicts, count(*) as repeats from attempt a
join suite_problem p on p.problem_id = a.problem_id group by all order by item"

case "${1:-}" in
  export)
    for repeat in 0 1 2 3 4; do
      dice bundle export "$3/$repeat" --pairs "$2" --reference-field pytorch_code --kernel-field cuda_code \
        --name "repeat" --choose 20 --repeat "$repeat" --plan standard --device cuda
    done
    ;;
  report)
    home=$(mktemp -d)
    trap 'rm -rf "$home"' EXIT
    for box in "$2"/[0-4]; do dice --home "$home" bundle import --finished-only "$box" >&2; done
    {
      cat "$here/$name.head.md"
      section "Summary" "$summary"
      section "Items" "$each"
      section "Verdicts" "$verdicts"
      section "Environment" "$environment"
    } > "$here/$name.md"
    dice --home "$home" query --out "$here/$name.samples.parquet" "select s.* from timing_sample s order by attempt_id, sample"
    ;;
  *)
    sed -n '2,7p' "$0"
    exit 2
    ;;
esac
