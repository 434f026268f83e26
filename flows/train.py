"""A CuKe version in, a registered model out."""

from __future__ import annotations

from prefect import flow

from flows.outcome import Outcome
from tasks.context import Run
from tasks.register import model_of, register
from tasks.train import find_dataset, fine_tune, load_documents


@flow(name="train", validate_parameters=False)
def train(run: Run, dataset: str = "latest", recipe: str = "tiny") -> Outcome:
    """Supervised fine-tuning with the block-diffusion objective; the model gets the alias `candidate`."""
    version = find_dataset(run, dataset)
    if known := model_of(run, version, recipe):
        return Outcome("train", False, {"model": known.name_and_version, "model_version": known.model_version_id})
    documents = load_documents(run, version, recipe)
    trained = fine_tune(run, version, recipe, documents)
    model = register(run, version, recipe, trained)
    facts = {"model": model.name_and_version, "model_version": model.model_version_id, "dataset_version": version.id,
             "documents": trained.documents, "dropped": len(trained.dropped), "steps": len(trained.history),
             "first_loss": round(trained.history[0].loss, 3), "last_loss": round(trained.history[-1].loss, 3)}
    return Outcome("train", True, facts)
