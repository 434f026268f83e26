from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dice_core.bench.problems import load_suite, parse_sizes, select, with_sizes
from dice_core.errors import SchemaError, SourceError, UsageError

CODE = """import torch
N = 1024
M = (2 *
     N)

class Model(torch.nn.Module):
    def forward(self, x):
        return x + N

def get_inputs():
    return [torch.rand(N, M)]
"""


def row(level: int, number: int, code: str = CODE) -> dict[str, object]:
    return {"level": level, "problem_id": number, "name": f"{number}_Thing", "code": code}


def write_jsonl(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    return path


def test_the_three_forms_hold_the_same_problems(tmp_path: Path) -> None:
    rows = [row(2, 3), row(1, 7)]
    jsonl = write_jsonl(tmp_path / "s.jsonl", rows)
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "s.parquet")
    for r in rows:
        folder = tmp_path / "s" / f"level{r['level']}"
        folder.mkdir(parents=True)
        (folder / f"{r['problem_id']}_Thing.py").write_text(CODE, encoding="utf-8")
    read = [load_suite(p, "s") for p in (jsonl, tmp_path / "s.parquet", tmp_path / "s")]
    assert read[0] == read[1] == read[2]
    assert [(p.level, p.number) for p in read[0]] == [(1, 7), (2, 3)]


def test_kernelbench_has_270_problems(real_data: Path) -> None:
    problems = load_suite(real_data / "kernelbench" / "kernelbench_v0_2.parquet", "kernelbench")
    counts = {level: sum(p.level == level for p in problems) for level in (1, 2, 3, 4)}
    assert counts == {1: 100, 2: 100, 3: 50, 4: 20}


@pytest.mark.parametrize(
    ("content", "error", "says"),
    [
        (b"", SourceError, "no problems"),
        (b'{"level": 1}\n', SchemaError, "missing columns problem_id, name, code"),
        (b'{"level": 1,\n', SourceError, "line 1, column"),
        (b"\xff\xfe\n", SourceError, "not UTF-8"),
        (b"PAR1 cut off", SourceError, "not a readable Parquet"),
        (json.dumps(row(1, 1, "x = 1")).encode(), SourceError, "row 0 (1_Thing): code has no `class Model`"),
        (json.dumps({**row(1, 1), "level": "one"}).encode(), SourceError, "row 0: level must be int"),
        ((json.dumps(row(1, 1)) + "\n").encode() * 2, SourceError, "problem_id 1 twice"),
    ],
)
def test_bad_suites_name_file_row_and_field(
    tmp_path: Path, content: bytes, error: type[Exception], says: str
) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(content)
    with pytest.raises(error) as caught:
        load_suite(path)
    assert says in str(caught.value)
    assert str(path) in str(caught.value)


def test_sizes_replace_module_constants_only(tmp_path: Path) -> None:
    [problem] = load_suite(write_jsonl(tmp_path / "s.jsonl", [row(1, 1)]))
    small = with_sizes(problem, {"N": 8, "M": 4})
    assert "N = 8\nM = 4\n" in small.source
    assert "return x + N" in small.source
    assert small.overrides == {"N": 8, "M": 4}
    assert small.problem_id != problem.problem_id
    with pytest.raises(UsageError, match="no module-level constant K; it has: N, M"):
        with_sizes(problem, {"K": 1})


def test_size_options() -> None:
    assert parse_sizes(["1/19:dim=4096,batch_size=64", "1/2:N=8"]) == {
        (1, 19): {"dim": 4096, "batch_size": 64},
        (1, 2): {"N": 8},
    }
    with pytest.raises(UsageError, match="1/x"):
        parse_sizes(["1/x:N=8"])


def test_selection(tmp_path: Path) -> None:
    problems = load_suite(write_jsonl(tmp_path / "s.jsonl", [row(1, n) for n in (1, 2, 5)] + [row(2, 1)]))
    assert [(p.level, p.number) for p in select(problems, "1/2-5, 2")] == [(1, 2), (1, 5), (2, 1)]
    with pytest.raises(UsageError, match="names no problem"):
        select(problems, "3")
    with pytest.raises(UsageError, match="level/number"):
        select(problems, "a")
