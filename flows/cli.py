"""The `dice` command. Each verb mirrors one library call; heavy libraries are imported inside the verb that needs them.

stdout carries data, stderr carries talk. Exit codes are those of `dice_core.errors`; 130 means interrupted.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from dice_core import __version__
from dice_core.errors import DiceError
from flows import console
from flows.cli_datasets import datasets_app
from flows.options import DryRun, Json, finish, settings_of

#: Exit code of an interrupted command, by shell convention.
INTERRUPTED = 130

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
                  help="From PyTorch-to-CUDA kernel data to block-diffusion models and honest KernelBench numbers.")
run_app = typer.Typer(no_args_is_help=True, help="Run a flow: curate, train, evaluate, or nightly (all of them).")
bundle_app = typer.Typer(no_args_is_help=True, help="Measure on a machine that has only torch, numpy and pyarrow.")
models_app = typer.Typer(invoke_without_command=True, help="Registered models; alone it lists them.")
config_app = typer.Typer(no_args_is_help=True, help="Configuration.")
for name, group in (("run", run_app), ("bundle", bundle_app), ("datasets", datasets_app), ("models", models_app),
                    ("config", config_app)):
    app.add_typer(group, name=name)

Device = Annotated[str | None, typer.Option(help="auto, cpu or cuda.")]
Plan = Annotated[str | None, typer.Option(help="Timing plan: quick or standard.")]
Name = Annotated[str, typer.Option(help="Name of the evaluation; also its run folder.")]
SOURCES_HELP = ("Files or folders (Parquet, Arrow, JSON, JSONL, CSV; plain, gzip or zstd), or "
                "hf://datasets/OWNER/NAME@REVISION/PATH (revision and path may be left out). DATASET= before one says "
                "which declared data set it is; else its columns tell.")
Dataset = Annotated[str, typer.Option(help="Data set of the sources: a declared name, or the path of a source.toml.")]
Licence = Annotated[str, typer.Option(help="Licence of the sources, instead of what their source.toml says.")]
JoinFile = Annotated[Path | None, typer.Option("--join", help="File that rows are completed from, where they only name "
                                               "their problem.")]
AcceptColumns = Annotated[bool, typer.Option("--accept-columns", help="Take the columns as they are, though they have "
                                             "changed since they were last curated here.")]
Suite = Annotated[Path | None, typer.Option(help="Problems: Parquet, JSONL or a folder level<L>/<n>_<name>.py "
                                                 "(default: the bundled tasks).")]
Problems = Annotated[str, typer.Option(help="Which problems, e.g. 1, 1/19, 1/1-20,2/3 (default: all).")]
Sizes = Annotated[list[str] | None, typer.Option("--size", help="Replace size constants of a problem, recorded in its "
                                                 "variant: level/number:NAME=value[,NAME=value]. Repeatable.")]


@app.callback()
def _common(
    context: typer.Context,
    home: Annotated[Path | None, typer.Option(help="DICE_HOME: where everything is kept (default: .dice).")] = None,
    config: Annotated[Path | None, typer.Option(help="dice.toml to read (default: ./dice.toml).")] = None,
) -> None:
    context.obj = {"home": home, "config": config}


@app.command()
def version(as_json: Json = False) -> None:
    """Print the version."""
    console.print_json({"version": __version__}) if as_json else console.out.print(__version__)


@app.command()
def init(context: typer.Context) -> None:
    """Create the home: the lake and the MLflow store. Harmless when repeated."""
    from flows.home import initialise

    initialise(settings_of(context))


@app.command()
def doctor(context: typer.Context, as_json: Json = False) -> None:
    """Check that this machine can do the work: compilers, isolation, disk, GPU. Exit code 7 when it cannot."""
    from flows.home import examine

    checks = examine(settings_of(context))
    console.print_rows([check.as_row() for check in checks], as_json=as_json)
    if not all(check.ok for check in checks if check.required):
        raise typer.Exit(7)


@app.command()
def housekeep(context: typer.Context, dry_run: DryRun = False, as_json: Json = False) -> None:
    """Bound the cache of compiled kernels by size and age (`build_cache_bytes`, `build_cache_days`)."""
    from flows.housekeep import housekeep as run

    finish(run(settings_of(context), dry_run=dry_run), as_json)


@app.command()
def demo(context: typer.Context, as_json: Json = False) -> None:
    """Run the whole chain on bundled data, then say where everything is."""
    from flows.demo import demonstrate

    summary = demonstrate(settings_of(context, plan="quick"))
    if as_json:
        console.print_json(summary)


@run_app.command("nightly")
def run_nightly(
    context: typer.Context,
    sources: Annotated[list[str] | None, typer.Argument(help=f"{SOURCES_HELP} Default: bundled samples.")] = None,
    dataset: Dataset = "", licence: Licence = "", join: JoinFile = None,
    device: Device = None, plan: Plan = None, recipe: Annotated[str, typer.Option(help="Training recipe.")] = "tiny",
    suite: Suite = None, accept_columns: AcceptColumns = False, dry_run: DryRun = False, as_json: Json = False,
) -> None:
    """Curate, train, evaluate and report. Only new files are read; the same input again does no work and says so."""
    from flows.entry import run_nightly as run

    requests = requests_of(sources or [], dataset, licence, join)
    finish(run(settings_of(context, device=device, plan=plan), requests, recipe, suite, dry_run=dry_run,
               accept_columns=accept_columns), as_json)


@run_app.command("curate")
def run_curate(
    context: typer.Context,
    sources: Annotated[list[str], typer.Argument(help=SOURCES_HELP)],
    dataset: Dataset = "", licence: Licence = "", join: JoinFile = None,
    threshold: Annotated[float | None, typer.Option(help="Least speedup (default: 2.0).")] = None,
    evidence: Annotated[str | None, typer.Option(help="auto, claimed or measured.")] = None,
    overlap: Annotated[Path | None, typer.Option(help="Suite whose problems must not be in the data.")] = None,
    mixture: Annotated[Path | None, typer.Option(help="Recipe of the mixture: sources, balance, validation share "
                                                      "(TOML; default: take everything).")] = None,
    augment: Annotated[bool, typer.Option(help="Add structures from the offline library.")] = True,
    accept_columns: AcceptColumns = False,
    update: Annotated[bool, typer.Option("--update", help="Look for newer commits of hub data sets, instead of staying "
                                         "at those that this home has locked.")] = False,
    generator: Annotated[str | None, typer.Option(help="Who writes their kernels: library, endpoint or name@alias.")]
    = None,
    augment_all: Annotated[bool, typer.Option("--augment-all", help="All listed sizes of each structure, not one.")]
    = False,
    augment_drawn: Annotated[int | None, typer.Option(help="Further sizes of each structure, drawn with the seed.")]
    = None,
    device: Device = None, plan: Plan = None, dry_run: DryRun = False, as_json: Json = False,
) -> None:
    """Turn sources into a CuKe version: contract, dedup, overlap, honesty, speedup filter, augmentation."""
    from flows.entry import run_curate as run

    settings = settings_of(context, device=device, plan=plan, evidence=evidence, speedup_threshold=threshold,
                           augment_sets=0 if augment_all else None, augment_drawn=augment_drawn,
                           generator=generator)
    requests = requests_of(sources, dataset, licence, join)
    finish(run(settings, requests, overlap, mixture, augment=augment, dry_run=dry_run, accept_columns=accept_columns,
               update=update), as_json)


@run_app.command("train")
def run_train(
    context: typer.Context,
    dataset: Annotated[str, typer.Option(help="Dataset version id, or `latest`.")] = "latest",
    recipe: Annotated[str, typer.Option(help="Training recipe.")] = "tiny",
    device: Device = None, dry_run: DryRun = False, as_json: Json = False,
) -> None:
    """Fine-tune a block-diffusion model on a CuKe version and register it with the alias `candidate`."""
    from flows.entry import run_train as run

    finish(run(settings_of(context, device=device), dataset, recipe, dry_run=dry_run), as_json)


@run_app.command("evaluate")
def run_evaluate(
    context: typer.Context,
    kernels: Annotated[Path | None, typer.Option(help="Folder of level_<L>_problem_<P>_sample_<S>_kernel.py.")] = None,
    model: Annotated[str | None, typer.Option(help="Registered model: name@alias or name/version.")] = None,
    name: Name = "", suite: Suite = None, problems: Problems = "", size: Sizes = None,
    device: Device = None, plan: Plan = None, dry_run: DryRun = False, as_json: Json = False,
) -> None:
    """Measure the kernels of a folder or of a model on a suite and score them as KernelBench does."""
    from flows.entry import run_evaluate as run

    settings = settings_of(context, device=device, plan=plan)
    finish(run(settings, kernels, model, name, suite, problems, size or [], dry_run=dry_run), as_json)


@app.command()
def generate(
    context: typer.Context,
    source: Annotated[Path, typer.Argument(help="File with the PyTorch module.")],
    model: Annotated[str, typer.Option(help="Registered model: name@alias or name/version.")] = "dice-tiny@candidate",
    max_new_tokens: Annotated[int, typer.Option(help="Longest answer, in tokens.")] = 1024,
    seed: Annotated[int | None, typer.Option(help="Seed of sampling.")] = None,
    raw: Annotated[bool, typer.Option(help="Print the model's whole answer, not only the kernel in it.")] = False,
) -> None:
    """Let a registered model write a kernel for one module."""
    from flows.entry import generate_one

    console.out.print(generate_one(settings_of(context, seed=seed), source, model, max_new_tokens, raw=raw),
                      markup=False, end="")


@app.command()
def query(
    context: typer.Context,
    sql: Annotated[str, typer.Argument(help="One SELECT over the lake's tables and views; - reads standard input.")],
    as_of: Annotated[int | None, typer.Option(help="Snapshot to read instead of the newest.")] = None,
    save: Annotated[Path | None, typer.Option("--out", help="Write the rows to this .parquet or .csv file.")] = None,
    markdown: Annotated[bool, typer.Option(help="Print a Markdown table.")] = False,
    as_json: Json = False,
) -> None:
    """Ask the lake with SQL. `show tables` and `describe fct_speedup` work too."""
    from dice_core.lake.catalog import Lake
    from flows.tables import markdown_table, write_table

    text = sys.stdin.read() if sql == "-" else sql
    settings = settings_of(context)
    with Lake.open(settings.home, read_only=True) as lake:
        table = lake.query(text, as_of=as_of)
    if save is not None:
        console.say(f"{table.num_rows} rows written to {write_table(table, save)}")
    elif markdown:
        console.out.print(markdown_table(table), markup=False)
    else:
        console.print_rows(table.to_pylist(), as_json=as_json, columns=table.schema.names)


@app.command()
def report(context: typer.Context, out: Annotated[Path | None, typer.Option(help="Folder to write to.")] = None,
           as_json: Json = False) -> None:
    """Write the report: one self-contained HTML page, and its plots as PNG."""
    from dice_core.lake.catalog import Lake
    from dice_core.report.build import build_report

    settings = settings_of(context)
    with Lake.open(settings.home, read_only=True) as lake:
        paths = build_report(lake, out or settings.report_dir)
    if as_json:
        console.print_json({"html": str(paths.html), "plots": [str(plot) for plot in paths.plots]})
    else:
        console.out.print(str(paths.html))


@bundle_app.command("export")
def bundle_export(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(help="New folder for the bundle.")],
    kernels: Annotated[Path | None, typer.Option(help="Folder of KernelBench-named kernels.")] = None,
    pairs: Annotated[Path | None, typer.Option(help="JSON, JSONL or Parquet rows with a reference and a kernel.")]
    = None,
    reference_field: Annotated[str, typer.Option(help="Field of the reference in --pairs.")] = "pytorch_code",
    kernel_field: Annotated[str, typer.Option(help="Field of the kernel in --pairs.")] = "generated_code",
    claims: Annotated[Path | None, typer.Option(help="Rows of kernels for problems of --suite, with what others "
                                                     "claim of them.")] = None,
    choose: Annotated[int, typer.Option(help="Take so many (0: all): of --claims evenly over models and levels, "
                                             "of --pairs evenly over the rows.")] = 0,
    repeat: Annotated[int, typer.Option(help="Above 0: measure again what was measured, as repeat number so and so.")]
    = 0,
    name: Name = "", suite: Suite = None, problems: Problems = "", size: Sizes = None,
    device: Annotated[str, typer.Option(help="Device of the machine that will measure.")] = "cuda",
    plan: Plan = None,
) -> None:
    """Write a folder that measures kernels on another machine: copy it there, `python3 run.py`, copy it back."""
    from flows.entry import export_bundle

    console.out.print(str(export_bundle(
        settings_of(context, plan=plan), folder, kernels, pairs, reference_field, kernel_field, name, suite, problems,
        size or [], device, claims, choose, repeat)))


@bundle_app.command("run")
def bundle_run(
    folder: Annotated[Path, typer.Argument(help="Bundle folder.")],
    build_jobs: Annotated[int | None, typer.Option(help="Parallel compilations.")] = None,
) -> None:
    """Measure a bundle on this machine; the same as `python3 run.py` inside it. Resumable."""
    from dice_core.arena.bundle import main as run_main

    raise typer.Exit(run_main([str(folder), *(["--build-jobs", str(build_jobs)] if build_jobs else [])]))


@bundle_app.command("import")
def bundle_import(
    context: typer.Context, folder: Annotated[Path, typer.Argument(help="Measured bundle folder.")],
    finished_only: Annotated[bool, typer.Option(help="Record what is finished of an evaluation, under a name that says "
                                                     "so, instead of refusing it.")] = False,
    as_json: Json = False,
) -> None:
    """Bring a measured bundle's attempts and its evaluation into the lake. Harmless when repeated."""
    from flows.entry import import_bundle

    finish(import_bundle(settings_of(context), folder, finished_only=finished_only), as_json)


@models_app.callback()
def models(context: typer.Context, as_json: Json = False) -> None:
    """Registered models; alone it lists them."""
    if context.invoked_subcommand is None:
        models_ls(context, as_json)


@models_app.command("ls")
def models_ls(context: typer.Context, as_json: Json = False) -> None:
    """List registered models with their aliases and training data."""
    from flows.entry import list_models

    console.print_rows(list_models(settings_of(context)), as_json=as_json)


@config_app.command("show")
def config_show(context: typer.Context, origin: Annotated[bool, typer.Option(help="Say where each value is from.")]
                = False, as_json: Json = False) -> None:
    """Print the settings in force."""
    settings = settings_of(context)
    rows = [{"setting": name, "value": value, **({"origin": settings.origins[name]} if origin else {})}
            for name, value in settings.as_dict().items()]
    console.print_rows(rows, as_json=as_json)


def requests_of(sources: list[str], dataset: str, licence: str, join: Path | None) -> list[Any]:
    """The sources as typed, checked before anything is started."""
    from dice_core.curation.requests import parse_request

    return [parse_request(text, dataset=dataset, licence=licence, join=join) for text in sources]


def main() -> None:
    """Entry point of the `dice` command."""
    # SIGTERM ends like Ctrl-C, so that child processes are cleaned up and the home's lock is freed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        app()
    except DiceError as error:
        console.say(f"error: {error}")
        sys.exit(error.exit_code)
    except SystemExit as stop:
        if stop.code == INTERRUPTED:
            console.say("interrupted; run the same command again to go on")
        raise


if __name__ == "__main__":
    main()
