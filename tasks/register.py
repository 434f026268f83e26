"""Register a trained model in MLflow and in the lake."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from prefect import task
from prefect.cache_policies import NO_CACHE

from dice_core.records import make_id, utc_now
from dice_core.tracking import ModelVersion, Tracker
from dice_core.train.recipes import recipe_named
from dice_core.train.sft import TrainResult
from tasks.context import Run
from tasks.train import DatasetRef


@dataclass(frozen=True)
class ModelRef:
    """A registered model as the lake knows it."""

    model_version_id: str
    name_and_version: str  #: `name/version`, as `--model` takes it


def model_version_id(model: ModelVersion) -> str:
    """Id from the weights and the data they were trained on."""
    return make_id("mdl", {"weights": model.weights_sha256, "dataset": model.dataset_version_id})


@task(cache_policy=NO_CACHE)
def model_of(run: Run, version: DatasetRef, recipe: str) -> ModelRef | None:
    """The model that this recipe made from this dataset version earlier, if it did."""
    with run.lake() as lake:
        found = lake.query(
            "select model_version_id, name, version from model_version where dataset_version_id = ? and recipe_id = ? "
            "order by created_at desc limit 1", (version.id, recipe_named(recipe).digest),
        ).to_pylist()
    return ModelRef(found[0]["model_version_id"], f"{found[0]['name']}/{found[0]['version']}") if found else None


@task(cache_policy=NO_CACHE, tags=["mlflow"])
def register(run: Run, version: DatasetRef, recipe: str, trained: TrainResult) -> ModelRef:
    """Log the training to MLflow, register the model with alias `candidate`, commit its rows."""
    run.progress("register", 0, 1, "logging to MLflow")
    chosen = recipe_named(recipe)
    environment = {"environment_id": run.environment_id, **run.environment.identity, **run.environment.facts}
    tracker = Tracker(run.settings.home)
    with tracker.start_training_run(chosen.as_params(), version.id, version.merkle_root, environment,
                                    name=f"{recipe} on {version.id[:12]}") as logged:
        logged.log_curve(trained.history)
        last = trained.history[-1]
        metrics = {"wall_s": trained.wall_s, "final_loss": last.loss, "parameters": float(trained.parameters),
                   "documents": float(trained.documents), "dropped": float(len(trained.dropped))}
        logged.log_metrics(metrics)
        logged.set_tags({"dice.run": run.run_id, "dice.recipe": recipe, "dice.environment": run.environment_id})
        model = logged.register(trained.model_folder, trained.weights_sha256, model_name=f"dice-{recipe}")
    identity = model_version_id(model)
    rows = {
        "model_version": [{
            "model_version_id": identity, "name": model.name, "version": str(model.version),
            "recipe_id": chosen.digest, "dataset_version_id": version.id, "mlflow_run_id": model.run_id,
            "digests_json": json.dumps({"model.safetensors": model.weights_sha256}),
            "metrics_json": json.dumps(metrics), "created_at": utc_now(),
        }],
        "training_step": [
            {"model_version_id": identity, "step": one["step"], "loss": one["loss"], "learning_rate": one["lr"],
             "gradient_norm": one["grad_norm"], "tokens": round(one["tokens_per_s"] * one["step_s"]),
             "seconds": one["step_s"]}
            for one in map(asdict, trained.history)
        ],
    }
    with run.lake() as lake:
        lake.commit(rows, message=f"model {model.name}/{model.version}", run_id=run.run_id)
    run.progress("register", 1, 1, f"{model.name}/{model.version}")
    return ModelRef(identity, f"{model.name}/{model.version}")
