#!/usr/bin/env bash
# Measure DICE's released infilling items on a GPU box, and write the tables of 2026-12-h200-infilling.md.
#
#   2026-12-h200-infilling.sh export kernel_infilling_66.json box/ [standard]    on the host: make the bundle
#   (copy box/ to the GPU box, run `python3 run.py` in it, copy it back)
#   2026-12-h200-infilling.sh report box/                             on the host: import and write the report
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/sections.sh"
name=2026-12-h200-infilling

speedups="select p.name as item, a.honesty, s.baseline_us, s.candidate_us, s.speedup, s.speedup_low,
  s.speedup_high, s.n_blocks, s.n_samples
from fct_speedup s join attempt a using (attempt_id) join evaluation_member m using (attempt_id)
join suite_problem p on p.suite = m.suite and p.number = m.number and p.problem_id = m.problem_id
order by s.speedup desc"
verdicts="select verdict, honesty, kernelbench_correct, count(*) as items from attempt group by all order by items desc, verdict, honesty, kernelbench_correct"
summary="select count(*) as items, count(*) filter (verdict = 'CORRECT') as correct, median(speedup) as median_speedup,
  count(*) filter (speedup_low > 1) as faster, count(*) filter (speedup_high < 1) as slower,
  count(*) filter (speedup_low <= 1 and speedup_high >= 1) as not_significant,
  count(*) filter (speedup >= 2) as at_least_2x, count(*) filter (speedup_low >= 2) as at_least_2x_lower_bound
from attempt"
failures="select p.name as item, a.verdict, a.kernelbench_correct, a.evidence_json->>'reason' as reason
from attempt a join evaluation_member m using (attempt_id)
join suite_problem p on p.suite = m.suite and p.number = m.number and p.problem_id = m.problem_id
where a.verdict <> 'CORRECT' order by a.verdict, item"
builds="select tier, status, count(*) as builds, median(cpu_seconds) as median_cpu_s, max(cpu_seconds) as max_cpu_s
from build group by all order by tier desc"

case "${1:-}" in
  export)
    dice bundle export "$3" --pairs "$2" --reference-field pytorch_code --kernel-field cuda_code \
      --name kernel_infilling_66 --plan "${4:-standard}" --device cuda
    ;;
  report)
    home=$(mktemp -d)
    trap 'rm -rf "$home"' EXIT
    dice --home "$home" bundle import "$2" >&2
    {
      cat "$here/$name.head.md"
      section "Summary" "$summary"
      section "Verdicts" "$verdicts"
      section "Speedups" "$speedups"
      section "Not correct" "$failures"
      section "Builds" "$builds"
      section "Environment" "$environment"
    } > "$here/$name.md"
    dice --home "$home" query --out "$here/$name.samples.parquet" "select s.* from timing_sample s order by attempt_id, sample"
    ;;
  *)
    sed -n '2,7p' "$0"
    exit 2
    ;;
esac
