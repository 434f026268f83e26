"""`dice datasets`: look at dataset versions, compare them, follow a row, write what trainers read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from flows import console
from flows.options import Json, settings_of

datasets_app = typer.Typer(invoke_without_command=True, help="Dataset versions; alone it lists them.")

_ANY = "Dataset version: id, unique beginning of one, or `latest`."
Version = Annotated[str, typer.Argument(help=_ANY)]


@datasets_app.callback()
def datasets(context: typer.Context, as_json: Json = False) -> None:
    """Dataset versions; alone it lists them."""
    if context.invoked_subcommand is None:
        datasets_ls(context, as_json)


@datasets_app.command("ls")
def datasets_ls(context: typer.Context, as_json: Json = False) -> None:
    """List dataset versions, newest first."""
    from flows.datasets import list_versions

    console.print_rows(list_versions(settings_of(context)), as_json=as_json)


@datasets_app.command("show")
def datasets_show(context: typer.Context, version: Version = "latest", as_json: Json = False) -> None:
    """Show one dataset version: its funnel, its recipe and where it is."""
    from flows.datasets import describe

    found = describe(settings_of(context), version)
    if as_json:
        console.print_json(found)
        return
    for name, value in found.items():
        if name != "funnel":
            console.out.print(f"{name:<20}{value}", markup=False)
    console.print_rows(found["funnel"], as_json=False)


@datasets_app.command("diff")
def datasets_diff(
    context: typer.Context, old: Version, new: Version,
    limit: Annotated[int, typer.Option(help="Members shown of each kind; --json has all.")] = 20,
    as_json: Json = False,
) -> None:
    """Compare two versions: members, evidence and split, funnel, options, sources."""
    from flows.datasets import compare

    found = compare(settings_of(context), old, new)
    if as_json:
        console.print_json(found)
        return
    counts = found["members"]
    _line(f"{found['old']}  {counts['old']} members")
    _line(f"{found['new']}  {counts['new']} members")
    if found["same"]:
        _line("the same")
        return
    for name in ("added", "removed", "moved", "changed"):
        _line(f"\n{name}: {len(found[name])}")
        for row in found[name][:limit]:
            _line(f"  {_member(row)}")
        if len(found[name]) > limit:
            _line(f"  … and {len(found[name]) - limit} more")
    for name in ("funnel", "config", "environment"):
        if found[name]:
            _line(f"\n{name}")
            for row in found[name]:
                _line(f"  {row['name']}: {_shown(row['old'])} -> {_shown(row['new'])}")
    for side, rows in found["sources"].items():
        for row in rows:
            _line(f"source {side.replace('_', ' ')}: {row['uri']} {row['sha256'][:16]}")


@datasets_app.command("export")
def datasets_export(
    context: typer.Context, version: Version,
    form: Annotated[str, typer.Option("--format", help="infilling, tasks, dice-infilling, dice-tasks, sft, "
                                      "llamafactory or parquet.")],
    out: Annotated[Path | None, typer.Option(help="Folder to write (default: exports/<version>/<format> in the "
                                                  "home).")] = None,
    as_json: Json = False,
) -> None:
    """Write a version in the form that a trainer reads, sorted easy to hard, with a manifest."""
    from flows.datasets import export_version

    found = export_version(settings_of(context), version, form, out)
    if as_json:
        console.print_json(found)
        return
    for reason, count in found["left_out"].items():
        console.say(f"left out: {count} {reason}")
    console.say(f"{found['rows']} of {found['members']} members" + ("" if found["written"] else ", unchanged"))
    _line(found["folder"])


@datasets_app.command("card")
def datasets_card(context: typer.Context, version: Version = "latest", as_json: Json = False) -> None:
    """Print the card of a version (Markdown)."""
    from flows.datasets import read_card

    text = read_card(settings_of(context), version)
    if as_json:
        console.print_json({"card": text})
    else:
        console.out.print(text, markup=False, end="")


@datasets_app.command("explain")
def datasets_explain(
    context: typer.Context,
    row: Annotated[str, typer.Argument(help="Record id, uuid, quarantine id, `<source file id>#<locator>`, or the "
                                            "unique beginning of one.")],
    as_json: Json = False,
) -> None:
    """Tell what became of one row: every decision, its measurements, its duplicates, where it ended."""
    from flows.datasets import explain_row

    found = explain_row(settings_of(context), row)
    if as_json:
        console.print_json(found)
        return
    source = found["source"]
    _line(f"{source['row_locator']} of {source.get('uri', 'an unknown file')} ({source['source_file_id']}, "
          f"sha256 {str(source.get('sha256'))[:16]}, licence {source.get('licence') or 'not stated'})")
    for record in found["records"]:
        claim = record["claimed_speedup"]
        _line(f"record {record['record_id']}  uuid {record['uuid']}  {record['problem_name']}"
              + (f"  claimed {claim:.4g}x" if claim is not None else ""))
        _line(f"  {record['origin']}, {record['language']}, {record['problem_id']}, {record['kernel_id']}")
    for broken in found["quarantine"]:
        _line(f"quarantined {broken['quarantine_id']}: rule {broken['rule']}, field {broken['field'] or '-'}, "
              f"value {broken['value']}")
    for curation in found["curations"]:
        _line(f"\n{curation['curation_id']}: {curation['outcome']}")
        for one in curation["decisions"]:
            _line(f"  {one['step']:<9}{one['verdict']:<5} {one['rule']}: {one['reason']}")
    for attempt in found["attempts"]:
        _line("\n" + _attempt(attempt))
    for other in found["duplicate_of"]:
        _line(f"repeats {other}")
    for other in found["duplicates"]:
        place = f"{other['row_locator']} of {other['source_file_id']}"
        _line(f"repeated ({other['rule']}) by {other['record_id']}, {place}")


@datasets_app.command("rebuild")
def datasets_rebuild(
    context: typer.Context, version: Version,
    as_of: Annotated[int | None, typer.Option(help="Snapshot of the lake to make it from (default: newest).")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the version's folder in here (default: in the home, where it "
                                                  "is missing).")] = None,
    as_json: Json = False,
) -> None:
    """Make a version again from the lake's records, decisions and attempts. Exit code 4 when it comes out otherwise."""
    from flows.datasets import rebuild_version

    found = rebuild_version(settings_of(context), version, as_of, out)
    if as_json:
        console.print_json(found)
        return
    _line(f"{found['dataset_version_id']}  {found['members']} members, Merkle root {found['merkle_root']}: the same")
    console.say(f"{found['folder']}: {'written' if found['written'] else 'there already, checked'}")


def _attempt(row: dict[str, Any]) -> str:
    text = f"{row['attempt_id']}: {row['verdict']}, honesty {row['honesty']}, {row['device']}, plan {row['plan']}"
    if row["speedup"] is not None:
        text += (f", {row['speedup']:.4g}x [{row['speedup_low']:.4g}, {row['speedup_high']:.4g}] by {row['basis']}, "
                 f"eager {row['baseline_us']:.4g} us, candidate {row['candidate_us']:.4g} us")
    text += f", {row['timed_samples']} timed calls, {row['checked_samples']} checked"
    return text + ("; decided" if row["decided"] else "")


def _member(row: dict[str, Any]) -> str:
    if "old" in row:
        return f"{row['old']} -> {row['new']}  {row['problem_name']}"
    changes = [f"{name} {row[name]['old']} -> {row[name]['new']}" for name in ("split", "evidence", "reason")
               if isinstance(row.get(name), dict)]
    tail = "; ".join(changes) or row.get("why") or f"{row['split']}, {row['evidence']}"
    return f"{row['record_id']}  {row['problem_name']}  {tail}"


def _shown(value: object) -> str:
    return "-" if value is None else str(value)


def _line(text: str) -> None:
    console.out.print(text, markup=False)
