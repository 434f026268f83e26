#!/usr/bin/env bash
# The same kernels through KernelBench's own batch evaluator and through DICE on one GPU box: wall and CPU seconds.
#
#   2026-12-h200-throughput.sh export kernel_infilling_66.json KernelBench/ box/ [standard]    on the host
#   (copy box/ to the GPU box; there, each until it says "finished", nothing else running:
#      python3 box/measure.py kernelbench box/        python3 box/measure.py dice box/
#    copy it back)
#   2026-12-h200-throughput.sh report box/                                             on the host
#
# KernelBench/ is a checkout of ScalingIntelligence/KernelBench (main 423217d); it is copied into box/ and never committed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/sections.sh"
name=2026-12-h200-throughput

verdicts="select m.number, m.problem_name, m.verdict, m.honesty, m.kernelbench_correct, m.speedup, s.n_samples,
  coalesce(a.build_s, 0) as build_s, coalesce(a.check_s, 0) as check_s, coalesce(a.time_s, 0) as time_s,
  json_array_length(t.evidence_json, '$.trials') as n_trials, t.evidence_json->>'reason' as reason
from fct_evaluation_member m join fct_attempt a using (attempt_id) join attempt t using (attempt_id)
left join fct_speedup s using (attempt_id) order by m.number"
builds="select tier, status, count(*) as builds, median(cpu_seconds) as median_cpu_s, sum(cpu_seconds) as total_cpu_s
from build group by all order by tier desc"

case "${1:-}" in
  export)
    python3 "$here/$name.py" prepare "$2" "$3" "$4"
    dice bundle export "$4/dice" --kernels "$4/runs/dice66" --suite "$4/tasks.jsonl" --name dice66 --plan "${5:-standard}" \
      --device cuda
    ;;
  report)
    home=$(mktemp -d)
    trap 'rm -rf "$home"' EXIT
    dice --home "$home" bundle import "$2/dice" >&2
    dice --home "$home" query --json "$verdicts" > "$home/verdicts.json"
    {
      cat "$here/$name.head.md"
      printf '\n## Cost and verdicts\n\n'
      python3 "$here/$name.py" table "$2" "$home/verdicts.json"
      section "Builds in DICE" "$builds"
      section "Environment" "$environment"
    } > "$here/$name.md"
    dice --home "$home" query --out "$here/$name.samples.parquet" "select s.* from timing_sample s order by attempt_id, sample"
    mkdir -p "$here/$name"
    cp "$2/kernelbench.jsonl" "$2/dice.jsonl" "$2/runs/dice66/eval_results.json" "$here/$name/"
    ;;
  *)
    sed -n '2,11p' "$0"
    exit 2
    ;;
esac
