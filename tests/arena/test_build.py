from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from dice_core.arena import landlock
from dice_core.arena.build import BuildFarm, BuildResult
from dice_core.arena.build_batch import Pending, Width, ninja_file
from dice_core.arena.build_run import GIB, clip, run_step
from dice_core.arena.build_steps import make_plan, unresolved_names
from dice_core.arena.build_tiers import TIERS, tiers_for
from dice_core.arena.capture import BuildRequest
from dice_core.arena.toolchain import (
    DEFAULT_PATH,
    filter_cflags,
    filter_ldflags,
    filter_nvcc_flags,
    find_toolchain,
    native_identity,
)
from dice_core.errors import UsageError

#: Takes a compiler many seconds.
ENDLESS = "".join(
    f"constexpr int c{i}() {{ int s = 0; for (int i = 0; i < 200000; ++i) s += i % 7; return s; }}"
    f" static_assert(c{i}() >= 0);"
    for i in range(200)
)
COPY = "torch::Tensor same(torch::Tensor x) { return x.clone(); }"


def request(source: str = COPY, *functions: str, **fields: object) -> BuildRequest:
    names = functions or ("same",)
    values = {"name": "t", "cpp_sources": (source,), "functions": tuple((name, name) for name in names), **fields}
    return BuildRequest(**values)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> BuildFarm:
    return BuildFarm(tmp_path_factory.mktemp("cache"), device="cpu", jobs=1)


def test_a_kernel_is_built_in_the_light_tier_once(farm: BuildFarm) -> None:
    first = farm.build(request())
    assert (first.status, first.tier, first.cached) == ("ok", "light", False)
    assert Path(first.artefact).is_file()
    assert first.module_name in first.artefact
    assert 0 < first.cpu_seconds < 60
    again = farm.build(request(name="another name"))
    assert again.cached
    assert (again.artefact, again.artefact_sha256) == (first.artefact, first.artefact_sha256)
    assert BuildResult.from_json(json.loads(json.dumps(first.to_json()))) == first


def test_what_the_light_header_lacks_goes_to_torchs_own_headers(farm: BuildFarm) -> None:
    # A binding by hand over torch's C shim: cheap to compile, and only torch's own include folder has the header.
    source = """
        #include <Python.h>
        #include <torch/csrc/inductor/aoti_torch/c/shim.h>
        static PyObject* number(PyObject*, PyObject*) { return PyLong_FromLong(aoti_torch_dtype_float32()); }
        static PyMethodDef methods[] = {{"number", number, METH_NOARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};
        static PyModuleDef module = {PyModuleDef_HEAD_INIT, "m", nullptr, -1, methods};
        #define JOIN_(a, b) a##b
        #define JOIN(a, b) JOIN_(a, b)
        PyMODINIT_FUNC JOIN(PyInit_, TORCH_EXTENSION_NAME)() { return PyModule_Create(&module); }
    """
    wanted = BuildRequest("t", cpp_sources=(source,), implicit_headers=False)
    result = farm.build(wanted)
    assert (result.status, result.tier) == ("ok", "full"), result.log
    assert farm.build(wanted).cached
    light_only = BuildFarm(farm.cache_dir, device="cpu", jobs=1, tiers=("light",))
    assert light_only.build(wanted).status == "infra_error"


def test_a_name_that_no_library_has_is_found_at_link_time(farm: BuildFarm) -> None:
    light_only = BuildFarm(farm.cache_dir, device="cpu", jobs=1, tiers=("light",))
    source = "void nowhere(float*); torch::Tensor f(torch::Tensor x) { nowhere(x.data_ptr<float>()); return x; }"
    result = light_only.build(request(source, "f"))
    assert result.status == "infra_error"
    assert "nowhere" in result.log
    assert unresolved_names("a: undefined reference to `PyLong_Type'\nb: undefined reference to `x(int)'") == ["x(int)"]


def test_only_the_full_tier_says_compile_error(tmp_path: Path) -> None:
    full_only = BuildFarm(tmp_path, device="cpu", jobs=1, tiers=("full",))
    broken = BuildRequest("t", cpp_sources=("int f( { return 1; }",), implicit_headers=False)
    result = full_only.build(broken)
    assert (result.status, result.tier, result.artefact) == ("compile_error", "full", "")
    assert "error:" in result.log
    assert full_only.build(broken).cached


def test_a_damaged_entry_is_built_again(tmp_path: Path, farm: BuildFarm) -> None:
    shutil.copytree(farm.cache_dir, tmp_path / "cache", symlinks=True)
    own = BuildFarm(tmp_path / "cache", device="cpu", jobs=1)
    first = own.build(request())
    for damage in (
        lambda path: path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:]),
        lambda path: path.unlink(),
        lambda path: (path.parent / "result.json").write_text("{"),
    ):
        damage(Path(first.artefact))
        again = own.build(request())
        assert (again.status, again.cached) == ("ok", False)
        assert Path(again.artefact).is_file()
        assert own.build(request()).cached


def test_two_farms_share_one_cache(tmp_path: Path) -> None:
    farms = [BuildFarm(tmp_path, device="cpu", jobs=1) for _ in range(2)]
    results: list[BuildResult] = []
    threads = [threading.Thread(target=lambda farm=farm: results.append(farm.build(request()))) for farm in farms]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [result.status for result in results] == ["ok", "ok"]
    assert results[0].artefact == results[1].artefact
    assert not [path for path in tmp_path.iterdir() if path.name.startswith((".work-", ".broken-"))]


def test_a_compiler_reads_only_its_toolchain_and_its_own_folder(tmp_path: Path) -> None:
    if landlock.abi() < 1:
        pytest.skip("this kernel has no Landlock")
    secret = tmp_path / "secret.txt"
    secret.write_text("int password = 271828;\n")
    farm = BuildFarm(tmp_path / "cache", device="cpu", jobs=1, tiers=("full",))
    hostile = [
        '#include "/etc/passwd"\n',
        f'#include "{secret}"\n',
        f'asm(".incbin \\"{secret}\\"");\n',
        f'asm(".incbin \\"/proc/{os.getpid()}/environ\\"");\n',
    ]
    wanted = [BuildRequest("t", cpp_sources=(source,), implicit_headers=False) for source in hostile]
    for one in farm.build_many(wanted).values():
        assert one.status == "compile_error", one.argv
        assert "ermission denied" in one.log or "can't open" in one.log or "file not found" in one.log, one.log
        assert "271828" not in one.log and "root:" not in one.log


def test_build_many_reports_each_distinct_request_once(farm: BuildFarm) -> None:
    seen: list[str] = []
    cuda = BuildRequest("c", cuda_sources=("__global__ void k() {}",), with_cuda=True)
    results = farm.build_many([request(), request(name="twin"), cuda], lambda result: seen.append(result.request_key))
    assert set(results) == set(seen) == {request().key, cuda.key}
    assert len(seen) == 2
    assert results[cuda.key].status == "infra_error"
    assert "CUDA" in results[cuda.key].log


def test_a_deadline_kills_the_whole_process_group(tmp_path: Path) -> None:
    start = time.monotonic()
    outcome = run_step(
        ["/bin/sh", "-c", "sleep 60 & echo started; sleep 60"],
        cwd=tmp_path, path=DEFAULT_PATH, deadline_s=0.5, memory_bytes=GIB, log_name="log",
    )  # fmt: skip
    assert outcome.timed_out
    assert time.monotonic() - start < 10
    assert "started" in outcome.log


def test_a_compiler_sees_a_bare_environment_and_its_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "x")
    outcome = run_step(
        ["/bin/sh", "-c", "env; ulimit -v; pwd"],
        cwd=tmp_path, path=DEFAULT_PATH, deadline_s=10, memory_bytes=GIB, log_name="log",
    )  # fmt: skip
    assert "SECRET_TOKEN" not in outcome.log
    assert str(GIB // 1024) in outcome.log
    assert outcome.log.strip().endswith(str(tmp_path))


def test_a_timeout_is_a_result_and_is_not_cached(tmp_path: Path) -> None:
    hurried = BuildFarm(tmp_path, device="cpu", jobs=1, deadline_s=1.0, tiers=("full",))
    wanted = BuildRequest(
        "t", cpp_sources=(ENDLESS,), extra_cflags=("-fconstexpr-ops-limit=1000000000",), implicit_headers=False
    )
    assert hurried.build(wanted).status == "timeout"
    assert not list(tmp_path.glob("??/*/result.json"))


def test_a_killed_batch_leaves_no_compiler_and_goes_on_where_it_was(tmp_path: Path) -> None:
    script = f"""
from pathlib import Path
from dice_core.arena import landlock
from dice_core.arena.build import BuildFarm
from dice_core.arena.capture import BuildRequest
quick = BuildRequest("q", cpp_sources=("int broken( {{",), implicit_headers=False)
slow = [BuildRequest("s", cpp_sources=({ENDLESS!r} + f"int n{{i}};",), implicit_headers=False,
                     extra_cflags=("-fconstexpr-ops-limit=1000000000",)) for i in range(2)]
farm = BuildFarm(Path({str(tmp_path)!r}), device="cpu", jobs=3, tiers=("full",))
farm.build_many([quick, *slow], on_done=lambda result: print(result.status, flush=True))
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as batch:
        assert batch.stdout is not None
        assert batch.stdout.readline() == "compile_error\n"
        assert working_in(tmp_path), "nothing was being compiled"
        batch.kill()
    deadline = time.monotonic() + 20
    while working_in(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert working_in(tmp_path) == []
    again = BuildFarm(tmp_path, device="cpu", jobs=1, tiers=("full",))
    assert again.build(BuildRequest("q", cpp_sources=("int broken( {",), implicit_headers=False)).cached


def working_in(folder: Path) -> list[str]:
    """Processes whose working folder is under `folder`."""
    found = []
    for link in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            if Path(os.readlink(link)).is_relative_to(folder):
                found.append((link.parent / "cmdline").read_text().replace("\0", " "))
    return found


def test_flags_that_reach_outside_are_dropped() -> None:
    kept, dropped = filter_cflags(
        ["-O3", "-march=native", "-std=c++17", "-DX=1", "-ffast-math", "-fopenmp", "-Wall", "-g",
         "-fplugin=/tmp/x.so", "@file", "-B/tmp", "-specs=x", "-wrapper", "-include", "/etc/passwd", "-Wl,-rpath,/x",
         "-fdump-tree-all=/tmp/x", "-I/etc", "-o", "/tmp/out"]
    )  # fmt: skip
    assert kept == ["-O3", "-march=native", "-std=c++17", "-DX=1", "-ffast-math", "-fopenmp", "-Wall", "-g"]
    assert "-fplugin=/tmp/x.so" in dropped and "@file" in dropped and "/etc/passwd" in dropped
    kept, dropped = filter_nvcc_flags(
        ["-O3", "--use_fast_math", "-lineinfo", "-Xptxas", "-O3", "-Xptxas=-v", "--expt-relaxed-constexpr",
         "-gencode", "arch=compute_80,code=sm_80", "-arch=sm_70", "-Xcompiler", "-fopenmp", "-Xcompiler", "-fplugin=x",
         "-ccbin", "/tmp/evil"]
    )  # fmt: skip
    assert kept == [
        "-O3", "--use_fast_math", "-lineinfo", "-Xptxas", "-O3", "-Xptxas=-v", "--expt-relaxed-constexpr",
        "-Xcompiler", "-fopenmp",
    ]  # fmt: skip
    assert "-arch=sm_70" in dropped and "/tmp/evil" in dropped
    assert filter_ldflags(["-lcublas", "-L/tmp", "-levil", "-lm"]) == (["-lcublas", "-lm"], ["-L/tmp", "-levil"])


def test_native_code_is_keyed_by_the_cpu() -> None:
    assert native_identity(["-O3"]) == ""
    assert len(native_identity(["-march=native"])) == 64


def test_a_cuda_plan_compiles_for_the_given_architecture_only() -> None:
    wanted = BuildRequest(
        "c", ("void f();",), ("__global__ void k() {}",), (("f", "f"),),
        extra_cuda_cflags=("-arch=sm_70",), with_cuda=True,
    )  # fmt: skip
    plan = make_plan(wanted, "full", module_name="m", toolchain=find_toolchain(), arch="sm_90", kit=None)
    nvcc = next(step.argv for step in plan.steps if "cuda.cu" in step.argv)
    assert "-gencode=arch=compute_90,code=sm_90" in nvcc
    assert "-D__CUDA_NO_HALF_OPERATORS__" in nvcc
    assert plan.dropped_flags == ("-arch=sm_70",)
    assert plan.files["cuda.cu"].startswith("#include <torch/types.h>\n#include <cuda.h>\n#include <cuda_runtime.h>\n")
    assert "torch::wrap_pybind_function(f)" in plan.files["main.cpp"]
    assert "-ltorch_cuda" in plan.steps[-1].argv


def test_own_headers_lie_beside_the_source(farm: BuildFarm) -> None:
    header = ("deep/twice.h", "#pragma once\ninline torch::Tensor twice(torch::Tensor x) { return x.clone(); }\n")
    result = farm.build(request('#include "deep/twice.h"', "twice", headers=(header,)))
    assert (result.status, result.tier) == ("ok", "light"), result.log


@pytest.mark.parametrize(
    ("source", "tiers"),
    [
        ("torch::Tensor f(torch::Tensor x) { return torch::zeros_like(x).contiguous(); }", "light aten full"),
        ("torch::Tensor f(torch::Tensor x) { return x; }  // torch::matmul(x, x)", "light aten full"),
        ("torch::Tensor f(torch::Tensor x) { return torch::matmul(x, x); }", "aten full"),
        ("torch::Tensor f(torch::Tensor x) { return x.softmax(-1); }", "aten full"),
        ("void f(std::vector<int>& v) { v.insert(v.end(), 3); v.pop_back(); }", "light aten full"),
        ("auto f() { return torch::ones({2}, torch::TensorOptions().requires_grad(true)); }", "light full"),
        ("struct M : torch::nn::Module {};", "full"),
        ("PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { py::class_<int>(m, \"I\"); }", "full"),
        ("#include <torch/csrc/autograd/variable.h>", "full"),
        ("#include <ATen/native/cuda/Loops.cuh>", "aten full"),
    ],
)
def test_a_scan_picks_the_tiers_that_may_do(source: str, tiers: str) -> None:
    assert tiers_for(request(source), TIERS, find_toolchain()) == tiers.split()
    assert tiers_for(request(source), ("light",), find_toolchain()) == ["light"]


def test_libraries_that_the_process_brings_need_not_be_linked() -> None:
    names = ("cublasLtMatmul", "cudnnCreate", "f", "Py_None")
    log = "".join(f"a.o: undefined reference to `{name}'\n" for name in names)
    assert unresolved_names(log) == ["f"]


def test_memory_bounds_how_many_builds_run_side_by_side() -> None:
    assert Width.of_machine(16, 128 * GIB) == Width(16, 16)
    assert Width.of_machine(16, 24 * GIB) == Width(16, 4)
    assert Width.of_machine(16, 3 * GIB) == Width(3, 1)
    assert Width.of_machine(4, 0) == Width(1, 1)


def test_a_ninja_file_has_a_chain_for_each_request_and_a_pool_for_heavy_tiers(tmp_path: Path) -> None:
    pending = [Pending(request(), ("light", "aten", "full")), Pending(request(name="u"), ("full",))]
    text = ninja_file(pending, tmp_path, Width(8, 2))
    assert "pool heavy\n  depth = 2\n" in text
    edges = [line for line in text.splitlines() if line.startswith("build ")]
    assert edges == [
        "build 0.light: attempt", "build 0.aten: attempt 0.light", "build 0.full: attempt 0.aten",
        "build 1.full: attempt",
    ]  # fmt: skip
    assert text.count("  pool = heavy") == 3


def test_a_batch_runs_without_ninja_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dice_core.arena.build_batch.shutil.which", lambda *_args, **_kwargs: None)
    farm = BuildFarm(tmp_path, device="cpu", jobs=2, tiers=("full",))
    broken = [BuildRequest("t", cpp_sources=(f"int f{i}( {{",), implicit_headers=False) for i in range(2)]
    assert {one.status for one in farm.build_many(broken).values()} == {"compile_error"}


def test_long_logs_keep_head_and_tail() -> None:
    text = "first error\n" + "x" * 200_000 + "\nlast line"
    short = clip(text, 1000)
    assert len(short.encode()) <= 1000
    assert short.startswith("first error") and short.endswith("last line")


def test_wrong_configuration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        BuildFarm(tmp_path, device="tpu")
    with pytest.raises(UsageError):
        BuildFarm(tmp_path, device="cpu", tiers=("fast",))
