"""Write the page of the build benchmark from a folder that was run. See 2026-12-h200-build.sh."""

from __future__ import annotations

import json
import statistics
import sys
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
NAME = "2026-12-h200-build"
HOW = """Each kernel is built by both sides one after the other in the same worker, so that both see the same load: ours
with a cold cache (the light kit is made before; its cost is under Environment), torch with a cold TORCH_EXTENSIONS_DIR.
CPU seconds are those of the building process and its children, without the import of torch. Device code (SASS) is
compared instruction by instruction, text and encoding, for each kernel of the two libraries. Outputs are those of the
candidate's module on the same inputs and state with either library."""


def _tables(box: Path) -> str:
    """The measured tables as Markdown."""
    results = sorted(_read_lines(box / "results.jsonl"), key=lambda one: one["id"])
    good = [
        one for one in results if one["ours"]["status"] == one["theirs"]["status"] == "ok" and not one["ours"]["cached"]
    ]
    lines = [f"{len(results)} kernels compared, {len(good)} built by both sides.", ""]
    if good:
        lines += ["| | ours | load_inline | ratio |", "| --- | ---: | ---: | ---: |"]
        for label, key in (("CPU seconds", "cpu_s"), ("wall seconds", "wall_s")):
            ours, theirs = ([one[side][key] for one in good] for side in ("ours", "theirs"))
            ratios = [b / a for a, b in zip(ours, theirs, strict=True)]
            quarters = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
            lines.append(
                f"| {label}, median | {statistics.median(ours):.2f} | {statistics.median(theirs):.2f} | "
                f"{statistics.median(ratios):.1f} (quartiles {quarters[0]:.1f} to {quarters[2]:.1f}) |"
            )
            lines.append(f"| {label}, sum | {sum(ours):.0f} | {sum(theirs):.0f} | {sum(theirs) / sum(ours):.1f} |")
    for title, counts in (
        ("Header tier of ours", Counter(f"{one['ours']['tier'] or '-'} {one['ours']['status']}" for one in results)),
        ("load_inline", Counter(one["theirs"]["status"] for one in results)),
        ("Device code (SASS) of the two", Counter(one["sass"]["is"] for one in results)),
        ("Outputs of the two", Counter(one["outputs"]["is"] for one in results)),
    ):
        lines += ["", f"{title}: " + ", ".join(f"{name} {count}" for name, count in counts.most_common())]
    every = _read_lines(box / "all-results.jsonl")
    if every:
        shares = Counter(f"{one['tier'] or '-'} {one['status']}" for one in every)
        lines += [
            "",
            f"All {len(every)} distinct requests of candidates that compiled for their owners, ours alone: "
            + ", ".join(f"{name} {count} ({count / len(every):.1%})" for name, count in shares.most_common()),
        ]
        if (box / "all.json").exists():
            told = json.loads((box / "all.json").read_text())
            lines += [
                "",
                f"The last batch: {told['built']} builds in {told['wall_s']:.0f} s wall, {told['cpu_s']:.0f} s CPU.",
            ]
    lines += [
        "",
        "| kernel | tier | ours CPU s | load_inline CPU s | ratio | SASS | outputs |",
        "| --- | --- | ---: | ---: | ---: | --- | --- |",
    ]
    for one in results:
        a, b = one["ours"]["cpu_s"], one["theirs"]["cpu_s"]
        lines.append(
            f"| {one['id']} | {one['ours']['tier']} {one['ours']['status']} | {a:.2f} | {b:.1f} | "
            f"{b / a if a else 0:.1f} | {one['sass']['is']} | {one['outputs']['is']} |"
        )
    odd = [
        one
        for one in results
        if one["sass"]["is"] == "different"
        or one["outputs"]["is"] not in ("same bits", "not compared", "as far apart as ours from itself")
    ]
    for one in odd:
        lines += ["", f"`{one['id']}`: `{json.dumps({k: one[k] for k in ('sass', 'outputs')})[:1200]}`"]
    return "\n".join(lines)


def report(box: Path) -> None:
    """Write the Markdown page and the raw lines beside this script."""
    facts, environment = (json.loads((box / name).read_text()) for name in ("facts.json", "environment.json"))
    text = (
        "# Build farm against load_inline\n\n"
        f"Command: [{NAME}.sh]({NAME}.sh). Raw lines: [{NAME}.jsonl]({NAME}.jsonl).\n\n{HOW}\n\n"
        f"## Measured\n\n{_tables(box)}\n\n## Candidates\n\n```json\n{json.dumps(facts, indent=1)}\n```\n\n"
        f"## Environment\n\n```json\n{json.dumps(environment, indent=1)}\n```\n"
    )
    (HERE / f"{NAME}.md").write_text(text)
    raw = [
        {
            **one,
            "ours": {k: v for k, v in one["ours"].items() if k not in ("result", "log", "artefact")},
            "theirs": {k: v for k, v in one["theirs"].items() if k not in ("log", "artefact")},
        }
        for one in _read_lines(box / "results.jsonl")
    ]
    _write_lines(HERE / f"{NAME}.jsonl", raw)


def _read_lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    lines = path.read_text().splitlines()
    return [json.loads(line) for line in lines if line.endswith("}")]


def _write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    report(Path(sys.argv[1]))
