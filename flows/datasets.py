"""What `dice datasets` does: open the lake for reading, find the version, call the library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dice_core.curation.cuke import verify_version, write_version
from dice_core.curation.diff import diff
from dice_core.curation.explain import explain
from dice_core.curation.rebuild import AsOf, rebuild
from dice_core.curation.versions import find_version, read_members
from dice_core.errors import UsageError
from dice_core.lake.catalog import Lake
from dice_core.settings import Settings


def list_versions(settings: Settings) -> list[dict[str, Any]]:
    """`dice datasets ls`."""
    with Lake.open(settings.home, read_only=True) as lake:
        rows: list[dict[str, Any]] = lake.query(
            "select dataset_version_id, name, n_records, merkle_root, created_at, path from dataset_version "
            "order by created_at desc, dataset_version_id").to_pylist()
    return rows


def describe(settings: Settings, wanted: str) -> dict[str, Any]:
    """`dice datasets show`: one version, its recipe, and its funnel with a row for each step and outcome."""
    with Lake.open(settings.home, read_only=True) as lake:
        version = find_version(lake, wanted, settings.datasets_dir)
        funnel = lake.query("select step, rows_in, rows_kept, rows_quarantined, rows_duplicate, rows_dropped, reasons "
                            "from rpt_funnel where curation_id = ? order by step_order", (version.curation_id,))
        splits = lake.query("select split, evidence, count(*) as n from dataset_member where dataset_version_id = ? "
                            "group by all order by all", (version.version_id,)).to_pylist()
    return {
        "dataset_version_id": version.version_id, "name": version.name, "n_records": version.n_records,
        "merkle_root": version.merkle_root, "curation_id": version.curation_id, "path": str(version.folder),
        "created_at": version.created_at, "members": {f"{row['split']} {row['evidence']}": row["n"] for row in splits},
        "recipe": version.recipe.get("config", {}), "funnel": funnel.to_pylist(),
    }


def compare(settings: Settings, old: str, new: str) -> dict[str, Any]:
    """`dice datasets diff`."""
    with Lake.open(settings.home, read_only=True) as lake:
        return diff(lake, *(find_version(lake, one, settings.datasets_dir) for one in (old, new)))


def explain_row(settings: Settings, row: str) -> dict[str, Any]:
    """`dice datasets explain`."""
    with Lake.open(settings.home, read_only=True) as lake:
        return explain(lake, row)


def read_card(settings: Settings, wanted: str) -> str:
    """`dice datasets card`: the card, after the version's files were checked."""
    with Lake.open(settings.home, read_only=True) as lake:
        version = find_version(lake, wanted, settings.datasets_dir)
    verify_version(version.folder)
    return (version.folder / "README.md").read_text(encoding="utf-8")


def export_version(settings: Settings, wanted: str, form: str, out: Path | None) -> dict[str, Any]:
    """`dice datasets export`."""
    from dice_core.curation.exports import export, write_export

    with Lake.open(settings.home, read_only=True) as lake:
        version = find_version(lake, wanted, settings.datasets_dir)
    made = export(version, read_members(version), form)
    folder = out or settings.home / "exports" / version.version_id / form
    written = write_export(made, folder)
    return {"folder": str(folder), "format": form, "dataset_version_id": version.version_id, "rows": made.rows,
            "members": made.manifest["members"], "left_out": dict(made.left_out), "written": written,
            "files": dict(made.manifest["files"])}


def rebuild_version(settings: Settings, wanted: str, as_of: int | None, out: Path | None) -> dict[str, Any]:
    """`dice datasets rebuild`: make a version again from the lake; write its folder where it is missing."""
    with Lake.open(settings.home, read_only=True) as lake:
        seen = AsOf(lake, as_of)
        try:
            version = find_version(seen, wanted, settings.datasets_dir)
        except UsageError as error:
            if as_of is None:
                raise
            raise UsageError(f"at snapshot {as_of}: {error}") from error
        made = rebuild(seen, version)
    parent = out or version.folder.parent
    restored = not (parent / version.version_id).exists()
    folder = write_version(made, parent)
    return {"dataset_version_id": made.version_id, "merkle_root": made.merkle_root, "members": len(made.members),
            "as_of": as_of, "folder": str(folder), "written": restored}
