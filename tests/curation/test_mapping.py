from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dice_core.curation.concur import RawRow, TaskRow
from dice_core.curation.contracts import check_rows
from dice_core.curation.ingest import ingest, out_on_purpose
from dice_core.curation.mapping import BUNDLED, Dataset, dataset_named, declared, read_dataset
from dice_core.curation.sources import SourceSpec, read_source
from dice_core.errors import SchemaError, SourceError, UsageError
from dice_core.records import QuarantineRow

MakeRow = Callable[..., dict[str, Any]]

NEW = """
name = "kernels_of_ours"
licence = "CC0-1.0"

[[layout]]
empty = ["None", "-"]
keep = { passed = true, gpu = ["H100", "H200"] }
speedup = { baseline = "eager_ms", candidate = "kernel_ms" }
constants = { generated_think = "written by hand" }

[layout.columns]
uuid = { template = "ours/{batch}-{number}" }
problem_name = "title"
pytorch_code = { fence_of = "question", holds = "class Model" }
generated_code = "answer"
"""


def declare(folder: Path, text: str = NEW) -> Dataset:
    path = folder / "source.toml"
    path.write_text(text, "utf-8")
    return read_dataset(path)


def new_row(make_row: MakeRow, number: int = 0, **changes: Any) -> dict[str, Any]:
    row = make_row(number)
    question = f"Speed this up:\n```\nnot this\n```\n```python\n{row['pytorch_code']}```\nThanks."
    return {"batch": 7, "number": number, "title": row["problem_name"], "question": question,
            "answer": row["generated_code"], "eager_ms": 6.0, "kernel_ms": 2, "passed": True, "gpu": "H100", **changes}


def jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def test_a_new_source_needs_a_declaration_and_no_code(tmp_path: Path, make_row: MakeRow, suite_path: Path) -> None:
    rows = [new_row(make_row), new_row(make_row, 1, passed=False), new_row(make_row, 2, gpu="L40"),
            new_row(make_row, 3, answer="None"), new_row(make_row, 4, question="no code here")]
    ingested = ingest([SourceSpec(jsonl(tmp_path / "x", rows), dataset=declare(tmp_path))])
    assert ingested.counters == {"in": 5, "kept": 3, "out:not_selected": 2}
    assert [(row.row_locator, row.field, row.value) for row in ingested.quarantine] == [
        ("line 2", "passed", "false"), ("line 3", "gpu", "L40"),
    ]  # fmt: skip
    first = ingested.rows[0]
    assert first.values == {
        "uuid": "ours/7-0", "problem_name": rows[0]["title"], "pytorch_code": make_row(0)["pytorch_code"],
        "generated_code": rows[0]["answer"], "generated_think": "written by hand", "speedup_over_eager": 3.0,
    }  # fmt: skip
    assert first.as_read == rows[0]
    assert ingested.source_files[0].licence == "CC0-1.0"
    good, bad = check_rows(ingested.rows, suite_path)
    assert good == [first]
    assert [(row.row_locator, row.rule, row.field) for row in bad] == [
        ("line 4", "not_null", "generated_code"), ("line 5", "not_null", "pytorch_code"),
    ]  # fmt: skip
    assert json.loads(bad[0].raw_json)["answer"] == "None"


@pytest.mark.parametrize(
    ("baseline", "candidate", "speedup"),
    [(6, 2.0, "3.0"), (1, 0, "inf"), (None, 2, "None"), (2, None, "None"), ("6", 2, "'6'"), (True, 2, "True"),
     (10**400, 1, "nan")],
)  # fmt: skip
def test_a_speedup_of_two_times(
    tmp_path: Path, make_row: MakeRow, baseline: Any, candidate: Any, speedup: str
) -> None:
    path = jsonl(tmp_path / "x", [new_row(make_row, eager_ms=baseline, kernel_ms=candidate)])
    (row,) = read_source(path, dataset=declare(tmp_path)).rows()
    assert isinstance(row, RawRow) and repr(row.values["speedup_over_eager"]) == speedup


def test_csv_texts_are_compared_and_divided_as_what_they_say(tmp_path: Path, make_row: MakeRow) -> None:
    import csv

    with (tmp_path / "x.csv").open("w", newline="") as out:
        rows = [new_row(make_row), new_row(make_row, 1, passed="false"), new_row(make_row, 2, eager_ms="")]
        writer = csv.DictWriter(out, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    one, two, three = read_source(tmp_path / "x.csv", dataset=declare(tmp_path)).rows()
    assert isinstance(one, RawRow) and one.values["speedup_over_eager"] == 3.0
    assert isinstance(two, QuarantineRow) and two.rule == "not_selected"
    assert isinstance(three, RawRow) and three.values["speedup_over_eager"] is None


def test_without_an_id_of_its_own_a_row_is_known_by_its_bytes_and_place(tmp_path: Path, make_row: MakeRow) -> None:
    text = NEW.replace('uuid = { template = "ours/{batch}-{number}" }\n', "").replace('problem_name = "title"\n', "")
    dataset = declare(tmp_path, text)
    one = [row.values["uuid"] for row in ingest([SourceSpec(jsonl(tmp_path / "a", [new_row(make_row)] * 2),
                                                            dataset=dataset)]).rows]
    two = [row.values["uuid"] for row in ingest([SourceSpec(jsonl(tmp_path / "b", [new_row(make_row)] * 2),
                                                            dataset=dataset)]).rows]
    assert one == two and len(set(one)) == 2
    other = ingest([SourceSpec(jsonl(tmp_path / "c", [new_row(make_row, 5)]), dataset=dataset)]).rows[0]
    assert other.values["uuid"] not in one
    assert other.values["problem_name"] == other.values["uuid"]


JOINED = """
name = "answers"

[[layout]]
speedup = { claimed = false }

[layout.join]
file = "problems.parquet"
on = { level = "level", task = "problem_id" }
licence = "MIT"

[layout.columns]
uuid = { template = "{level}/{task}" }
problem_name = "join.name"
pytorch_code = "join.code"
generated_code = "kernel"
"""


def problems(path: Path, make_row: MakeRow, numbers: list[int]) -> Path:
    rows = [{"level": 1, "problem_id": n, "name": f"p{n}", "code": make_row(n)["pytorch_code"]} for n in numbers]
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def test_rows_that_only_name_their_problem_are_completed(tmp_path: Path, make_row: MakeRow, suite_path: Path) -> None:
    rows = [{"level": "1", "task": n, "kernel": make_row(n)["generated_code"]} for n in (1, 2, 9)]
    path = jsonl(tmp_path / "x", rows)
    dataset = declare(tmp_path, JOINED)
    with pytest.raises(UsageError, match=r"problems\.parquet must be beside .* --join"):
        read_source(path, dataset=dataset)
    problems(tmp_path / "problems.parquet", make_row, [1, 2])
    ingested = ingest([SourceSpec(path, dataset=dataset)])
    assert ingested.counters == {"in": 3, "kept": 2, "out:join_missing": 1}
    assert ingested.quarantine[0].value == '{"level": "1", "task": 9}'
    assert [row.values["problem_name"] for row in ingested.rows] == ["p1", "p2"]
    assert not check_rows(ingested.rows, suite_path)[1]
    # The joined file decides what the records are, so it is one of the sources.
    assert [file.licence for file in ingested.source_files] == ["MIT", ""]
    elsewhere = problems(tmp_path / "other", make_row, [1, 2, 9])
    assert ingest([SourceSpec(path, dataset=dataset, join=elsewhere)]).counters == {"in": 3, "kept": 3}


def test_a_joined_file_must_have_its_keys_once(tmp_path: Path, make_row: MakeRow) -> None:
    path = jsonl(tmp_path / "x", [{"level": 1, "task": 1, "kernel": "k"}])
    dataset = declare(tmp_path, JOINED)
    problems(tmp_path / "problems.parquet", make_row, [1, 2, 1])
    with pytest.raises(SourceError, match=r"problems\.parquet: row 1 and row 3 have the same key 1, 1"):
        read_source(path, dataset=dataset)
    jsonl(tmp_path / "problems.parquet", [{"lvl": 1, "problem_id": 1}])
    with pytest.raises(SchemaError, match=r"missing: level.*rename lvl to level"):
        read_source(path, dataset=dataset)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("name =", "nme ="), "unknown key 'nme'"),
        (('licence = "CC0-1.0"', 'license = "CC0-1.0"'), "unknown key 'license'"),
        (("empty =", "nothing ="), "layout 1: unknown key 'nothing'"),
        (('problem_name = "title"', 'name = "title"'), "layout 1: columns: name: is none of our columns"),
        (('problem_name = "title"', "problem_name = 3"), "layout 1: columns: problem_name: expected a column's name"),
        (("{batch}-{number}", "{batch:>9}"), "only plain {column} fields"),
        (("{batch}-{number}", "fixed"), "names no column"),
        (("holds =", "has ="), "expected a column's name"),
        (('generated_code = "answer"', ""), "generated_code is not given"),
        (("candidate =", "kernel ="), "layout 1: speedup: unknown key 'kernel'"),
        ((', candidate = "kernel_ms"', ""), "layout 1: speedup: expected"),
        (("passed = true", "passed = []"), "layout 1: keep: passed"),
        (("generated_think =", "uuid ="), "given in columns too: uuid"),
        (('generated_code = "answer"', 'generated_code = "join.answer"'), "needs a [join]"),
        (("[[layout]]", "[layout]"), "expected [[layout]] tables"),
        (('licence = "CC0-1.0"', 'kind = "rows"'), "kind: 'rows'"),
        (('licence = "CC0-1.0"', 'rows_expected = "many"'), "rows_expected"),
        (('name = "kernels_of_ours"', 'name = "../up"'), "is not a name"),
        (('licence = "CC0-1.0"', "licence = "), "not valid TOML"),
    ],
)
def test_a_faulty_declaration_names_file_and_key(tmp_path: Path, change: tuple[str, str], says: str) -> None:
    assert change[0] in NEW
    with pytest.raises(UsageError) as caught:
        declare(tmp_path, NEW.replace(*change))
    assert str(tmp_path / "source.toml") in str(caught.value)
    assert says in str(caught.value)


def test_what_ships_is_declared_and_described() -> None:
    names = [dataset.name for dataset in declared()]
    assert names == ["concur", "cuda_l1", "cudallm", "dice_infilling", "dice_tasks", "kernelbench_runs"]
    for dataset in declared():
        assert (BUNDLED / dataset.name / "README.md").is_file(), dataset.name
        assert dataset_named(dataset.name) == dataset
    with pytest.raises(UsageError, match="known: concur, cuda_l1"):
        dataset_named("concurr")
    with pytest.raises(UsageError, match="declares no"):
        dataset_named(str(BUNDLED / "samples" / "source.toml"))


def test_the_columns_tell_the_data_set_and_a_doubt_is_an_error(tmp_path: Path, make_row: MakeRow) -> None:
    row = make_row(0)
    assert read_source(jsonl(tmp_path / "a", [row])).dataset.name == "concur"
    l1 = {"level_id": 1, "task_id": 3, "ref_code": row["pytorch_code"], "custom_code": None, "score_default": None,
          "score_torch_compile_default": None}
    source = read_source(jsonl(tmp_path / "b", [l1]))
    assert (source.dataset.name, source.file.licence) == ("cuda_l1", "MIT")
    (found,) = source.rows()
    assert isinstance(found, RawRow)
    assert (found.values["uuid"], found.values["problem_name"]) == ("cuda_l1/level1/3", "level1_3")
    item = {"id": 1, "pytorch_code": "x", "cuda_code": "y", "prefix": "", "middle": "", "suffix": ""}
    assert read_source(jsonl(tmp_path / "c", [item])).dataset.name == "dice_infilling"
    both = jsonl(tmp_path / "d", [{**item, **l1}])
    with pytest.raises(SchemaError, match=r"fit several data sets: cuda_l1, dice_infilling; say NAME=d"):
        read_source(both)
    assert read_source(both, dataset=dataset_named("cuda_l1")).dataset.name == "cuda_l1"
    with pytest.raises(SchemaError, match=r"not the columns of dice_tasks; missing: level, idx.*"):
        read_source(both, dataset=dataset_named("dice_tasks"))


def test_cudallm_takes_the_fenced_blocks_of_prompt_and_answer(tmp_path: Path, make_row: MakeRow) -> None:
    row = make_row(0)
    answer = f"<think>hm</think>\n```python\ndraft of ModelNew\n```\nBetter:\n```python\n{row['generated_code']}```"
    prompt = [{"role": "user", "content": f"Rewrite:\n```python\n{row['pytorch_code']}```"}]
    path = jsonl(tmp_path / "x", [{"prompts": prompt, "responses": answer}, {"prompts": "text", "responses": answer}])
    ingested = ingest([path])
    assert list(ingested.seen) == ["cudallm"]
    assert ingested.rows[0].values["pytorch_code"] == row["pytorch_code"]
    assert ingested.rows[0].values["generated_code"] == row["generated_code"]
    assert not ingested.rows[0].claims
    assert ingested.rows[1].values["pytorch_code"] is None


def test_tasks_become_no_records_and_none_is_lost(tmp_path: Path, make_row: MakeRow) -> None:
    task = {"idx": 0, "level": "1", "pytorch_code": make_row(0)["pytorch_code"], "cuda_code": "", "raw_answer": "1"}
    rows = [task, {**task, "pytorch_code": None}, {**task, "pytorch_code": " "}, {**task, "pytorch_code": 3}]
    ingested = ingest([jsonl(tmp_path / "x", rows)])
    assert ingested.counters == {
        "in": 4, "kept": 0, "out:not_blank": 1, "out:not_null": 1, "out:task_without_kernel": 1, "out:text_type": 1,
    }  # fmt: skip
    assert ingested.tasks == (
        TaskRow(ingested.source_files[0].source_file_id, "line 1", "dice_tasks_1_0", task["pytorch_code"]),
    )


#: file, data set, rows, records, filtered, tasks, rows that break the contract by first rule
REAL = [
    ("cuda_l1/h100_claims_half.parquet", "cuda_l1", 121, 110, 0, 0, {"not_null": 11}),
    ("kernelbench_runs/llm_candidates_rtx4090_half.parquet", "kernelbench_runs", 388, 170, 218, 0, {}),
    ("dice/kernel_infilling_66.json", "dice_infilling", 66, 66, 0, 0, {}),
    ("dice/end_to_end_kernel_generation_4000.json", "dice_tasks", 4000, 0, 0, 4000, {}),
]


@pytest.mark.parametrize(("file", "name", "rows", "records", "filtered", "tasks", "broken"), REAL)
def test_real_files_are_accounted_for_row_by_row(
    real_data: Path, suite_path: Path, file: str, name: str, rows: int, records: int, filtered: int, tasks: int,
    broken: dict[str, int],
) -> None:
    spec = SourceSpec(real_data / file, join=real_data / "kernelbench" / "kernelbench_v0_2.parquet")
    ingested = ingest([spec])
    assert list(ingested.seen) == [name]
    good, bad = check_rows(ingested.rows, suite_path)
    first: dict[str, str] = {}
    for row in bad:
        first.setdefault(row.row_locator, row.rule)
    assert (len(good), len(ingested.tasks)) == (records, tasks)
    assert ingested.counters.get("out:not_selected", 0) == filtered
    assert out_on_purpose(ingested.counters) == filtered + tasks
    assert Counter(first.values()) == broken
    assert ingested.counters["in"] == rows == len(good) + len(first) + filtered + tasks
    places = [row.locator for row in (*good, *ingested.tasks)] + [*first, *(q.row_locator for q in ingested.quarantine)]
    assert sorted(places, key=lambda place: int(place.split()[1])) == [f"row {n}" for n in range(1, rows + 1)]
