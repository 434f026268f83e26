"""The `dice` command: help, exit codes, and what goes to stdout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dice_core.lake.catalog import Lake

Dice = Callable[..., subprocess.CompletedProcess[str]]

COMMANDS = [
    (), ("init",), ("doctor",), ("housekeep",), ("demo",), ("version",), ("run",), ("run", "nightly"),
    ("run", "curate"), ("run", "train"), ("run", "evaluate"), ("generate",), ("query",), ("report",), ("bundle",),
    ("bundle", "export"), ("bundle", "run"), ("bundle", "import"), ("datasets",), ("datasets", "ls"),
    ("datasets", "show"), ("datasets", "diff"), ("datasets", "export"), ("datasets", "card"), ("datasets", "explain"),
    ("datasets", "rebuild"), ("models",), ("models", "ls"), ("config",), ("config", "show"),
]


@pytest.fixture
def dice(tmp_path: Path) -> Dice:
    """Run the installed command in an empty folder with a home of its own."""

    def run(*argv: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("DICE_", "PREFECT_"))}
        return subprocess.run([sys.executable, "-m", "flows.cli", *argv], cwd=tmp_path, input=stdin, text=True,
                              capture_output=True, check=False,
                              env={**environment, "DICE_HOME": str(tmp_path / "home"), "COLUMNS": "200"})

    return run


@pytest.fixture
def lake_home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    with Lake.open(home) as lake:
        lake.commit({"problem": [{"problem_id": "prb_1", "source": "a|b"}, {"problem_id": "prb_2", "source": "c"}]},
                    message="two problems", run_id="run_test")
    return home


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help(dice: Dice, command: tuple[str, ...]) -> None:
    done = dice(*command, "--help")
    assert done.returncode == 0
    assert "Usage: " in done.stdout
    assert done.stderr == ""


def test_the_readme_and_the_command_agree(root: Path) -> None:
    """A command that the README shows exists."""
    readme = (root / "README.md").read_text(encoding="utf-8")
    shown = {tuple(line.split()[1:3]) for line in readme.splitlines() if line.strip().startswith("dice ")}
    assert shown
    for words in shown:
        assert words in COMMANDS or words[:1] in COMMANDS, words


def test_reading_before_there_is_a_lake(dice: Dice) -> None:
    done = dice("query", "select 1")
    assert done.returncode == 2
    assert "there is no lake here yet" in done.stderr
    assert done.stdout == ""


def test_query_prints_data_on_stdout_only(dice: Dice, lake_home: Path) -> None:
    done = dice("query", "select problem_id, source from problem order by 1", "--json")
    assert json.loads(done.stdout) == [{"problem_id": "prb_1", "source": "a|b"}, {"problem_id": "prb_2", "source": "c"}]
    assert done.stderr == ""
    assert "prb_1" in dice("query", "-", stdin="select problem_id from problem").stdout
    assert "| prb_1 | a\\|b |" in dice("query", "select * from problem", "--markdown").stdout


def test_query_writes_files(dice: Dice, lake_home: Path, tmp_path: Path) -> None:
    done = dice("query", "select count(*) as n from problem", "--out", "rows.parquet")
    assert (done.returncode, done.stdout) == (0, "")
    assert pq.ParquetFile(tmp_path / "rows.parquet").read(use_threads=False).to_pylist() == [{"n": 2}]
    assert dice("query", "select 1", "--out", "rows.xyz").returncode == 2


@pytest.mark.parametrize(
    "sql", ["drop table problem", "select * from nowhere", "copy problem to 'x'", "", "select 1; select 2"]
)
def test_bad_sql_is_a_usage_error(dice: Dice, lake_home: Path, sql: str) -> None:
    done = dice("query", sql)
    assert done.returncode == 2
    assert done.stderr.startswith("error: SQL")


def test_empty_listings(dice: Dice, lake_home: Path) -> None:
    assert json.loads(dice("datasets", "--json").stdout) == []
    assert dice("datasets", "show", "dsv_none").returncode == 2
    assert json.loads(dice("models", "--json").stdout) == []


def test_report_of_an_empty_lake(dice: Dice, lake_home: Path) -> None:
    done = dice("report", "--json")
    assert done.returncode == 0, done.stderr
    assert Path(json.loads(done.stdout)["html"]).is_file()


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("run", "evaluate"), "either --kernels FOLDER or --model"),
        (("run", "evaluate", "--kernels", "absent"), "no such folder"),
        (("run", "evaluate", "--kernels", ".", "--size", "9/9:N=1"), "not among the selected"),
        (("run", "evaluate", "--kernels", ".", "--problems", "7"), "names no problem"),
        (("run", "curate", "absent.parquet"), "absent.parquet: no such file"),
        (("run", "curate", "cuda_l9=rows.jsonl"), "'cuda_l9' is no declared data set (concur, cuda_l1"),
        (("run", "curate", "hf://datasets/alone"), "expected hf://datasets/owner/name"),
        (("run", "curate", ".", "--dataset", "no"), "no data set 'no' is declared"),
        (("run", "nightly", ".", "--join", "absent.parquet"), "absent.parquet: no such file (--join)"),
        (("run", "train", "--recipe", "huge"), "huge"),
        (("bundle", "export", "b"), "one of --kernels FOLDER, --pairs FILE, --claims FILE"),
        (("bundle", "import", "."), "not a bundle"),
        (("--config", "absent.toml", "config", "show"), "no such configuration file"),
    ],
)
def test_wrong_requests_are_usage_errors(dice: Dice, argv: tuple[str, ...], says: str) -> None:
    done = dice(*argv)
    assert done.returncode == 2, done.stderr
    assert says in " ".join(done.stderr.split())
    assert done.stdout == ""


def test_dry_run_changes_nothing(dice: Dice, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("{}\n", encoding="utf-8")
    for argv in (("run", "curate", "rows.jsonl"), ("run", "nightly"), ("run", "train")):
        done = dice(*argv, "--dry-run")
        assert done.returncode == 0, done.stderr
        assert "dry run" in done.stdout
    assert not (tmp_path / "home").exists()


def test_a_bad_recipe_of_the_mixture_is_told_before_anything_starts(dice: Dice, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("{}\n", encoding="utf-8")
    (tmp_path / "mine.toml").write_text("validation_share = 2\n", encoding="utf-8")
    done = dice("run", "curate", "rows.jsonl", "--mixture", "mine.toml")
    assert done.returncode == 3
    assert "mine.toml: field validation_share must be a number from 0 to 0.5, got 2" in done.stderr
    assert dice("run", "curate", "rows.jsonl", "--mixture", "absent.toml").returncode == 2
    assert not (tmp_path / "home").exists()


def test_config_says_where_values_come_from(dice: Dice, tmp_path: Path) -> None:
    (tmp_path / "dice.toml").write_text("cpu_threads = 2\n", encoding="utf-8")
    rows = {row["setting"]: row for row in json.loads(dice("config", "show", "--origin", "--json").stdout)}
    assert rows["cpu_threads"] == {"setting": "cpu_threads", "value": 2, "origin": "dice.toml"}
    assert rows["home"]["origin"] == "DICE_HOME"


def test_a_second_run_in_one_home_is_busy(dice: Dice, tmp_path: Path) -> None:
    from dice_core.files import file_lock

    (tmp_path / "k").mkdir()
    (tmp_path / "k" / "level_1_problem_1_sample_0_kernel.py").write_text("", encoding="utf-8")
    with file_lock(tmp_path / "home" / "run.lock"):
        done = dice("run", "evaluate", "--kernels", "k")
    assert done.returncode == 6
    assert "is already being done by process" in done.stderr
