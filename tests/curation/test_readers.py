from __future__ import annotations

import csv
import json
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dice_core.curation.concur import RawRow
from dice_core.curation.sources import files_below, read_source
from dice_core.errors import SchemaError, SourceError, UsageError
from dice_core.records import QuarantineRow

MakeRow = Callable[..., dict[str, Any]]


def _write(path: Path, rows: list[dict[str, Any]], form: str) -> Path:
    table = pa.Table.from_pylist(rows)
    if form == "parquet":
        pq.write_table(table, path, row_group_size=2)
    elif form == "json":
        path.write_text(json.dumps(rows))
    elif form == "jsonl":
        path.write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    else:
        opener = pa.ipc.new_stream if form == "arrow_stream" else pa.ipc.new_file
        with opener(str(path), table.schema) as writer:
            writer.write_table(table, max_chunksize=2)
    return path


FORMS = ("parquet", "json", "jsonl", "arrow_stream", "arrow_file")


@pytest.mark.parametrize("form", FORMS)
def test_every_format_gives_the_same_rows_whatever_the_extension(tmp_path: Path, make_row: MakeRow, form: str) -> None:
    rows = [make_row(0), make_row(1, speedup_over_eager=None), make_row(2, generated_think="é\n")]
    source = read_source(_write(tmp_path / "data.bin", rows, form), licence="MIT")
    assert source.format == form
    found = list(source.rows())
    assert [row.values for row in found if isinstance(row, RawRow)] == rows
    word = "line" if form == "jsonl" else "row"
    assert [row.locator if isinstance(row, RawRow) else "" for row in found] == [f"{word} {n}" for n in (1, 2, 3)]
    assert source.file.size_bytes == (tmp_path / "data.bin").stat().st_size
    assert source.file.licence == "MIT"


def test_rows_stream_across_batches(tmp_path: Path, make_row: MakeRow) -> None:
    rows = [make_row(number) for number in range(600)]
    for form in ("parquet", "arrow_stream"):
        path = _write(tmp_path / form, rows, form)
        locators = [row.locator for row in read_source(path).rows() if isinstance(row, RawRow)]
        assert locators == [f"row {number}" for number in range(1, 601)]


@pytest.mark.parametrize("form", FORMS)
def test_an_empty_file_and_a_file_without_rows_are_errors_that_name_the_file(
    tmp_path: Path, make_row: MakeRow, form: str
) -> None:
    empty = tmp_path / "empty.parquet"
    empty.touch()
    with pytest.raises(SourceError, match=r"empty\.parquet: the file is empty"):
        read_source(empty)
    path = tmp_path / f"none.{form}"
    if form in ("json", "jsonl"):
        path.write_text("[]" if form == "json" else "\n\n")
    else:
        schema = pa.Table.from_pylist([make_row(0)]).schema
        table = schema.empty_table()
        if form == "parquet":
            pq.write_table(table, path)
        else:
            with (pa.ipc.new_stream if form == "arrow_stream" else pa.ipc.new_file)(str(path), schema) as writer:
                writer.write_table(table)
    with pytest.raises((SourceError, SchemaError), match=r"none\."):
        list(read_source(path).rows())


@pytest.mark.parametrize("form", ["parquet", "arrow_stream", "arrow_file", "json"])
@pytest.mark.parametrize("share", [0.3, 0.6, 0.97])
def test_a_truncated_file_is_never_taken_for_a_whole_one(
    tmp_path: Path, make_row: MakeRow, form: str, share: float
) -> None:
    path = _write(tmp_path / "cut.data", [make_row(number) for number in range(40)], form)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(SourceError, match=r"cut\.data"):
        list(read_source(path).rows())


def test_an_arrow_stream_cut_between_two_messages_is_noticed(tmp_path: Path, make_row: MakeRow) -> None:
    path = _write(tmp_path / "cut.arrow", [make_row(number) for number in range(4)], "arrow_stream")
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(SourceError, match="no end mark"):
        list(read_source(path).rows())


def test_a_flipped_byte_in_parquet_pages_is_noticed_and_the_row_reached_is_named(
    tmp_path: Path, make_row: MakeRow
) -> None:
    path = tmp_path / "flipped.parquet"
    pq.write_table(
        pa.Table.from_pylist([make_row(number) for number in range(40)]), path, write_page_checksum=True
    )
    data = bytearray(path.read_bytes())
    data[200] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(SourceError, match=r"flipped\.parquet: .*row 0"):
        list(read_source(path).rows())


@pytest.mark.parametrize("form", FORMS)
def test_wrong_columns_are_listed_with_a_suggestion(tmp_path: Path, make_row: MakeRow, form: str) -> None:
    row = make_row(0)
    row["speedup_vs_eager"] = row.pop("speedup_over_eager")
    del row["uuid"]
    path = _write(tmp_path / "wrong", [row], form)
    with pytest.raises(SchemaError) as caught:
        list(read_source(path).rows())
    text = str(caught.value)
    assert "missing: uuid, speedup_over_eager" in text
    assert "unexpected: speedup_vs_eager" in text
    assert "rename speedup_vs_eager to speedup_over_eager?" in text


def test_reasoning_may_be_absent_and_other_columns_may_be_there(tmp_path: Path, make_row: MakeRow) -> None:
    row = make_row(0, speedup_over_compile=1.5)
    del row["generated_think"]
    (found,) = read_source(_write(tmp_path / "x", [row], "parquet")).rows()
    assert isinstance(found, RawRow)
    assert found.values["speedup_over_compile"] == 1.5


def test_a_column_of_the_wrong_type_is_a_schema_error(tmp_path: Path, make_row: MakeRow) -> None:
    path = _write(tmp_path / "x", [make_row(0, pytorch_code=["a", "b"])], "parquet")
    with pytest.raises(SchemaError, match=r"pytorch_code holds list, expected text"):
        list(read_source(path).rows())


def test_numbers_reach_the_contract_as_they_are(tmp_path: Path, make_row: MakeRow) -> None:
    path = tmp_path / "x.jsonl"
    lines = ['"2.5"', "NaN", "Infinity", "null", "true", "-1"]
    text = json.dumps(make_row(0)).replace("2.5}", "@}")
    path.write_text("\n".join(text.replace("@", value) for value in lines))
    values = [row.values["speedup_over_eager"] for row in read_source(path).rows() if isinstance(row, RawRow)]
    assert [repr(value) for value in values] == ["'2.5'", "nan", "inf", "None", "True", "-1"]


def test_a_broken_json_line_costs_one_row_and_names_line_and_column(tmp_path: Path, make_row: MakeRow) -> None:
    good = json.dumps(make_row(0))
    path = tmp_path / "x.jsonl"
    path.write_text(f'{good}\n{{"uuid": "cut\n\n[1, 2]\n{good}\n')
    rows = list(read_source(path).rows())
    broken, other = (row for row in rows if isinstance(row, QuarantineRow))
    assert [row.row_locator if isinstance(row, QuarantineRow) else row.locator for row in rows] == [
        "line 1", "line 2", "line 4", "line 5",
    ]  # fmt: skip
    assert broken.rule == "json_line"
    assert broken.value.startswith("line 2, column 10")
    assert json.loads(broken.raw_json) == {"line": '{"uuid": "cut'}
    assert other.rule == "json_object"


def test_the_first_line_of_a_jsonl_file_may_be_the_broken_one(tmp_path: Path, make_row: MakeRow) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("{broken\n" + json.dumps(make_row(0)))
    assert [type(row) for row in read_source(path).rows()] == [QuarantineRow, RawRow]


def test_a_broken_json_array_names_line_and_column(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('[\n {"uuid": 1},\n oops\n]')
    with pytest.raises(SourceError, match=r"x\.json: not valid JSON at line 3, column 2"):
        list(read_source(path).rows())


@pytest.mark.parametrize("form", ["json", "jsonl", "parquet", "arrow_stream"])
def test_bytes_that_are_not_utf8_cost_one_row_and_are_kept_escaped(
    tmp_path: Path, make_row: MakeRow, form: str
) -> None:
    path = tmp_path / "x"
    rows = [make_row(0), make_row(1, generated_code="ca@f\\e"), make_row(2)]
    if form in ("json", "jsonl"):
        _write(path, rows, form)
        path.write_bytes(path.read_bytes().replace(b"ca@f", b"ca\xe9f"))
    else:
        table = pa.Table.from_pylist(rows)
        codes = [row["generated_code"].encode().replace(b"ca@f", b"ca\xe9f") for row in rows]
        place = table.schema.get_field_index("generated_code")
        # What a careless writer leaves: a text column whose bytes are not text.
        column = pa.array(codes, pa.binary()).cast(pa.string(), safe=False)
        table = table.set_column(place, "generated_code", column)
        if form == "parquet":
            pq.write_table(table, path)
        else:
            with pa.ipc.new_stream(str(path), table.schema) as writer:
                writer.write_table(table)
    first, bad, last = read_source(path).rows()
    assert isinstance(first, RawRow) and isinstance(last, RawRow) and isinstance(bad, QuarantineRow)
    assert (bad.rule, bad.field) == ("encoding", "generated_code")
    assert "ca\\xe9f" in bad.value
    assert json.loads(bad.raw_json)["generated_code"] == "ca\\xe9f\\e"
    assert json.loads(bad.raw_json)["uuid"] == "u1"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("notes.txt", b"hello", "of no known format"),
        ("rows.utf16", "uuid,problem_name\n".encode("utf-16"), "UTF-16"),
        ("rows.jsonl.xz", b"\xfd7zXZ\x00rest", "compressed with xz"),
        ("rows.parquet", b"not parquet at all", "of no known format"),
        ("rows.jsonl.gz", b"\x1f\x8b\x08\x00rest", "gzip compression is cut short or damaged"),
        ("one.json", b'{\n "data": []\n}', "top level is an object"),
    ],
)
def test_a_file_of_another_kind_is_refused_by_name(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(SourceError, match=message) as caught:
        read_source(path)
    assert name in str(caught.value)
    assert caught.value.exit_code == 3


def test_a_missing_file_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        read_source(tmp_path / "none.parquet")


CODECS = ("gzip", "zstd")


def _compress(path: Path, codec: str) -> Path:
    path.write_bytes(pa.compress(path.read_bytes(), codec=codec, asbytes=True))
    return path


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("form", [*FORMS, "csv"])
def test_compressed_files_give_the_same_rows(tmp_path: Path, make_row: MakeRow, form: str, codec: str) -> None:
    rows = [make_row(number) for number in range(300)]
    plain = list(read_source(_any(tmp_path / "plain", rows, form)).rows())
    source = read_source(_compress(_any(tmp_path / "packed", rows, form), codec))
    assert (source.format, source.found.codec) == (form, codec)
    packed = list(source.rows())
    assert [row.values for row in packed if isinstance(row, RawRow)] == [
        row.values for row in plain if isinstance(row, RawRow)
    ]
    assert [row.locator for row in packed if isinstance(row, RawRow)] == [
        row.locator for row in plain if isinstance(row, RawRow)
    ]
    assert len(packed) == 300


def _any(path: Path, rows: list[dict[str, Any]], form: str) -> Path:
    return _csv(path, rows) if form == "csv" else _write(path, rows, form)


def _csv(path: Path, rows: list[dict[str, Any]], *, delimiter: str = ",", bom: bool = False) -> Path:
    with path.open("w", newline="", encoding="utf-8-sig" if bom else "utf-8") as out:
        writer = csv.DictWriter(out, list(rows[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("form", [*FORMS, "csv"])
@pytest.mark.parametrize("share", [0.4, 0.99])
def test_truncated_compression_is_never_taken_for_a_whole_file(
    tmp_path: Path, make_row: MakeRow, form: str, codec: str, share: float
) -> None:
    path = _compress(_any(tmp_path / "cut.data", [make_row(number) for number in range(300)], form), codec)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(SourceError, match=r"cut\.data"):
        list(read_source(path).rows())


@pytest.mark.parametrize("codec", CODECS)
def test_a_compressed_arrow_stream_cut_before_its_end_mark_is_noticed(
    tmp_path: Path, make_row: MakeRow, codec: str
) -> None:
    path = _write(tmp_path / "cut", [make_row(number) for number in range(4)], "arrow_stream")
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(SourceError, match="no end mark"):
        list(read_source(_compress(path, codec)).rows())


def test_damage_at_the_end_of_the_compression_is_noticed_after_the_last_row(tmp_path: Path, make_row: MakeRow) -> None:
    path = _compress(_write(tmp_path / "x", [make_row(0)], "arrow_stream"), "gzip")
    data = bytearray(path.read_bytes())
    data[-6] ^= 0xFF  # in gzip's checksum
    path.write_bytes(data)
    with pytest.raises(SourceError, match="gzip compression is cut short or damaged"):
        list(read_source(path).rows())


@pytest.mark.parametrize("form", ["jsonl", "json", "csv", "parquet", "arrow_stream"])
@pytest.mark.parametrize("codec", CODECS)
def test_a_decompression_bomb_ends_at_the_bound(tmp_path: Path, make_row: MakeRow, form: str, codec: str) -> None:
    # Noise, since Parquet compresses its pages itself.
    rows = [make_row(0, generated_think=secrets.token_hex(2_000_000)), make_row(1)]
    path = _compress(_any(tmp_path / "bomb", rows, form), codec)
    with pytest.raises(SourceError, match=r"bomb: .* become more than 1,000,000"):
        list(read_source(path, limit_bytes=1_000_000).rows())
    assert len(list(read_source(path, limit_bytes=20_000_000).rows())) == 2


def test_what_is_compressed_twice_is_refused(tmp_path: Path, make_row: MakeRow) -> None:
    path = _compress(_compress(_write(tmp_path / "x", [make_row(0)], "json"), "gzip"), "zstd")
    with pytest.raises(SourceError, match="compressed twice"):
        read_source(path)


@pytest.mark.parametrize(("delimiter", "bom"), [(",", False), (";", True), ("\t", False)])
def test_csv_keeps_quotes_newlines_and_long_fields(
    tmp_path: Path, make_row: MakeRow, delimiter: str, bom: bool
) -> None:
    code = make_row(0)["generated_code"] + f"# {'x' * 300_000}\n# \"quoted\", and so on\r\n"
    rows = [make_row(0, generated_code=code, speedup_over_eager=3.5), make_row(1, speedup_over_eager="")]
    source = read_source(_csv(tmp_path / "data", rows, delimiter=delimiter, bom=bom))
    first, second = source.rows()
    assert isinstance(first, RawRow) and isinstance(second, RawRow)
    assert first.values == rows[0]
    assert second.values["speedup_over_eager"] is None
    lines = code.count("\n") + rows[0]["pytorch_code"].count("\n")
    assert (first.locator, second.locator) == ("line 2", f"line {lines + 3}")


def test_a_csv_row_of_the_wrong_length_costs_itself_and_names_its_line(tmp_path: Path, make_row: MakeRow) -> None:
    path = _csv(tmp_path / "x.csv", [make_row(0)])
    good = path.read_text()
    path.write_text(f'{good}only,three,fields\n{good.split(chr(10), 1)[1]}a,b,c,d,e,f,g\n"bad" quote,2\n\n')
    rows = list(read_source(path).rows())
    bad = [row for row in rows if isinstance(row, QuarantineRow)]
    assert [type(row) for row in rows] == [RawRow, QuarantineRow, RawRow, QuarantineRow, QuarantineRow]
    assert {row.rule for row in bad} == {"csv_row"}
    assert bad[0].row_locator == f"line {good.count(chr(10)) + 1}"
    assert bad[0].value.endswith("3 fields, the header has 6")
    assert json.loads(bad[0].raw_json) == {"line": "only,three,fields\n"}
    assert "7 fields" in bad[1].value
    assert json.loads(bad[2].raw_json) == {"line": '"bad" quote,2\n'}


def test_a_csv_file_cut_inside_a_quote_is_damaged(tmp_path: Path, make_row: MakeRow) -> None:
    path = _csv(tmp_path / "x.csv", [make_row(0), make_row(1)])
    path.write_text(path.read_text()[:-400])
    with pytest.raises(SourceError, match=r"x\.csv: line \d+: .*a quote is never closed"):
        list(read_source(path).rows())


def test_a_csv_speedup_that_is_no_number_stays_text_for_the_contract(tmp_path: Path, make_row: MakeRow) -> None:
    rows = [make_row(n, speedup_over_eager=text) for n, text in enumerate(["fast", "nan", "1e3", "2.0 x"])]
    found = [row.values["speedup_over_eager"] for row in read_source(_csv(tmp_path / "x", rows)).rows()
             if isinstance(row, RawRow)]
    assert [repr(value) for value in found] == ["'fast'", "nan", "1000.0", "'2.0 x'"]


def test_a_json_array_is_read_item_by_item_across_windows(tmp_path: Path, make_row: MakeRow) -> None:
    rows = [make_row(number, generated_think="é" * (700_000 + number)) for number in range(5)]
    path = tmp_path / "x.json"
    path.write_text(json.dumps(rows, indent=1, ensure_ascii=False), "utf-8")
    assert [row.values for row in read_source(path).rows() if isinstance(row, RawRow)] == rows
    path.write_text(path.read_text("utf-8")[:-3] + "\n,]", "utf-8")
    with pytest.raises(SourceError, match=r"not valid JSON at line \d+, column \d+"):
        list(read_source(path).rows())


@pytest.mark.parametrize("text", ["[1, 2] 3", "[1, 2", "[1 2]", '[{"a": 1}, {"a": 2]', "[" * 100_000])
def test_json_that_is_no_array_of_rows_names_the_place(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(SourceError, match=r"x\.json"):
        list(read_source(path).rows())


def test_a_folder_is_read_in_order_and_what_is_no_data_is_named(tmp_path: Path, make_row: MakeRow) -> None:
    for date in ("2026-11-30", "2026-11-29"):
        folder = tmp_path / f"dt={date}"
        folder.mkdir()
        _write(folder / "rows.parquet", [make_row(0)], "parquet")
    _compress(_csv(tmp_path / "more.csv", [make_row(1)]), "gzip")
    (tmp_path / "README.md").write_text("about")
    (tmp_path / "_temporary").mkdir()
    _write(tmp_path / "_temporary" / "half.parquet", [make_row(2)], "parquet")
    (tmp_path / ".hidden.jsonl").write_text("{")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n")
    files, notes = files_below(tmp_path)
    assert [path.relative_to(tmp_path).as_posix() for path in files] == [
        "dt=2026-11-29/rows.parquet", "dt=2026-11-30/rows.parquet", "more.csv",
    ]  # fmt: skip
    assert len(notes) == 1 and "picture.png" in notes[0]
    (tmp_path / "dt=2026-11-30" / "rows.parquet").write_bytes(b"")
    with pytest.raises(SourceError, match=r"rows\.parquet: the file is empty"):
        files_below(tmp_path)


def test_a_folder_without_data_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "notes.log").write_text("hello")
    with pytest.raises(UsageError, match=r"no file that can be read.*notes\.log"):
        files_below(tmp_path)


def test_local_files_are_named_without_their_place(tmp_path: Path, make_row: MakeRow,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    path = _write(tmp_path / "data" / "x.json", [make_row(0)], "json")
    assert read_source(path).file.uri == "x.json"
    monkeypatch.chdir(tmp_path)
    assert read_source(path).file.uri == "data/x.json"
