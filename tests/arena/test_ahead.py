"""Children that are started ahead: taken where they fit, stopped before anything is timed, never left over."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from arena_helpers import TANH, candidate, run

from dice_core.arena import sandbox
from dice_core.arena.ahead import Ahead
from dice_core.arena.children import Zygote
from dice_core.arena.measure import Measurement
from dice_core.records import Verdict

LIMITS = sandbox.Limits("rlimits", None, 20, 1 << 20, 64, 200, sandbox.WORKER_UID)
OTHER = sandbox.Limits("rlimits", None, 20, 1 << 20, 65, 200, sandbox.WORKER_UID)


@pytest.fixture(scope="module")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    started = Zygote(tmp_path_factory.mktemp("zygote"), {"PATH": os.defpath, "OMP_NUM_THREADS": "1"})
    yield started
    started.close()


@pytest.fixture
def nursery(zygote: Zygote) -> Iterator[Ahead]:
    ahead = Ahead(zygote, "cpu", 20.0)
    yield ahead
    ahead.close()
    assert waiting(ahead) == []


def waiting(ahead: Ahead) -> list[int]:
    return [spare.child.pid for spare in ahead._spares]


def state(pid: int) -> str:
    """As in /proc: T for stopped; empty when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def test_what_was_expected_is_taken_and_anything_else_is_made_new(nursery: Ahead) -> None:
    nursery.expect([("worker", LIMITS), ("referee", LIMITS)])
    worker, referee = waiting(nursery)
    other = nursery.spawn("worker", OTHER)
    assert other.pid not in (worker, referee)
    taken = [nursery.spawn("referee", LIMITS), nursery.spawn("worker", LIMITS)]
    assert [child.pid for child in taken] == [referee, worker]
    again = nursery.spawn("worker", LIMITS)
    assert again.pid != worker
    assert again.ask("device", {"device": "cpu"}, timeout_s=20.0).kind == "done"
    for child in (other, again, *taken):
        child.end()


def test_settled_children_are_stopped(nursery: Ahead) -> None:
    nursery.expect([("worker", LIMITS), ("worker", LIMITS)])
    nursery.settle()
    pids = waiting(nursery)
    assert len(pids) == 2
    deadline = time.monotonic() + 5.0
    while {state(pid) for pid in pids} != {"T"}:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_one_that_died_is_replaced(nursery: Ahead) -> None:
    for settled in (False, True):
        nursery.expect([("worker", LIMITS)])
        if settled:
            nursery.settle()
        (pid,) = waiting(nursery)
        os.kill(pid, signal.SIGKILL)
        child = nursery.spawn("worker", LIMITS)
        assert child.pid != pid
        assert child.ask("device", {"device": "cpu"}, timeout_s=20.0).kind == "done"
        child.end()


def test_a_device_that_does_not_start_is_not_waited_for(zygote: Zygote) -> None:
    ahead = Ahead(zygote, "no-such-device", 20.0)
    ahead.expect([("referee", LIMITS), ("worker", LIMITS)])
    pids = waiting(ahead)
    ahead.settle()
    assert (waiting(ahead), [state(pid) for pid in pids]) == ([], ["", ""])


def test_what_is_no_longer_expected_is_ended(nursery: Ahead) -> None:
    nursery.expect([("worker", LIMITS), ("worker", OTHER)])
    first, second = waiting(nursery)
    nursery.expect([("worker", OTHER), ("worker", OTHER)])
    assert waiting(nursery)[0] == second
    assert len(waiting(nursery)) == 2
    assert state(first) == ""


def test_the_next_candidates_processes_stand_still_while_one_is_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []
    spares: list[Any] = []
    settle, measure = Ahead.settle, Measurement.run
    nurseries: list[Ahead] = []

    def settled(self: Ahead) -> None:
        settle(self)
        nurseries.append(self)

    def measured(self: Measurement) -> object:
        time.sleep(0.05)
        spares.extend(nurseries[-1]._spares)
        seen.append([state(pid) for pid in waiting(nurseries[-1])])
        return measure(self)

    monkeypatch.setattr(Ahead, "settle", settled)
    monkeypatch.setattr(Measurement, "run", measured)
    files = run(tmp_path, (TANH, candidate("return torch.tanh(x)")), (TANH + "# 2\n", candidate("return x.tanh()")))
    assert [one.attempt.verdict for one in files] == [Verdict.CORRECT] * 2
    assert seen[0] == ["T", "T"]  # the next candidate's referee and worker
    assert len({spare.limits.uid for spare in spares} | {sandbox.WORKER_UID}) == 3  # of three different users
    assert seen[-1] == []
