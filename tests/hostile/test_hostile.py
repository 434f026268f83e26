"""Every hostile candidate is contained and gets the verdict that its file names; `README.md` lists them all.

Lines of a candidate's docstring: `Expected` (verdicts), `Defence`, and where they apply `Row` (of the catalogue of
known tricks), `Problem` (a name below), `Honesty` (classes), `Gain` (`none`: must not look faster; `open`: still does),
`Open` (why it is not stopped yet).
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from arena_helpers import TANH, run
from honest_kernels import problem

from dice_core.arena import sandbox
from dice_core.lake.attempts import AttemptFile

CANDIDATES = sorted((Path(__file__).parent / "candidates").glob("*.py"))
PROBLEMS = {
    "": TANH,
    "short": problem("return torch.tanh(x)", "[torch.randn(16, 33)]"),
    "weights": problem("return x + torch.tanh(self.weight)", "[torch.randn(16, 33)]",
                       "self.weight = nn.Parameter(torch.randn(33) * 3.0)"),
    "rows": problem("return x.sum(1)", "[torch.rand(8, 4096)]"),
    "softmax": problem("return torch.softmax(x, 1)", "[torch.randn(256, 33)]"),
    "tiny": problem("return torch.tanh(x) * 1e-6", "[torch.randn(16, 33)]"),
    "offset": problem("return torch.tanh(x) + 1000.0", "[torch.randn(16, 33)]"),
    "dead": problem("y = torch.tanh(x)\ntorch.softmax(x, 1)\nreturn y", "[torch.randn(16, 33)]"),
    "dropout": problem("return F.dropout(x, 0.5)", "[torch.randn(16, 33)]"),
    "relu": problem("return torch.relu(x)", "[torch.rand(16, 33)]"),
    "row sums": problem("return x.sum(1)", "[torch.rand(256, 1024).abs()]"),
    "square": problem("return x * x", "[torch.randn(64, 1024)]"),
    "branch": problem("return x * torch.special.bessel_j0(torch.relu(-x))", "[torch.rand(64, 1024)]"),
    "pair": problem("return torch.tanh(x), x + 1", "[torch.randn(16, 33)]"),
    "sign": problem("return torch.sign(x)", "[torch.randn(16, 33)]"),
    "positive": problem("return x > 0", "[torch.randn(16, 33)]"),
    "sum": problem("return x.sum()", "[torch.rand(16, 33)]"),
    "complex": problem("return x + x", "[torch.randn(8, 6, dtype=torch.complex64)]"),
}
#: Rows of the catalogue that can be shown without a GPU, wholly or in part.
KNOWN = set(re.findall(r"\S+", """
STR-03 STR-06 STR-07 STR-08 STR-09 LAZ-03 LAZ-04 CAC-01 CAC-05 CAC-07 CAC-08 CAC-10 MEM-04 MEM-05 MEM-06 MEM-07 MEM-09
MUT-02 PAT-02 PAT-03 PAT-04 PAT-05 PAT-08 PAT-09 PAT-10 PAT-12 PAT-18 PAT-19 PAT-21 SNF-01 SNF-02 SNF-03 SNF-08 PRE-04
PRE-05 PRE-06 DEG-02 DEG-04 DEG-06 DEG-07 DEG-08 DEG-10 DEC-01 DEC-04 DEC-08 DEC-11 DEC-12 DEC-13 ENV-04 ENV-07 ENV-08
ENV-09 FNE-04 FNE-06 FNE-07
"""))
#: A candidate that does the reference's work may seem this much faster, on a busy machine.
NO_GAIN = 1.3
#: Isolation level from which a candidate's expected verdict holds, where it is not the lowest.
NEEDS = {"writes_outside": "landlock", "runs_a_program": "landlock", "uses_the_network": "netns",
         "loads_a_library_first": "landlock", "writes_own_memory": "landlock", "forked_helper": "seccomp",
         "disk_replay": "seccomp", "traces_others": "seccomp", "filters_system_calls": "seccomp",
         "installs_a_package": "seccomp"}


def told(path: Path, name: str) -> str:
    """A line of the candidate's docstring: Expected, Defence, and where they apply Row, Problem, Gain, Honesty."""
    found = re.search(rf"^{name}: (.+)$", path.read_text(), re.M)
    return found[1] if found else ""


@pytest.fixture(scope="module")
def level() -> str:
    return sandbox.isolation_level()


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, AttemptFile]:
    """All candidates, evaluated in one run; a canary secret is in the judge's own environment."""
    folder = tmp_path_factory.mktemp("hostile")
    os.environ["DICE_CANARY"] = "secret"
    try:
        files = run(folder, *((PROBLEMS[told(path, "Problem")], path.read_text()) for path in CANDIDATES),
                    load_timeout_s=3.0, call_timeout_s=2.0, check_timeout_s=5.0,
                    memory_bytes=1 << 30)
    finally:
        del os.environ["DICE_CANARY"]
    left = [
        link for link in Path("/proc").glob("[0-9]*/cwd")
        if str(folder) in (os.readlink(link) if os.access(link, os.R_OK) else "")
    ]
    assert left == [], "candidates left processes behind"
    assert list((folder / "scratch").iterdir()) == [], "candidates left files behind"
    return {path.stem: one for path, one in zip(CANDIDATES, files, strict=True)}


def mark_open(path: Path, request: pytest.FixtureRequest) -> None:
    """A known hole fails and is shown as such; remove the line `Open` with it. Not strict: noise may hide one."""
    if told(path, "Open"):
        request.applymarker(pytest.mark.xfail(reason=told(path, "Open"), strict=False))


@pytest.mark.parametrize("path", CANDIDATES, ids=lambda path: path.stem)
def test_verdict(path: Path, outcomes: dict[str, AttemptFile], level: str, request: pytest.FixtureRequest) -> None:
    mark_open(path, request)
    needed = NEEDS.get(path.stem, "rlimits")
    if not sandbox.at_least(level, needed):
        pytest.skip(f"isolation here is only {level}, this holds at {needed}")
    attempt = outcomes[path.stem].attempt
    wanted = told(path, "Expected").split()
    if "CORRECT" in wanted:  # on a busy machine the clocks may disagree; that it was contained is what counts here
        wanted.append("TIMING_DISAGREE")
    assert attempt.verdict.value in wanted, attempt.evidence
    if 'RuntimeError("contained")' in path.read_text():
        assert "RuntimeError: contained" in attempt.evidence["error"]
    if told(path, "Honesty"):
        assert attempt.honesty.value in told(path, "Honesty").split(), attempt.evidence


@pytest.mark.parametrize("path", [path for path in CANDIDATES if told(path, "Gain")], ids=lambda path: path.stem)
def test_no_gain(path: Path, outcomes: dict[str, AttemptFile], request: pytest.FixtureRequest) -> None:
    if told(path, "Gain") == "open":  # a known hole: remove the mark with it
        request.applymarker(pytest.mark.xfail(reason="the clock can be cheated this way", strict=True))
    mark_open(path, request)
    attempt = outcomes[path.stem].attempt
    assert attempt.speedup_low is None or attempt.speedup_low < NO_GAIN


def table() -> str:
    """The table of `README.md`."""
    lines = ["| Candidate | Row | Defence | Expected |", "|---|---|---|---|"]
    for path in CANDIDATES:
        also = [f"class {told(path, 'Honesty').replace(' ', ' or ')}"] if told(path, "Honesty") else []
        also += [{"none": "no gain", "open": "gains: open"}[told(path, "Gain")]] if told(path, "Gain") else []
        also += [f"**open**: {told(path, 'Open')}"] if told(path, "Open") else []
        expected = ", ".join([told(path, "Expected").replace(" ", " or "), *also])
        lines.append(f"| {path.stem} | {told(path, 'Row')} | {told(path, 'Defence')} | {expected} |")
    return "\n".join(lines) + "\n"


def test_the_readme_lists_them_all() -> None:
    assert table() in (Path(__file__).parent / "README.md").read_text("utf-8")
    for path in CANDIDATES:
        assert told(path, "Expected") and told(path, "Defence"), path


def test_every_known_trick_that_a_processor_can_show_has_a_candidate() -> None:
    rows = {row for path in CANDIDATES for row in told(path, "Row").split()}
    elsewhere = set(re.findall(r"^- ([A-Z]{3}-\d\d)", (Path(__file__).parent / "README.md").read_text("utf-8"), re.M))
    assert elsewhere.isdisjoint(rows)
    assert rows | elsewhere == KNOWN


def test_exit_is_told_with_its_stage(outcomes: dict[str, AttemptFile]) -> None:
    for name in ("exits_with_os_exit", "exits_in_c"):
        assert "process exited (code 0) during trial 0" in outcomes[name].attempt.evidence["error"]


def test_only_correct_candidates_have_a_speedup(outcomes: dict[str, AttemptFile]) -> None:
    for name, one in outcomes.items():
        assert (one.attempt.speedup is not None) == (one.attempt.verdict.value == "CORRECT"), name


def test_a_stopped_clock_gains_nothing(outcomes: dict[str, AttemptFile]) -> None:
    attempt = outcomes["patches_clock"].attempt
    assert attempt.speedup is None or attempt.speedup < 0.6  # it does the work three times


def test_error_text_is_kept(outcomes: dict[str, AttemptFile]) -> None:
    assert "no kernel image" in outcomes["raises"].attempt.evidence["error"]
