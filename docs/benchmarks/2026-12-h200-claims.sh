#!/usr/bin/env bash
# Check claims about LLM-written kernels on a GPU box, and write the tables of 2026-12-h200-claims.md.
#
#   2026-12-h200-claims.sh export candidates.parquet kernelbench.parquet box/ [108] [standard]   on the host: the bundle
#   (copy box/ to the GPU box, run `python3 run.py` in it, copy it back)
#   2026-12-h200-claims.sh report box/                                     on the host: import and write the report
#       (of a box that was not finished: of what is)
#
# candidates.parquet: level, problem_id, model, kernel_code, claimed_compiled, claimed_correct, claimed_runtime_ms,
# claimed_hardware. kernelbench.parquet: level, problem_id, name, code.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/sections.sh"
name=2026-12-h200-claims

outcomes="select claimed_compiled, claimed_correct, outcome, count(*) as kernels from rpt_claim group by all
order by claimed_correct desc, claimed_compiled desc, kernels desc, outcome"
verdicts="select claimed_correct, verdict, honesty, kernelbench_correct, count(*) as kernels from rpt_claim group by all
order by claimed_correct desc, kernels desc, verdict, honesty, kernelbench_correct"
models="select model, level, count(*) as kernels, count(*) filter (claimed_correct) as claimed,
  count(*) filter (outcome = 'confirmed') as confirmed, count(*) filter (outcome = 'refuted') as refuted,
  count(*) filter (outcome = 'vindicated') as vindicated, count(*) filter (speedup_low > 1) as faster_than_eager,
  count(*) filter (outcome = 'confirmed' and not is_discriminating) as confirmed_on_a_task_that_says_little
from rpt_claim group by model, level order by model, level"
refuted="select level, number, problem_name, model, verdict, honesty, kernelbench_correct, reason from rpt_claim
where outcome = 'refuted' order by level, number, model"
differ="select level, number, problem_name, model, verdict, kernelbench_correct, reason from rpt_claim
where (verdict = 'CORRECT') <> coalesce(kernelbench_correct, false) and is_compiled order by level, number, model"
traits="select level, number, problem_name, zero_passable, constant_passable, replay_passable, weight_independent,
  tf32_indistinguishable, overhead_bound from rpt_problem_trait where not is_discriminating order by level, number"
evidence="select p.level, p.number, t.trait, t.holds, t.evidence, t.tolerance, t.device, t.protocol_version
from problem_trait t join rpt_problem_trait p using (problem_id)
where t.trait in ('zero_passable', 'constant_passable', 'replay_passable', 'weight_independent') and t.holds
order by p.level, p.number, t.trait"
scores="select scope, score_view, p, n_problems, n_correct, n_untimed, n_passed, fast_p, fast_p_low, fast_p_high, n_passed_low_bound
from rpt_score where p in (0, 1, 2) order by level nulls last, score_view, p"
all="select level, number, problem_name, model, claimed_correct, claimed_ms, outcome, verdict, honesty, kernelbench_correct,
  our_ms, speedup, speedup_low, speedup_high, is_discriminating from rpt_claim order by level, number, model"
stages="select round(sum(build_s), 1) as build_s, round(sum(check_s), 1) as check_s, round(sum(time_s), 1) as time_s,
  round(max(elapsed_s), 1) as longest_s, count(*) as attempts from fct_attempt"

case "${1:-}" in
  export)
    dice bundle export "$4" --claims "$2" --suite "$3" --choose "${5:-108}" --name llm_claims --plan "${6:-standard}" \
      --device cuda
    ;;
  report)
    home=$(mktemp -d)
    trap 'rm -rf "$home"' EXIT
    dice --home "$home" bundle import "$2" --finished-only >&2
    {
      cat "$here/$name.head.md"
      section "Claimed against found" "$outcomes"
      section "By model and level" "$models"
      section "Refuted claims" "$refuted"
      section "Where our verdict and KernelBench's comparison differ here" "$differ"
      section "Verdicts" "$verdicts"
      section "Scores in three views (first sample of each problem)" "$scores"
      section "Tasks that say little" "$traits"
      section "Evidence for it (share of KernelBench's tolerance used)" "$evidence"
      section "All kernels" "$all"
      section "Where the time went" "$stages"
      section "Environment" "$environment"
    } > "$here/$name.md"
    dice --home "$home" query --out "$here/$name.samples.parquet" "select s.* from timing_sample s order by attempt_id, sample"
    ;;
  *)
    sed -n '2,10p' "$0"
    exit 2
    ;;
esac
