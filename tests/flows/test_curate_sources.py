"""`dice run curate` on sources of several kinds, in a process of its own."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hub_server import serve

from dice_core.lake.catalog import Lake
from dice_core.lake.checks import run_checks


def curate(folder: Path, endpoint: str, *argv: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("DICE_", "PREFECT_", "HF_"))}
    return subprocess.run(
        [sys.executable, "-m", "flows.cli", "run", "curate", *argv, "--no-augment", "--evidence", "claimed",
         "--device", "cpu", "--json"],
        cwd=folder, text=True, capture_output=True, check=False,
        env={**environment, "DICE_HOME": str(folder / "home"), "HF_ENDPOINT": endpoint},
    )


def l1_rows(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    return [{"level_id": 1, "task_id": number, "ref_code": row["pytorch_code"], "custom_code": row["generated_code"],
             "score_default": row["speedup_over_eager"], "score_torch_compile_default": None}
            for number, row in enumerate(rows)]


@pytest.mark.slow
def test_a_hub_place_a_compressed_file_and_a_folder_become_one_version(root: Path, tmp_path: Path) -> None:
    text = (root / "datasets/samples/concur_cuda.jsonl").read_text("utf-8")
    rows = [json.loads(line) for line in text.splitlines()[:12]]
    (tmp_path / "l1.gz").write_bytes(gzip.compress(json.dumps(l1_rows(rows[4:8])).encode()))
    (tmp_path / "nights" / "dt=2026-11-30").mkdir(parents=True)
    (tmp_path / "nights" / "dt=2026-11-30" / "rows.json").write_text(json.dumps(rows[8:]), "utf-8")
    task = {"idx": 0, "level": "1", "pytorch_code": rows[0]["pytorch_code"], "cuda_code": "", "raw_answer": ""}
    (tmp_path / "tasks.json").write_text(json.dumps([task]), "utf-8")
    with serve() as hub:
        commit = hub.publish("owner/k", {"data.jsonl": "\n".join(map(json.dumps, rows[:4])).encode()})
        argv = ("concur=hf://datasets/owner/k", "cuda_l1=l1.gz", "nights", "tasks.json")
        done = curate(tmp_path, hub.url, *argv)
        assert done.returncode == 0, done.stderr
        outcome = json.loads(done.stdout)
        assert (outcome["rows_in"], outcome["left_out_on_purpose"], outcome["quarantined"]) == (13, 1, 0)
        with Lake.open(tmp_path / "home", read_only=True) as lake:
            files = {row["uri"]: row for row in lake.query("select * from source_file").to_pylist()}
            (version,) = lake.query("select path, n_records from dataset_version").to_pylist()
            assert [check.name for check in run_checks(lake) if not check.passed] == []
        assert set(files) == {"hf://datasets/owner/k/data.jsonl", "l1.gz", "nights/dt=2026-11-30/rows.json",
                              "tasks.json"}
        assert files["hf://datasets/owner/k/data.jsonl"]["revision"] == commit
        assert files["l1.gz"]["licence"] == "MIT"
        card = (Path(version["path"]) / "README.md").read_text("utf-8")
        assert commit in card and "nights/dt=2026-11-30/rows.json" in card and str(tmp_path) not in card

        again = curate(tmp_path, hub.url, *argv)
        assert again.returncode == 0 and json.loads(again.stdout)["worked"] is False
        assert any("stays at commit" in note for note in json.loads(again.stdout)["notes"])

        for row in rows[8:]:
            row["reasoning"] = row.pop("generated_think")
        (tmp_path / "drifted.json").write_text(json.dumps(rows[8:]), "utf-8")
        drifted = curate(tmp_path, hub.url, "drifted.json")
        assert drifted.returncode == 3 and drifted.stdout == ""
        assert "- generated_think: text" in drifted.stderr and "--accept-columns" in drifted.stderr
