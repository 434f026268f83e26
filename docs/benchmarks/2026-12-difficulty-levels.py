"""Compare our difficulty levels with DICE's 4,000 judged tasks and KernelBench's levels; write the .md beside this.

    python docs/benchmarks/2026-12-difficulty-levels.py DATA

DATA holds dice/end_to_end_kernel_generation_4000.json and kernelbench/kernelbench_v0_2.parquet. The readings are ours:
30 of the differing tasks, drawn by seed 0, read by a person's standard (what has to be computed), `rule`, `dice` or
`either`.
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq

from dice_core.curation.difficulty import LEVELS, RULE_VERSION, Difficulty, difficulty
from dice_core.files import sha256_file, write_atomic

HERE = Path(__file__)
READINGS = {
    65: ("rule", "sigmoid, then a convolution: two operators"),
    122: ("rule", "a similarity and a remainder"),
    164: ("rule", "padding, two comparisons and their union"),
    168: ("rule", "interpolation and a search in boundaries"),
    171: ("either", "the minimum repeats what the clamp did"),
    221: ("rule", "a normalisation and a product scan"),
    222: ("dice", "split and cat cancel: floor is all there is"),
    233: ("dice", "logspace writes into its input, which the rule takes for a new tensor"),
    321: ("rule", "a flip and a bitwise operator"),
    340: ("rule", "pooling and rounding"),
    380: ("rule", "three operators in a row"),
    391: ("either", "two operators that do not meet: no fusion, but no single operator"),
    431: ("rule", "clamp and pooling"),
    463: ("rule", "square root and convolution"),
    472: ("rule", "a test and a normalisation"),
    478: ("dice", "the first loss is thrown away: one operator is left"),
    500: ("rule", "a test and a reduction"),
    543: ("rule", "convolution and argmin"),
    548: ("dice", "stack(tuple(x)) is x again: the flip is all there is"),
    597: ("rule", "a reshape computes nothing"),
    974: ("rule", "a clone computes nothing"),
    1572: ("rule", "Linear, tan, minimum, Linear: the form of both tasks that DICE calls whole models"),
    1851: ("rule", "a clone computes nothing"),
    2061: ("rule", "a clone computes nothing"),
    2611: ("rule", "a clone computes nothing"),
    2669: ("rule", "a clone computes nothing"),
    2745: ("rule", "a clone computes nothing"),
    3107: ("rule", "a flatten computes nothing"),
    3171: ("rule", "a transpose computes nothing"),
    3614: ("rule", "one operator on a tensor and its own copy"),
}


def matrix(pairs: Sequence[tuple[int, int]], theirs: Sequence[int]) -> list[str]:
    """A confusion matrix in Markdown."""
    counts = Counter(pairs)
    lines = ["| theirs \\ rule | " + " | ".join(str(level) for level in LEVELS) + " | same |", "|---|" + "---:|" * 5]
    for level in theirs:
        row = [counts[level, ours] for ours in LEVELS]
        same = counts[level, level] / sum(row) if sum(row) else 0.0
        lines.append(f"| {level} | " + " | ".join(map(str, row)) + f" | {same:.0%} |")
    return lines


def kappa(pairs: Sequence[tuple[int, int]]) -> tuple[float, float]:
    """Observed agreement and Cohen's kappa."""
    n = len(pairs)
    same = sum(a == b for a, b in pairs) / n
    left, right = Counter(a for a, _ in pairs), Counter(b for _, b in pairs)
    chance = sum(left[level] * right[level] for level in LEVELS) / n**2
    return same, (same - chance) / (1 - chance)


def main(data: Path) -> None:
    """Read the data, compare, write the page."""
    dice_file = data / "dice" / "end_to_end_kernel_generation_4000.json"
    bench_file = data / "kernelbench" / "kernelbench_v0_2.parquet"
    items = json.loads(dice_file.read_text(encoding="utf-8"))
    found: list[Difficulty] = [difficulty(item["pytorch_code"]) for item in items]
    dice = [(int(item["level"]), one.level) for item, one in zip(items, found, strict=True)]
    differing = [number for number, (theirs, ours) in enumerate(dice) if theirs != ours]
    sample = sorted(random.Random(0).sample(differing, 30))
    if set(sample) != READINGS.keys():
        raise SystemExit(f"the sample has changed, read again: {sorted(set(sample) ^ READINGS.keys())}")
    rows = [row for row in pq.ParquetFile(bench_file).read().to_pylist() if row["level"] <= 3]
    bench = [(row["level"], difficulty(row["code"]).level) for row in rows]
    same, chance_free = kappa(dice)
    bench_same, bench_kappa = kappa(bench)
    two = Counter(int(item["level"]) for item, one in zip(items, found, strict=True)
                  if len(one.traits.operators) == 2 and one.level == 2)
    right = Counter(verdict for verdict, _ in READINGS.values())
    told = sum(one.parameters is not None for one in found)
    lines = [
        "# Difficulty levels by rule, against DICE's judge and KernelBench",
        "",
        (f"`dice_core/curation/difficulty.py`, rule version {RULE_VERSION}. Made by "
        f"`python docs/benchmarks/{HERE.name} DATA`; no number here is typed."),
        (f"Inputs: `{dice_file.name}` (sha256 {sha256_file(dice_file)[:16]}), `{bench_file.name}` "
        f"(sha256 {sha256_file(bench_file)[:16]})."),
        "",
        "Levels: " + ", ".join(f"{level} {name}" for level, name in LEVELS.items()) + ".",
        "",
        f"## DICE's {len(items):,} tasks, levels by a language model that saw module and kernel",
        "",
        *matrix(dice, (0, 1, 2, 3)),
        "",
        (f"Agreement {same:.1%}, Cohen's kappa {chance_free:.2f}. "
        f"{sum(a == 2 for a, _ in dice) / len(dice):.0%} of the tasks carry level 2, so an answer of 2 for everything "
        "would agree about as often; kappa says how little the judge's levels follow from the module. The judge is not "
        f"consistent: of the {two.total():,} tasks with exactly two operators it called {two[1]} a single operator and "
        f"{two[2]:,} a fusion."),
        "",
        f"## KernelBench's {len(rows)} tasks of levels 1 to 3, levels by people",
        "",
        *matrix(bench, (1, 2, 3)),
        "",
        (f"Agreement {bench_same:.1%}, Cohen's kappa {bench_kappa:.2f}. Its level 1 holds operators that are written "
        "out in several (RMSNorm, Swish, MSELoss), which the rule calls fusions. Of its level 3 the rule takes "
        "for fusions blocks with at most one weighted layer, and models whose layers it does not find (Swin)."),
        "",
        f"## {len(sample)} of the {len(differing)} tasks that differ from DICE, drawn by seed 0 and read",
        "",
        f"The rule is right in {right['rule']}, DICE's judge in {right['dice']}, either in {right['either']}.",
        "",
        "| idx | DICE | rule | operators | right | why |",
        "|---:|---:|---:|---|---|---|",
        *(f"| {number} | {items[number]['level']} | {found[number].level} | "
          f"{', '.join(found[number].traits.operators) or '-'} | {READINGS[number][0]} | {READINGS[number][1]} |"
          for number in sample),
        "",
        ("Known limits of the rule: it does not see that operators cancel or that a result is thrown away, and takes "
        "`out=` for a new tensor."),
        "",
        f"Parameters could be told from the text alone for {told:,} of {len(items):,} tasks ({told / len(items):.0%}).",
    ]
    print(write_atomic(HERE.with_suffix(".md"), "\n".join(lines) + "\n"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
