"""Augmented records: a structure's module with the kernel that a generator wrote for it. Claims until measured."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from dice_core.curation.generators import KernelGenerator
from dice_core.curation.structures import StructureTask
from dice_core.files import sha256_bytes
from dice_core.records import SourceFile, TrainingRecord, make_id, utc_now


def augmented_records(
    folder: Path, generator: KernelGenerator, tasks: Iterable[StructureTask]
) -> tuple[SourceFile, list[TrainingRecord]]:
    """Let a generator write a kernel for each task. A task that it has none for is left out.

    Args:
        folder: the structures' folder; its content is the records' source.
        generator: who writes the kernels.
        tasks: the structures at their sizes.

    Returns:
        The source (one for the whole folder) and the records in task order.
    """
    texts = {path.name: path.read_bytes() for path in sorted(folder.glob("*.toml"))}
    source = SourceFile(
        uri=f"{folder.name}/ by {generator.name}", revision="", licence="Apache-2.0", fetched_at=utc_now(),
        sha256=sha256_bytes("".join(f"{name}:{sha256_bytes(data)}\n" for name, data in texts.items())),
        size_bytes=sum(len(data) for data in texts.values()),
    )
    records = []
    for task in tasks:
        kernel = generator.generate(task)
        if kernel is None:
            continue
        sizes = ",".join(f"{name}={size}" for name, size in task.dims.items())
        drawn = "" if task.seed is None else f" drawn with seed {task.seed}"
        records.append(TrainingRecord(
            source_file_id=source.source_file_id, row_locator=f"{task.family}/{task.name}/{sizes}{drawn}",
            uuid=make_id("aug", {"problem": task.problem_name, "device": task.device}),
            problem_name=task.problem_name, pytorch_code=task.pytorch_code, kernel_code=kernel,
            origin="augmentation", structure=task.name,
        ))
    return source, records
