"""The dataset card of a CuKe version, in Hugging Face's form: what is in it, what is not, and on what evidence."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from dice_core.curation.croissant import COLUMNS
from dice_core.curation.difficulty import LEVELS, level_of
from dice_core.curation.operators import module_traits
from dice_core.curation.speedup_filter import DEFAULT_THRESHOLD
from dice_core.errors import SourceError

if TYPE_CHECKING:
    from dice_core.curation.cuke import CukeVersion

_STEPS = {
    "ingest": "read from the sources",
    "contract": "keeps the contract",
    "dedup": "no duplicate",
    "overlap": "checked against the benchmark",
    "honesty": "not deceptive by its text",
    "speedup": "fast enough",
    "augment": "augmentation, verified by the arena",
    "cuke": "in this version",
}


_CARD = """\
---
pretty_name: CuKe
license: other
license_name: see-sources
task_categories:
- text-generation
tags:
- code
- cuda
- kernels
size_categories:
- {size}
configs:
- config_name: default
  data_files:
{splits}
---

# CuKe: PyTorch modules and the kernels that accelerate them

Version `{version_id}`, made by curation `{curation_id}`. Merkle root `{merkle_root}` (RFC 6962 over the sorted record
ids).

{members} pairs: {train} train, {validation} validation. The split is by problem family: records that share a problem
name, a module structure, a structure label or a parent are never divided.

## Funnel

{funnel}
## Evidence

{evidence}
## Difficulty

{levels}
## Honesty

{honesty}
## Overlap with the benchmark

{overlap}
## Sources

{sources}
## Configuration

{config}
## Environment of the measurements

{environment}
## Use

```python
import datasets

cuke = datasets.load_dataset("parquet", data_files={data_files})
```

`sft_train.json` and `sft_validation.json` hold the same pairs as `prompt` and `response`. `croissant.json` describes
the columns for dataset tools, `manifest.json` lists the member ids and the sha256 of every file.

## Columns

{columns}"""

#: Upper bounds of Hugging Face's size categories.
_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))


def dataset_card(version: CukeVersion) -> str:
    """The card as Markdown with YAML front matter; equal versions give equal text."""
    recipe = version.recipe
    columns = ("uri", "revision", "licence", "size_bytes", "sha256")
    count = len(version.members)
    # The `datasets` package has no empty splits: one without members is not announced.
    parts = [part for part in ("train", "validation") if version.count(part)]
    return _CARD.format(
        splits="\n".join(f"  - split: {part}\n    path: {part}.parquet" for part in parts),
        data_files=json.dumps({part: f"{part}.parquet" for part in parts}),
        size=next((name for bound, name in _SIZES if count < bound), "1M<n<10M"),
        columns=_table(("column", "meaning"), [[name, meaning] for name, (_, meaning) in COLUMNS.items()]),
        levels=_levels(version),
        version_id=version.version_id,
        curation_id=recipe.curation_id,
        merkle_root=version.merkle_root,
        members=count,
        train=version.count("train"),
        validation=version.count("validation"),
        funnel=_funnel(version),
        evidence=_evidence(version),
        honesty=_honesty(version),
        overlap=_overlap(version),
        sources=_table(columns, [[str(source[name]) for name in columns] for source in recipe.sources]),
        config=_mapping(recipe.config),
        environment=_environment(version),
    )


def _funnel(version: CukeVersion) -> str:
    rows = []
    for step, counters in version.funnel.items():
        out = {name[4:]: value for name, value in counters.items() if name.startswith("out:") and value}
        reasons = ", ".join(f"{reason} {value}" for reason, value in sorted(out.items(), key=lambda x: (-x[1], x[0])))
        rows.append([step, _STEPS.get(step, ""), str(counters["in"]), str(counters["kept"]), reasons])
    return _table(("step", "kept means", "in", "kept", "left out, by reason"), rows)


def _evidence(version: CukeVersion) -> str:
    counts = Counter(member.evidence for member in version.members)
    threshold = version.recipe.config.get("threshold", f"{DEFAULT_THRESHOLD:g}")
    text = (
        f"- measured: {counts['measured']} pairs, timed by our own arena; the threshold applies to the lower end of "
        "the 95% interval.\n"
        f"- claimed: {counts['claimed']} pairs, on the source's own number alone, which nobody here has checked.\n\n"
        f"Threshold: {threshold}x over eager PyTorch.\n"
    )
    if held := version.funnel.get("speedup", {}).get("out:infra_retry", 0):
        text += f"\nHeld back until they can be measured again: {held}.\n"
    return text


def _levels(version: CukeVersion) -> str:
    counts: Counter[tuple[str, str]] = Counter()
    for member in version.members:
        part = version.splits[member.record.record_id]
        try:
            level = level_of(module_traits(member.record.pytorch_code))
            counts[f"{level} {LEVELS[level]}", part] += 1
        except SourceError:
            counts["unknown", part] += 1
    names = sorted({name for name, _ in counts})
    rows = [[name, str(counts[name, "train"]), str(counts[name, "validation"])] for name in names]
    return "Of the modules, by parsing (operators, layers):\n\n" + _table(("level", "train", "validation"), rows)


def _honesty(version: CukeVersion) -> str:
    dropped: Counter[str] = Counter()
    flagged: Counter[str] = Counter()
    members = {member.record.record_id for member in version.members}
    for decision in version.decisions:
        if decision.step == "honesty" and decision.verdict == "drop":
            dropped[decision.rule] += 1
        elif decision.step == "honesty" and decision.verdict == "flag" and decision.record_id in members:
            flagged[decision.rule] += 1
        elif decision.rule == "deceptive":
            dropped["deceptive when run"] += 1
    classes = Counter(str(m.measurement.honesty) for m in version.members if m.measurement)
    text = (
        "A deceptive kernel leaves the work to the library, or never runs its own code. A kernel may show several.\n\n"
    )
    text += _table(
        ("found", "kernels left out", "members with this flag"),
        [[rule, str(dropped[rule]), str(flagged[rule])] for rule in sorted(set(dropped) | set(flagged))],
    )
    if classes:
        text += "\nHonesty class when run, of the measured members: "
        text += ", ".join(f"{name} {count}" for name, count in sorted(classes.items())) + ".\n"
    return text


def _overlap(version: CukeVersion) -> str:
    rules = Counter((d.rule, d.verdict) for d in version.decisions if d.step == "overlap")
    if not rules or any(rule == "not_checked" for rule, _ in rules):
        return (
            "**Not checked**: no benchmark suite was given. Do not evaluate on KernelBench what was trained on this.\n"
        )
    rows = [[rule, verdict, str(count)] for (rule, verdict), count in sorted(rules.items())]
    return _table(("finding", "verdict", "records"), rows)


def _environment(version: CukeVersion) -> str:
    measured = [member.measurement for member in version.members if member.measurement]
    if not measured:
        return "Nothing in this version was measured.\n"
    ids = Counter((m.environment_id, m.device) for m in measured)
    text = _table(
        ("environment", "device", "pairs"), [[name, device, str(n)] for (name, device), n in sorted(ids.items())]
    )
    if version.recipe.environment:
        text += "\n" + _mapping(version.recipe.environment)
    return text


def _mapping(values: Mapping[str, str]) -> str:
    return _table(("name", "value"), [[name, value] for name, value in sorted(values.items())])


def _table(head: tuple[str, ...], rows: list[list[str]]) -> str:
    if not rows:
        return "None.\n"
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
