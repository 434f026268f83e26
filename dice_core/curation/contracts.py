"""The contract of a source: a Great Expectations suite, run row by row, with what breaks it set aside.

The suite is `datasets/<name>/contract.json`. What Great Expectations cannot express is checked here in the same
vocabulary: `text_type` (a text column holds no text) and `python_syntax` (a code does not parse).
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import numbers
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dice_core.curation.concur import OPTIONAL_COLUMNS, SPEEDUP_COLUMN, TEXT_COLUMNS, RawRow
from dice_core.curation.normalise import parse
from dice_core.curation.quarantine import quarantine
from dice_core.errors import ContractError, SchemaError
from dice_core.records import QuarantineRow

#: Rows per Great Expectations run: bounds the memory of its metrics.
CHUNK_ROWS = 2_000

_CODE_COLUMNS = ("pytorch_code", "generated_code")
_FENCED = re.compile(r"\A\s*```[ \t]*\w*[ \t]*\n(.*?)\n?```\s*\Z", re.DOTALL)
_Break = tuple[str, str]  # rule, field
#: Rules after which nothing more can be said of a field.
_CAUSES = ("text_type", "not_null", "not_blank", "code_length")


def check_rows(
    rows: Sequence[RawRow], suite_path: Path, *, chunk_rows: int = CHUNK_ROWS
) -> tuple[list[RawRow], list[QuarantineRow]]:
    """Split rows into those that keep the contract and one quarantine row for each (row, broken rule, field).

    Quarantine rows of one source row stand together, in the suite's order; the first names the reason it is counted
    under.

    Args:
        rows: rows as read.
        suite_path: a Great Expectations suite as JSON; each expectation's `meta` has `rule` and `field`.
        chunk_rows: rows per run of the suite.

    Raises:
        ContractError: the suite is unreadable, or an expectation could not be evaluated (Great Expectations itself
            reports that only as a failed result without any unexpected rows).
        SchemaError: a column that the suite demands does not exist.
    """
    suite = _read_suite(suite_path)
    names = {name for row in rows for name in row.values}
    good: list[RawRow] = []
    bad: list[QuarantineRow] = []
    for start in range(0, len(rows), chunk_rows):
        chunk = rows[start : start + chunk_rows]
        broken: dict[int, list[_Break]] = {}
        for place, rule, field in [*_text_types(chunk), *_expectations(chunk, names, suite, suite_path)]:
            broken.setdefault(place, []).append((rule, field))
        for place, row in enumerate(chunk):
            breaks = _causes(broken.get(place, []))
            empty = {field for rule, field in breaks if rule in _CAUSES}
            details = _syntax(row, [name for name in _CODE_COLUMNS if name not in empty])
            for rule, field in breaks:
                value = row.values.get(field)
                bad.append(quarantine(row.source_file_id, row.locator, rule, field, value, row.as_read))
            for field, message in details:
                bad.append(quarantine(row.source_file_id, row.locator, "python_syntax", field, message, row.as_read))
            if not breaks and not details:
                good.append(row)
    return good, bad


def unfence(code: str) -> str:
    """The code without the one Markdown fence around it, where the whole text is one fenced block."""
    match = _FENCED.match(code)
    return match.group(1) + "\n" if match and "```" not in match.group(1) else code


def _read_suite(path: Path) -> dict[str, Any]:
    try:
        suite = json.loads(path.read_text(encoding="utf-8"))
        seen = set()
        for place, expectation in enumerate(suite["expectations"]):
            if not {"rule", "field"} <= set(expectation["meta"]):
                raise ContractError(f"{path}: expectation {place}: meta must name rule and field")
            if (key := _key_of(expectation)) in seen:
                raise ContractError(f"{path}: expectation {place}: {key} is there twice")
            seen.add(key)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ContractError(f"{path}: not a Great Expectations suite: {error!r}") from None
    return suite  # type: ignore[no-any-return]


def _text_types(rows: Sequence[RawRow]) -> Iterator[tuple[int, str, str]]:
    for place, row in enumerate(rows):
        for name in (*TEXT_COLUMNS, *OPTIONAL_COLUMNS):
            if not isinstance(row.values.get(name), str | None):
                yield place, "text_type", name


def _causes(breaks: Sequence[_Break]) -> list[_Break]:
    """One row for one fault: of a field that holds no usable text only the rule that says so."""
    found = list(dict.fromkeys(breaks))
    spoilt: dict[str, str] = {}
    for rule, field in found:
        if rule in _CAUSES:
            spoilt.setdefault(field, rule)
    return [(rule, field) for rule, field in found if spoilt.get(field, rule) == rule]


def _syntax(row: RawRow, fields: Sequence[str]) -> list[tuple[str, str]]:
    found = []
    for field in fields:
        try:
            parse(unfence(row.values[field]))
        except SyntaxError as error:
            found.append((field, f"line {error.lineno}: {error.msg}"))
    return found


def _expectations(
    rows: Sequence[RawRow], names: set[str], suite: Mapping[str, Any], suite_path: Path
) -> Iterator[tuple[int, str, str]]:
    """(row's place in the chunk, rule, field) of every broken expectation, in the suite's order."""
    with _quiet():
        import great_expectations as gx
        import pandas as pd
        from great_expectations.data_context.types.base import ProgressBarsConfig

        frame = pd.DataFrame(
            {name: pd.Series(values, dtype=kind) for name, (values, kind) in _columns(rows, names).items()}
        )
        context = gx.get_context(mode="ephemeral")
        context.variables.progress_bars = ProgressBarsConfig(globally=False)
        try:
            expectations = gx.ExpectationSuite(name=suite["name"], expectations=suite["expectations"])
        except (ValueError, TypeError, KeyError) as error:
            raise ContractError(f"{suite_path}: Great Expectations refused the suite: {error}") from None
        if len(expectations.expectations) != len(suite["expectations"]):
            raise ContractError(f"{suite_path}: Great Expectations refused one of the expectations")
        batch = (
            context.data_sources.add_pandas("rows")
            .add_dataframe_asset("rows")
            .add_batch_definition_whole_dataframe("rows")
            .get_batch(batch_parameters={"dataframe": frame})
        )
        report = batch.validate(
            expectations,
            result_format={
                "result_format": "COMPLETE",
                "unexpected_index_column_names": ["row_id"],
                "exclude_unexpected_values": True,
                "return_unexpected_index_query": False,
            },
        )
    found = {_key(result.expectation_config): result for result in report.results}
    for expectation in suite["expectations"]:
        meta = expectation["meta"]
        result = found[_key_of(expectation)]
        # Flat when all went well; keyed by metric, without this entry, when a metric failed.
        if result.exception_info.get("raised_exception") is not False:
            raise ContractError(
                f"{suite_path}: rule {meta['rule']} on {meta['field']} could not be evaluated: "
                f"{str(result.exception_info)[-500:]}"
            )
        if result.success:
            continue
        places = [
            int(place)
            for entry in result.result.get("unexpected_index_list") or []
            for place in _as_list(entry["row_id"])
        ]
        if not places:
            raise SchemaError(f"{suite_path}: rule {meta['rule']}: column {meta['field']} does not keep it")
        for place in places:
            yield place, meta["rule"], meta["field"]


def _columns(rows: Sequence[RawRow], present: set[str]) -> dict[str, tuple[list[Any], str]]:
    columns: dict[str, tuple[list[Any], str]] = {"row_id": (list(range(len(rows))), "int64")}
    for name in TEXT_COLUMNS:
        if name in present:
            values = [row.values.get(name) for row in rows]
            columns[name] = ([None if value is None else str(value) for value in values], "object")
    if SPEEDUP_COLUMN in present:
        speedups = [row.values.get(SPEEDUP_COLUMN) for row in rows]
        # A data set that states no speedups breaks no rule about them.
        kinds = [speedup_kind(row.values.get(SPEEDUP_COLUMN)) if row.claims else "unclaimed" for row in rows]
        columns[SPEEDUP_COLUMN] = (
            [
                float(value) if value is not None and kind == "number" else None
                for value, kind in zip(speedups, kinds, strict=True)
            ],
            "float64",
        )
        columns[f"{SPEEDUP_COLUMN}_kind"] = (kinds, "object")
    return columns


def speedup_kind(value: object) -> str:
    """What a speedup cell holds: number, null, text, boolean, not_finite or other."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return "text"
        case numbers.Number():
            try:
                return "number" if math.isfinite(float(value)) else "not_finite"  # type: ignore[arg-type]
            except OverflowError:
                return "not_finite"
        case _:
            return "other"


def _key(config: Any) -> str:
    return _key_of({"type": config.type, "meta": config.meta})


def _key_of(expectation: Mapping[str, Any]) -> str:
    return json.dumps([expectation["type"], expectation["meta"]["rule"], expectation["meta"]["field"]])


def _as_list(value: object) -> list[Any]:
    return value if isinstance(value, list) else [value]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """No log lines and no warnings of the libraries' own while they are imported and run."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
