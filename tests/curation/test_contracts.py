from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dice_core.curation.concur import RawRow
from dice_core.curation.contracts import check_rows, unfence
from dice_core.errors import ContractError, SchemaError
from dice_core.files import sha256_bytes

MakeRow = Callable[..., dict[str, Any]]


def _rows(*values: dict[str, Any]) -> list[RawRow]:
    return [RawRow("src_x", f"row {number}", row) for number, row in enumerate(values, start=1)]


# change to a good row -> the rules it must break, in order, as (rule, field)
BROKEN: dict[str, tuple[dict[str, Any], list[tuple[str, str]]]] = {
    "null code": ({"generated_code": None}, [("not_null", "generated_code")]),
    "null module": ({"pytorch_code": None}, [("not_null", "pytorch_code")]),
    "null uuid": ({"uuid": None}, [("not_null", "uuid")]),
    "blank uuid": ({"uuid": " "}, [("not_blank", "uuid")]),
    "null name": ({"problem_name": None}, [("not_null", "problem_name")]),
    "null speedup": ({"speedup_over_eager": None}, [("speedup_not_null", "speedup_over_eager")]),
    "NaN": ({"speedup_over_eager": math.nan}, [("speedup_finite", "speedup_over_eager")]),
    "infinite": ({"speedup_over_eager": math.inf}, [("speedup_finite", "speedup_over_eager")]),
    "negative": ({"speedup_over_eager": -1.0}, [("speedup_range", "speedup_over_eager")]),
    "zero": ({"speedup_over_eager": 0}, [("speedup_range", "speedup_over_eager")]),
    "absurd": ({"speedup_over_eager": 10_001.0}, [("speedup_range", "speedup_over_eager")]),
    "number as text": ({"speedup_over_eager": "2.5"}, [("speedup_number", "speedup_over_eager")]),
    "truth value": ({"speedup_over_eager": True}, [("speedup_number", "speedup_over_eager")]),
    "list": ({"speedup_over_eager": [2.5]}, [("speedup_number", "speedup_over_eager")]),
    "word None": ({"generated_code": "None"}, [("code_length", "generated_code")]),
    "uuid is a number": ({"uuid": 17}, [("text_type", "uuid")]),
    "name is a list": ({"problem_name": ["a"]}, [("text_type", "problem_name")]),
    "two faults of one field": (
        {"pytorch_code": "import torch\n\nclass Module(torch.nn.Module):\n    pass\n"},
        [("defines_model", "pytorch_code"), ("defines_get_inputs", "pytorch_code")],
    ),
    "no Model": ({"pytorch_code": "import torch\n\n\ndef get_inputs():\n    return []\n"},
                 [("defines_model", "pytorch_code")]),
    "Model only in a word": (
        {"pytorch_code": "import torch\n\n\nclass Modelling:\n    pass\n\n\ndef get_inputs():\n    return []\n"},
        [("defines_model", "pytorch_code")],
    ),
    "no get_inputs": ({"pytorch_code": "import torch\n\n\nclass Model(torch.nn.Module):\n    pass\n"},
                      [("defines_get_inputs", "pytorch_code")]),
    "broken Python": ({"generated_code": "class ModelNew(nn.Module):\n    def forward(self:\n"},
                      [("python_syntax", "generated_code")]),
    "null byte": ({"generated_code": "class ModelNew:\n    a = '\0'\n"}, [("python_syntax", "generated_code")]),
    "code is a number": ({"generated_code": 12345678901234567890123},
                         [("text_type", "generated_code")]),
    "both": ({"uuid": None, "speedup_over_eager": -3.0},
             [("not_null", "uuid"), ("speedup_range", "speedup_over_eager")]),
}  # fmt: skip


def test_each_kind_of_bad_row_breaks_exactly_its_rules(make_row: MakeRow, suite_path: Path) -> None:
    rows = _rows(make_row(0), *(make_row(1, **change) for change, _ in BROKEN.values()), make_row(2))
    good, bad = check_rows(rows, suite_path)
    assert [row.locator for row in good] == ["row 1", f"row {len(rows)}"]
    found: dict[str, list[tuple[str, str]]] = {}
    for row in bad:
        found.setdefault(row.row_locator, []).append((row.rule, row.field))
    expected = {f"row {place}": rules for place, (_, rules) in enumerate(BROKEN.values(), start=2)}
    assert found == expected


def test_chunks_do_not_change_the_outcome(make_row: MakeRow, suite_path: Path) -> None:
    rows = _rows(*(make_row(n, speedup_over_eager=-1.0 if n % 3 == 0 else 2.0) for n in range(8)))
    whole, pieces = check_rows(rows, suite_path), check_rows(rows, suite_path, chunk_rows=3)
    assert whole == pieces
    assert [row.locator for row in whole[0]] == ["row 2", "row 3", "row 5", "row 6", "row 8"]


def test_a_quarantined_row_shows_value_and_whole_row(make_row: MakeRow, suite_path: Path) -> None:
    (_, (bad,)) = check_rows(_rows(make_row(0, speedup_over_eager=math.nan)), suite_path)
    assert bad.value == '"NaN"'
    raw = json.loads(bad.raw_json)
    assert raw["speedup_over_eager"] == "NaN"
    assert raw["pytorch_code"] == make_row(0)["pytorch_code"]


def test_a_ten_megabyte_source_is_quarantined_with_its_length_and_hash(make_row: MakeRow, suite_path: Path) -> None:
    huge = make_row(0)["generated_code"] + "#" * 10_000_000
    good, (bad,) = check_rows(_rows(make_row(0, generated_code=huge), make_row(1)), suite_path)
    assert [row.locator for row in good] == ["row 2"]
    assert (bad.rule, bad.field) == ("code_length", "generated_code")
    assert len(bad.value) == 500
    assert f"{len(huge)} characters" in bad.value
    kept = json.loads(bad.raw_json)["generated_code"]
    assert (kept["characters"], kept["sha256"]) == (len(huge), sha256_bytes(huge))
    assert huge.startswith(kept["cut_text"]) and len(bad.raw_json) < 100_000


def test_a_fenced_code_is_judged_by_its_content(make_row: MakeRow, suite_path: Path) -> None:
    code = make_row(0)["generated_code"]
    good, bad = check_rows(_rows(make_row(0, generated_code=f"```python\n{code}```\n")), suite_path)
    assert len(good) == 1 and not bad
    assert unfence(f"```python\n{code}```\n") == code
    assert unfence(code) == code
    two = "```python\na = 1\n```\ntext\n```python\nb = 2\n```"
    assert unfence(two) == two


def test_an_expectation_that_cannot_be_evaluated_raises(tmp_path: Path, make_row: MakeRow, suite_path: Path) -> None:
    suite = json.loads(suite_path.read_text())
    suite["expectations"].append(
        {
            "type": "expect_column_values_to_be_between",
            "kwargs": {"column": "pytorch_code", "min_value": 0},
            "meta": {"rule": "silly", "field": "pytorch_code"},
        }
    )
    path = tmp_path / "contract.json"
    path.write_text(json.dumps(suite))
    with pytest.raises(ContractError, match="rule silly on pytorch_code could not be evaluated"):
        check_rows(_rows(make_row(0)), path)


@pytest.mark.parametrize(
    "change",
    [
        lambda suite: suite.pop("expectations"),
        lambda suite: suite["expectations"][0].pop("meta"),
        lambda suite: suite["expectations"].append(suite["expectations"][0]),
        lambda suite: suite["expectations"][0].update(kwargs={"colunm": "uuid"}),
    ],
)
def test_a_broken_suite_is_refused(
    tmp_path: Path, make_row: MakeRow, suite_path: Path, change: Callable[[Any], Any]
) -> None:
    suite = json.loads(suite_path.read_text())
    change(suite)
    path = tmp_path / "contract.json"
    path.write_text(json.dumps(suite))
    with pytest.raises(ContractError, match=r"contract\.json"):
        check_rows(_rows(make_row(0)), path)


def test_a_column_that_no_row_has_is_a_schema_error(make_row: MakeRow, suite_path: Path) -> None:
    row = make_row(0)
    del row["uuid"]
    with pytest.raises((SchemaError, ContractError), match="uuid"):
        check_rows(_rows(row), suite_path)


def test_checking_is_quiet(make_row: MakeRow, suite_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    check_rows(_rows(make_row(0, uuid=None)), suite_path)
    assert capfd.readouterr() == ("", "")


def test_a_row_of_a_data_set_without_claims_needs_no_speedup(make_row: MakeRow, suite_path: Path) -> None:
    without = RawRow("src_x", "row 1", make_row(0, speedup_over_eager=None), claims=False)
    stated = RawRow("src_x", "row 2", make_row(1, speedup_over_eager=None))
    good, bad = check_rows([without, stated], suite_path)
    assert good == [without]
    assert [(row.row_locator, row.rule) for row in bad] == [("row 2", "speedup_not_null")]


def test_quarantine_keeps_the_row_under_the_names_of_its_source(make_row: MakeRow, suite_path: Path) -> None:
    row = RawRow("src_x", "row 1", make_row(0, generated_code=None), source_values={"kernel": None, "id": 3})
    _, (bad,) = check_rows([row], suite_path)
    assert json.loads(bad.raw_json) == {"kernel": None, "id": 3}
