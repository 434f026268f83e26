"""Every CUDA kernel of the library compiles for the H200, which needs the toolkit but no GPU."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from candidate_modules import assert_same_state

from dice_core.arena.toolchain import LIGHT_INCLUDE, find_toolchain
from dice_core.curation.generators import OfflineLibrary
from dice_core.curation.structures import StructureTask, load_structures
from dice_core.settings import compiler_path

LIBRARY = OfflineLibrary(load_structures(Path(__file__).parents[2] / "datasets" / "structures"))
#: The architecture of the H200, as nvcc names it.
ARCH = "sm_90"


@pytest.mark.slow
@pytest.mark.parametrize("task", LIBRARY.tasks("cuda", sets=1), ids=lambda task: task.name)
def test_cuda_kernel_compiles_with_the_light_headers_and_does_not_spill(task: StructureTask, tmp_path: Path) -> None:
    tools = find_toolchain(compiler_path())
    if tools.nvcc is None:
        pytest.skip("no CUDA toolkit (nvcc) on this machine")
    [request] = assert_same_state(task.pytorch_code, task.kernel_code, tmp_path)
    source = tmp_path / "kernel.cu"
    source.write_text("\n".join(request.cuda_sources), encoding="utf-8")
    run = subprocess.run(
        [str(tools.nvcc), "-std=c++17", f"-arch={ARCH}", "-O3", "--expt-relaxed-constexpr", "-Xptxas=-v", "-Werror",
         "all-warnings", "-I", str(LIGHT_INCLUDE), "-isystem", str(tools.torch_root / "include"), "-c", str(source),
         "-o", str(tmp_path / "kernel.o")],
        capture_output=True, text=True, check=False, timeout=300)
    assert run.returncode == 0, run.stderr[-3000:]
    assert "registers" in run.stderr, "ptxas told what it made"
    spills = [line for line in run.stderr.splitlines() if "spill stores" in line and "0 bytes spill stores" not in line]
    assert spills == []
