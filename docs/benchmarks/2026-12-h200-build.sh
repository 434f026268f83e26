#!/usr/bin/env bash
# The build farm against torch's load_inline on real kernels, and the tables of 2026-12-h200-build.md.
#
#   2026-12-h200-build.sh export box/ --dice kernel_infilling_66.json --llm llm_candidates.parquet \
#       --problems kernelbench_v0_2.parquet [--tools FOLDER_OF_CUOBJDUMP]      on the host: make the folder
#   (copy box/ to the GPU box, run `python3 run.py` in it, again if it says so, copy it back)
#   2026-12-h200-build.sh report box/                                           on the host: write the tables
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
case "${1:-}" in
  export | report) exec python "$here/2026-12-h200-build-$1.py" "${@:2}" ;;
  *)
    sed -n '2,8p' "$0"
    exit 2
    ;;
esac
