"""Structural augmentation: structures of language models with kernels from a generator."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from prefect import task
from prefect.cache_policies import NO_CACHE

from dice_core.curation import pipeline
from dice_core.curation.augmentation import augmented_records
from dice_core.curation.endpoint import Budget, Endpoint, EndpointConfig
from dice_core.curation.endpoint_generator import AnswerCache, EndpointGenerator, Prompts
from dice_core.curation.generators import KernelGenerator, OfflineLibrary
from dice_core.curation.honesty import check_honesty
from dice_core.curation.pipeline import CurationConfig, Measurements, Step
from dice_core.curation.structures import load_structures
from dice_core.errors import UsageError
from dice_core.records import SourceFile, TrainingRecord
from dice_core.settings import Settings, generator_key
from tasks.context import DATASETS, Run
from tasks.generate import ModelGenerator

STRUCTURES = DATASETS / "structures"
PROMPTS = STRUCTURES / "prompts"


@task(cache_policy=NO_CACHE)
def propose(run: Run) -> tuple[SourceFile, list[TrainingRecord]]:
    """The records that the generator offers for this device at the chosen sizes; unverified.

    What an endpoint answered is on disk as it comes, so a killed run asks for the rest only.
    """
    library = OfflineLibrary(load_structures(STRUCTURES))
    settings = run.settings
    tasks = library.tasks(run.device, sets=settings.augment_sets, drawn=settings.augment_drawn, seed=settings.seed)
    with _generator(run, library) as generator:
        source, records = augmented_records(STRUCTURES, generator, tasks)
        run.progress("propose", 1, 1, f"{len(records)} kernels for {len(tasks)} problems from {generator.name}")
        if isinstance(generator, EndpointGenerator):
            spent, found = generator.budget, sorted(generator.outcomes.items())
            cost = f", cost {spent.cost:.4f}" if spent.price_in or spent.price_out else ""
            run.progress("answers", 1, 1, ", ".join(f"{name} {count}" for name, count in found))
            run.progress("spent", 1, 1, f"{spent.requests} requests, tokens {spent.tokens_in} in, "
                                        f"{spent.tokens_out} out{cost}")
    return source, records


def worth_measuring(records: Sequence[TrainingRecord]) -> list[TrainingRecord]:
    """Those whose text is not deceptive: the others never run; `keep_verified` records why."""
    return check_honesty(records)[0]


@task(cache_policy=NO_CACHE)
def keep_verified(run: Run, records: list[TrainingRecord], config: CurationConfig, measured: Measurements) -> Step:
    """Keep those that the arena found correct, honest and fast enough."""
    step = pipeline.augment(records, config, measured)
    run.progress("augment", 1, 1, f"{step.counters['kept']} kept of {step.counters['in']}")
    return step


def generator_identity(settings: Settings) -> dict[str, str]:
    """What the proposed kernels depend on besides the structures; part of a curation's identity.

    Raises:
        UsageError: the generator's settings cannot work.
    """
    if settings.generator == "library":
        return {}
    if settings.generator == "endpoint":
        config = _endpoint_config(settings)
        config.check()
        return {**config.sampling, "prompts": Prompts.read(PROMPTS).digest}
    return ModelGenerator.identity(settings)


@contextlib.contextmanager
def _generator(run: Run, library: OfflineLibrary) -> Iterator[KernelGenerator]:
    settings = run.settings
    if settings.generator == "library":
        yield library
    elif settings.generator == "endpoint":
        budget = Budget(settings.generator_token_budget, settings.generator_cost_budget, settings.generator_price_in,
                        settings.generator_price_out)
        if settings.generator_cost_budget and not (settings.generator_price_in or settings.generator_price_out):
            raise UsageError("generator_cost_budget needs generator_price_in and generator_price_out")
        with Endpoint(_endpoint_config(settings)) as endpoint:
            yield EndpointGenerator(endpoint, Prompts.read(PROMPTS), AnswerCache(settings.answers_dir), budget,
                                    lambda note: run.progress("propose", 0, 1, note))
    else:
        yield ModelGenerator(settings, run.device)


def _endpoint_config(settings: Settings) -> EndpointConfig:
    return EndpointConfig(
        settings.generator_url, settings.generator_model, generator_key(), settings.generator_temperature,
        settings.generator_max_tokens, settings.generator_timeout_s,
        requests_per_minute=settings.generator_requests_per_minute,
    )
