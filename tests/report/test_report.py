"""The report: complete, self-contained, safe against hostile names, and honest about what is missing."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType

import pytest

from dice_core.lake.attempts import write_attempt
from dice_core.lake.catalog import Lake
from dice_core.lake.objects import load_objects
from dice_core.lake.publish import publish
from dice_core.report import charts
from dice_core.report.build import ReportPaths, build_report
from dice_core.report.svg import LogScale, clean, nice_ticks

VOID = {"meta", "link", "br", "hr", "img", "input"}
SECTIONS = ("curation", "speedups", "verdicts", "leaderboard", "training", "augmentation", "environments", "checks",
            "reproduce")


class Page(HTMLParser):
    """Checks nesting; collects ids, link targets, texts by id of section, and pictures."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.stack: list[str] = []
        self.ids: list[str] = []
        self.targets: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.stack == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.tags.append((tag, values))
        if values.get("id"):
            self.ids.append(str(values["id"]))
        if values.get("href"):
            self.targets.append(str(values["href"]))
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def paths(filled: Lake, tmp_path_factory: pytest.TempPathFactory) -> ReportPaths:
    """The report of the filled lake."""
    return build_report(filled, tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def html(paths: ReportPaths) -> str:
    """Its page."""
    return paths.html.read_text(encoding="utf-8")


def test_the_page_is_well_formed_and_every_link_stays_inside(html: str) -> None:
    page = Page(html)
    assert set(SECTIONS) <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    assert all(target.startswith("#") for target in page.targets)
    assert {target[1:] for target in page.targets} <= set(page.ids)


def test_the_page_asks_nothing_of_anyone(html: str) -> None:
    assert not re.search(r"(src|href|action|data)\s*=\s*[\"']?(https?:)?//", html)
    assert "url(" not in html
    assert "@import" not in html
    assert not any(tag in ("script", "iframe", "link", "object", "form") for tag, _ in Page(html).tags)
    assert "default-src 'none'" in html


def test_headline_numbers_are_the_lakes(html: str, filled: Lake) -> None:
    (total,) = filled.query("SELECT * FROM rpt_total").to_pylist()
    tiles = dict(re.findall(r'class="value">([^<]*)</div><div class="what">([^<]*)<', html))
    values = {what: value for value, what in tiles.items()}
    assert values["records in CuKe"] == f"{total['n_dataset_records']:,}"
    assert values["kernel evaluations"] == f"{total['n_attempts']:,}"
    assert values["raw timings"] == f"{total['n_timings']:,}"
    assert values["source rows read"] == "141"
    best = max(row["fast_1"] for row in filled.query("SELECT * FROM rpt_leaderboard").to_pylist()
               if row["scope"] == "all")
    assert any(value == charts.percent(best) for what, value in values.items() if what.startswith("fast₁"))


def test_every_section_is_filled(html: str, filled: Lake) -> None:
    n_checks = len(load_objects("checks"))
    assert 'class="empty"' not in html
    assert f"snapshot <b>{filled.snapshots()[-1].snapshot_id}</b>" in html
    for word in ("kernel code not empty", "swiglu mlp", "NVIDIA H200", "dice-tiny greedy", "contract violation",
                 f"{n_checks} of {n_checks} pass"):
        assert word in html


def test_every_picture_says_what_it_shows(html: str) -> None:
    labels = [values.get("aria-label") for tag, values in Page(html).tags if tag == "svg" and values.get("role")]
    assert len(labels) >= 7
    assert all(labels)


def test_every_number_names_its_query_and_every_view_is_printed(html: str) -> None:
    from dice_core.lake.objects import ordered_views

    page = Page(html)
    for view in ordered_views():
        assert f"sql-{view.name}" in page.ids
        assert view.sha256 in page.text
        assert view.body in page.text


def test_png_plots_are_pictures(paths: ReportPaths) -> None:
    assert {path.stem for path in paths.plots} == {"funnel", "speedup_cpu", "speedup_cuda", "verdicts", "leaderboard",
                                                   "training"}
    for path in paths.plots:
        assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
        assert path.stat().st_size > 5_000


def test_an_empty_lake_gives_a_page_that_says_why_and_replaces_the_former_one(home: Path) -> None:
    out = home / "report"
    (out / "plots").mkdir(parents=True)
    (out / "plots" / "funnel.png").write_bytes(b"of a former report")
    (out / "report.html").write_text("a former report")
    with Lake.open(home, read_only=True) as lake:
        paths = build_report(lake, out)
    text = paths.html.read_text(encoding="utf-8")
    page = Page(text)
    assert paths.plots == ()
    assert list((out / "plots").iterdir()) == []
    assert set(SECTIONS) <= set(page.ids)
    assert text.count('class="empty"') == 8
    for hint in ("dice run curate", "dice run evaluate", "dice run train"):
        assert hint in text


HOSTILE = "</svg><script>alert(1)</script>\"'><img src=x onerror=alert(2)>$x^{\\frac$\x1b[31m\u202egpj\n{{ 7 * 7 }}"


def test_hostile_names_stay_text(home: Path) -> None:
    made: ModuleType = sys.modules["synthetic"]
    new = home / "attempts" / "new"
    one = made.make_attempt(1)
    environment = dataclasses.replace(one.environment, identity={**one.environment.identity, "cpu": HOSTILE})
    attempt = dataclasses.replace(one.attempt, environment_id=environment.environment_id)
    write_attempt(new, dataclasses.replace(one, attempt=attempt, environment=environment))
    evaluation = {"evaluation_id": "e", "suite": HOSTILE, "level": 1, "number": 1}
    with Lake.open(home) as lake:
        publish(lake, new, run_id="r")
        lake.commit({
            "suite_problem": [{"suite": "s", "level": 1, "number": 1, "name": HOSTILE,
                               "problem_id": attempt.problem_id}],
            "evaluation": [{"evaluation_id": "e", "name": HOSTILE, "kernel_source": HOSTILE, "suite": HOSTILE,
                            "created_at": "2026-12-01T00:00:00Z"}],
            "evaluation_member": [{**evaluation, "sample_id": 0, "attempt_id": attempt.attempt_id}],
            "quarantine": [{"quarantine_id": "q", "rule": HOSTILE, "field": HOSTILE, "value": HOSTILE,
                            "row_locator": HOSTILE}],
            "counter": [{"run_id": "r", "scope": "c", "step": "contract", "name": name, "value": value}
                        for name, value in (("in", 2), ("kept", 1), (f"out:{HOSTILE}", 1))],
            "curation": [{"curation_id": "c", "run_id": "r", "ended_at": "2026-12-01T00:00:00Z"}],
            "model_version": [{"model_version_id": "m", "name": HOSTILE, "version": HOSTILE,
                               "created_at": "2026-12-01T00:00:00Z"}],
            "training_step": [{"model_version_id": "m", "step": step, "loss": 2.0 / step} for step in (1, 2)],
        }, message="m", run_id="r")
        paths = build_report(lake, home / "report")
    text = paths.html.read_text(encoding="utf-8")
    page = Page(text)
    assert not any(tag in ("script", "img") for tag, _ in page.tags)
    assert not any(name.startswith("on") for _, values in page.tags for name in values)
    assert "<script" not in text
    assert "49" not in re.findall(r"gpj\s*(\S+)", page.text)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert page.text.count("alert(1)") >= 5
    assert len(paths.plots) == 5


@pytest.mark.parametrize(
    ("value", "shown"),
    [(1.0, "1.00×"), (1.7349, "1.73×"), (12.345, "12.3×"), (0.31772, "0.318×"), (123.4, "123×"), (0.034, "0.0340×"),
     (12345.0, "1.23e+04×"), (None, "–")],
)
def test_speedups_read_with_three_digits(value: float | None, shown: str) -> None:
    assert charts.times(value) == shown


def test_text_is_cleaned_and_cut() -> None:
    assert clean("a\x00b\u202ec") == "a\ufffdb\ufffdc"
    assert clean("abcdef", 4) == "abc…"
    assert clean("abcd", 4) == "abcd"


def test_scales_hold_all_values() -> None:
    scale = LogScale([0.1, 30.0], 100, 500)
    assert 100 < scale(0.1) < scale(1) < scale(30) < 500
    assert scale(1e-9) == 100
    assert {1, 2} <= set(scale.ticks())
    assert nice_ticks(37)[-1] >= 37
    assert nice_ticks(0) == [0.0, 1.0]


@pytest.mark.parametrize("module", ["dice_core.lake.publish", "dice_core.lake.analytics", "dice_core.report.build"])
def test_lake_and_report_load_no_heavy_library(module: str) -> None:
    code = f"import sys, {module}; print([m for m in ('prefect', 'torch', 'mlflow', 'pandas') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
