"""Fine-tune on a dataset version."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from dice_core.curation.cuke import verify_version
from dice_core.errors import UsageError
from dice_core.model.prompts import generation_prompt, kernel_response
from dice_core.train.metrics import StepMetrics
from dice_core.train.packing import TextPair
from dice_core.train.recipes import recipe_named
from dice_core.train.sft import TrainResult, train
from tasks.context import Run


@dataclass(frozen=True)
class DatasetRef:
    """A dataset version in the lake."""

    id: str
    name: str
    path: Path
    merkle_root: str
    n_records: int


@task(cache_policy=NO_CACHE)
def find_dataset(run: Run, version_id: str) -> DatasetRef:
    """The dataset version with that id, or the `latest`.

    Raises:
        UsageError: there is none.
    """
    with run.lake() as lake:
        found = lake.query(
            "select dataset_version_id, name, path, merkle_root, n_records from dataset_version "
            "where ? in ('latest', dataset_version_id) order by created_at desc, dataset_version_id limit 1",
            (version_id,),
        ).to_pylist()
    if not found:
        raise UsageError(f"no dataset version {version_id!r} in this home: run `dice run curate` first, "
                         "or see `dice datasets`")
    [row] = found
    # The home may have been moved since: the folder is named by the version.
    path = run.settings.datasets_dir / row["name"] / row["dataset_version_id"]
    return DatasetRef(row["dataset_version_id"], row["name"], path, row["merkle_root"], row["n_records"])


@task(cache_policy=NO_CACHE)
def load_documents(run: Run, version: DatasetRef, recipe: str) -> list[TextPair]:
    """Verify the version's files and read its training split as prompts and responses."""
    import pyarrow.parquet as pq

    verify_version(version.path)
    form = recipe_named(recipe).prompt_form
    columns = ["record_id", "pytorch_code", "kernel_code"]
    rows = pq.ParquetFile(version.path / "train.parquet").read(columns=columns, use_threads=False).to_pylist()
    return [TextPair(row["record_id"], generation_prompt(row["pytorch_code"], form),
                     kernel_response(row["kernel_code"])) for row in rows]


@task(cache_policy=NO_CACHE, tags=["train"])
def fine_tune(run: Run, version: DatasetRef, recipe: str, documents: list[TextPair]) -> TrainResult:
    """Train, or go on with a training that was killed."""
    chosen = recipe_named(recipe)

    def show(step: StepMetrics) -> None:
        run.progress("train", step.step, chosen.steps, f"loss {step.loss:.3f}  {step.tokens_per_s:,.0f} tokens/s")

    run.progress("train", 0, chosen.steps, "loading")
    return train(chosen, documents, run.settings.training_dir / f"{recipe}-{version.id}", show, run.device)
