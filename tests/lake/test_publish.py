"""Publishing attempt files: exactly once, whatever happens."""

from __future__ import annotations

import dataclasses
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from dice_core.errors import BusyError
from dice_core.files import file_lock
from dice_core.lake.attempts import write_attempt
from dice_core.lake.catalog import Lake
from dice_core.lake.publish import publish
from dice_core.records import Honesty, Verdict


@pytest.fixture
def made() -> ModuleType:
    """The generator of synthetic attempts."""
    return sys.modules["synthetic"]


def counts(lake: Lake) -> dict[str, int]:
    (row,) = lake.query(
        "SELECT (SELECT count(attempt_id) FROM attempt) AS attempts, "
        "(SELECT count(DISTINCT attempt_id) FROM attempt) AS different, "
        "(SELECT count(host_us) FROM timing_sample) AS samples, "
        "(SELECT count(DISTINCT (attempt_id, sample)) FROM timing_sample) AS different_samples, "
        "(SELECT count(build_key) FROM build) AS builds, (SELECT count(source) FROM kernel) AS kernels, "
        "(SELECT count(source) FROM problem) AS problems, (SELECT count(facts_json) FROM environment) AS environments"
    ).to_pylist()
    return dict(row)


def test_published_rows_are_the_files_contents(home: Path, made: ModuleType) -> None:
    new = home / "attempts" / "new"
    (one,) = made.write_attempts(new, 1, labels={"level": "2"})
    with Lake.open(home) as lake:
        report = publish(lake, new, run_id="r")
        (attempt,) = lake.query("SELECT * FROM attempt").to_pylist()
        samples = lake.query("SELECT * FROM timing_sample ORDER BY sample").to_pylist()
        (kernel,) = lake.query("SELECT * FROM kernel").to_pylist()
    assert (report.published, report.found, report.rows["timing_sample"]) == (1, 1, len(one.samples))
    assert attempt["speedup"] == one.attempt.speedup
    assert attempt["verdict"] == "CORRECT"
    assert attempt["labels_json"] == '{"level": "2"}'
    assert kernel["source"] == one.kernel.source
    assert [row.pop("sample") for row in samples] == list(range(len(one.samples)))
    assert samples == [{"attempt_id": one.attempt.attempt_id, **dataclasses.asdict(s)} for s in one.samples]
    assert [path.parent.name for path in (home / "attempts" / "published").rglob("*.parquet")] == ["2026-12"]
    assert list(new.iterdir()) == []


def test_publishing_again_adds_nothing(home: Path, made: ModuleType) -> None:
    new = home / "attempts" / "new"
    made.write_attempts(new, 6, repetitions=1)
    with Lake.open(home) as lake:
        publish(lake, new, run_id="r")
        before = counts(lake)
        assert publish(lake, new, run_id="r").found == 0
        made.write_attempts(new, 8, repetitions=1)  # six of them are the same files again
        report = publish(lake, new, run_id="r")
        after = counts(lake)
    assert (report.published, report.already, report.found) == (2, 6, 8)
    assert (before["attempts"], after["attempts"], after["different"]) == (6, 8, 8)
    assert after["samples"] == after["different_samples"] == 8 * 50
    assert list(new.iterdir()) == []


def test_a_missing_folder_is_nothing_to_publish(home: Path) -> None:
    with Lake.open(home) as lake:
        assert publish(lake, home / "attempts" / "new", run_id="r").found == 0


def test_infra_attempts_are_published_too(home: Path, made: ModuleType) -> None:
    new = home / "attempts" / "new"
    write_attempt(new, made.make_attempt(1, verdict=Verdict.INFRA_ERROR, honesty=Honesty.UNKNOWN))
    with Lake.open(home) as lake:
        assert publish(lake, new, run_id="r").published == 1
        assert lake.query("SELECT is_infra FROM fct_attempt").to_pylist() == [{"is_infra": True}]


def test_unbelievable_files_are_set_aside_and_block_nobody(home: Path, made: ModuleType) -> None:
    new = home / "attempts" / "new"
    paths = [write_attempt(new, made.make_attempt(number, repetitions=1)) for number in range(6)]
    flipped = bytearray(paths[0].read_bytes())
    flipped[len(flipped) // 2] ^= 1
    paths[0].write_bytes(flipped)
    paths[1].write_bytes(paths[1].read_bytes()[:100])
    paths[2].rename(new / f"att_{'0' * 32}.{paths[2].name.split('.')[1]}.parquet")
    (new / "att_garbage.0000000000000000.parquet").write_bytes(b"not parquet")
    with Lake.open(home) as lake:
        report = publish(lake, new, run_id="r")
        assert counts(lake)["attempts"] == 3
    rejected = home / "attempts" / "rejected"
    assert (report.published, report.rejected, report.found) == (3, 4, 7)
    reasons = {path.name: path.read_text() for path in rejected.glob("*.reason.txt")}
    assert len(reasons) == 4
    assert "does not fit" in reasons[f"{paths[0].name}.reason.txt"]
    assert (rejected / paths[0].name).read_bytes() == flipped
    assert list(new.iterdir()) == []


def test_a_second_rejected_file_of_the_same_name_loses_neither(home: Path, made: ModuleType) -> None:
    new = home / "attempts" / "new"
    name = "att_x.0000000000000000.parquet"
    new.mkdir(parents=True)
    with Lake.open(home) as lake:
        for content in (b"one", b"two", b"two"):
            (new / name).write_bytes(content)
            publish(lake, new, run_id="r")
    kept = {path.read_bytes() for path in (home / "attempts" / "rejected").iterdir() if "reason" not in path.name}
    assert kept == {b"one", b"two"}


def test_another_file_of_a_known_attempt_never_mixes_in(home: Path, made: ModuleType) -> None:
    new = home / "attempts" / "new"
    one = made.make_attempt(1, repetitions=1)
    first = write_attempt(new, one)
    for number in range(100):  # file names carry hashes: look for a longer file that is read after the first one
        longer = dataclasses.replace(one, samples=one.samples + one.samples, labels={"n": str(number)})
        second = write_attempt(new, longer)
        if second.name > first.name:
            break
        second.unlink()
    with Lake.open(home) as lake:
        report = publish(lake, new, run_id="r")
        found = counts(lake)
        (stored,) = lake.query("SELECT file_sha256 FROM attempt").to_pylist()
    published = list((home / "attempts" / "published").rglob("*.parquet"))
    duplicate = list((home / "attempts" / "duplicate").glob("*.parquet"))
    assert (report.published, report.duplicates, report.found) == (1, 1, 2)
    assert found["samples"] == len(one.samples)
    assert [path.name for path in published] == [first.name]
    assert stored["file_sha256"].startswith(first.name.split(".")[1])
    assert [path.name for path in duplicate] == [second.name]


def test_a_busy_publisher_is_an_error_or_a_wait(home: Path) -> None:
    (home / "attempts" / "new").mkdir(parents=True)
    with Lake.open(home) as lake, file_lock(lake.lake_dir / "publish.lock"), pytest.raises(BusyError):
        publish(lake, home / "attempts" / "new", run_id="r", wait=False)


_PUBLISHER = """
import sys
from pathlib import Path
from dice_core.lake import publish as module
from dice_core.lake.catalog import Lake
module.BATCH_FILES = 7
with Lake.open(Path(sys.argv[1])) as lake:
    print("go", flush=True)
    module.publish(lake, Path(sys.argv[1]) / "attempts" / "new", run_id="killed")
"""


def test_kill_9_at_any_moment_then_again_gives_the_same_lake(home: Path, made: ModuleType) -> None:
    new = home / "attempts" / "new"
    made.write_attempts(new, 60, repetitions=1)
    interrupted = 0
    for delay in (0.0, 0.25, 0.5):
        process = subprocess.Popen([sys.executable, "-c", _PUBLISHER, str(home)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        interrupted += process.wait() == -signal.SIGKILL
        process.stdout.close()
    with Lake.open(home) as lake:
        publish(lake, new, run_id="last")
        found = counts(lake)
        paths = {row["path"] for row in lake.query("SELECT path FROM lake_file").to_pylist()}
        used = {row["filename"] for row in lake.query("SELECT DISTINCT filename FROM timing_sample").to_pylist()}
        relative = {Path(name).relative_to(lake.data_dir).as_posix() for name in used}
    assert interrupted > 0
    assert found == {"attempts": 60, "different": 60, "samples": 60 * 50, "different_samples": 60 * 50, "builds": 60,
                     "kernels": 60, "problems": 60, "environments": 1}
    assert relative <= paths
    assert len(list((home / "attempts" / "published").rglob("*.parquet"))) == 60
    assert list(new.iterdir()) == []
