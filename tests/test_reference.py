"""The tables of the reference are those of the code."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterable
from typing import Final

import pytest
from documents import DOCUMENTS, ROOT, rows_of, text_of
from scripted_device import ScriptedDevice

import pytest_gpuperf
from pytest_gpuperf import Gpuperf
from pytest_gpuperf.cli import COMMANDS
from pytest_gpuperf.devices.cpu import CpuDevice
from pytest_gpuperf.errors import ErrorId
from pytest_gpuperf.judge.budget import is_time
from pytest_gpuperf.marks import BUDGET_MARK, RANKS_MARK, TOLERANCE_MARK
from pytest_gpuperf.model.baseline import ENOUGH_RUNS, FULL_RUNS, MOST_RUNS, Refresh
from pytest_gpuperf.model.environment import Capability
from pytest_gpuperf.model.metrics import (
    BUDGET_KEYWORDS,
    GRAPH_BREAKS,
    METRICS,
    RANK_SKEW,
    RECOMPILES,
    Direction,
    Metric,
    MetricKind,
    Unit,
    limited_by,
)
from pytest_gpuperf.model.verdict import Outcome
from pytest_gpuperf.plugin.options import OPTIONS, Option
from pytest_gpuperf.report.remedies import (
    FRAMEWORK_REMEDIES,
    GARBAGE_REMEDIES,
    KIND_REMEDIES,
    SYNC_REMEDIES,
)
from pytest_gpuperf.worker.fixture import Compared, Difference, TimeRatio


REFERENCE = "docs/reference"
ERRORS = "docs/errors.md"
OWN_UNITS = {
    RANK_SKEW: "percent that the slowest rank may take longer than the fastest",
    GRAPH_BREAKS: "lines of the code",
    RECOMPILES: "compilations until the step is warm",
}


def annotated(name: str) -> set[str]:
    """Keywords of a class that only type checkers read."""
    tree = ast.parse(text_of("pytest_gpuperf/model/budget.py"))
    classes = [n for n in ast.walk(tree) if isinstance(n, ast.ClassDef)]
    body = next(found.body for found in classes if found.name == name)
    return {ast.unparse(n.target) for n in body if isinstance(n, ast.AnnAssign)}


def test_editors_complete_the_keywords_of_the_metrics_and_no_others() -> None:
    tolerated, others = annotated("Tolerated"), annotated("Limits")

    assert tolerated == {
        n for n in BUDGET_KEYWORDS if limited_by(n)[0].unit.is_tolerable
    }
    assert tolerated | others == {*BUDGET_KEYWORDS, "on"}


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def first_cells(rows: Iterable[str]) -> list[str]:
    return [line.split("|")[1].strip() for line in rows]


def option_row(option: Option) -> str:
    value = f"={option.metavar}" if option.metavar else ""
    assert option.name == option.flag.removeprefix("--").replace("-", "_")
    return row(f"`{option.flag}{value}`", option.help)


def key_row(option: Option) -> str:
    return row(f"`{option.name}`", option.metavar or "true or false", option.help)


def metric_row(metric: Metric) -> str:
    return row(
        f"`{metric.name}`",
        f"`{metric.budget}`" if metric.budget else "",
        tolerated(metric) if metric.gated else "",
        metric.summary,
    )


def tolerated(metric: Metric) -> str:
    ratio = f"{100 * metric.tolerance:g} %"
    if not metric.floor:
        return ratio
    whole_mib = metric.floor >= 2**20
    size = metric.floor / (2**20 if whole_mib else 2**10)
    return f"{ratio}, {size:g} {'MiB' if whole_mib else 'KiB'}"


def unit_words(metric: Metric) -> str:
    is_share = metric.unit is Unit.PERCENT
    is_floor = is_share and metric.direction is Direction.HIGHER
    return metric.unit.in_words + (", at least" if is_floor else "")


def keyword_rows() -> list[str]:
    """Keywords with the same unit and devices share a row."""
    rows: dict[tuple[str, str], list[str]] = {}
    for keyword in BUDGET_KEYWORDS:
        (metric, *_) = limited_by(keyword)
        unit = OWN_UNITS.get(metric) or unit_words(metric)
        where = "`cuda`" if is_time(keyword) else "every device that measures it"
        rows.setdefault((unit, where), []).append(f"`{keyword}`")
    return [
        row("all others" if "count per step" in cells else ", ".join(words), *cells)
        for cells, words in sorted(rows.items(), key=lambda r: "count per step" in r[0])
    ]


@pytest.mark.parametrize(
    ("header", "wanted"),
    [
        (
            "| option of pytest | meaning |",
            [option_row(option) for option in OPTIONS if option.on_command_line],
        ),
        (
            "| ini key | value | meaning |",
            [key_row(option) for option in OPTIONS if not option.on_command_line],
        ),
        (
            "| metric | budget | tolerance | meaning |",
            [metric_row(metric) for metric in METRICS.values()],
        ),
        ("| keywords | unit | applies without `on` to |", keyword_rows()),
        (
            "| command | meaning |",
            [row(f"`gpuperf {n}`", summary) for n, summary in COMMANDS.items()],
        ),
    ],
    ids=["options", "ini keys", "metrics", "keywords", "commands"],
)
def test_a_table_is_what_the_code_says(header: str, wanted: list[str]) -> None:
    assert list(rows_of(REFERENCE, header)) == wanted


def test_counts_and_bytes_are_exact_and_all_others_noisy() -> None:
    exact = {m.unit for m in METRICS.values() if m.kind is MetricKind.EXACT}
    noisy = {m.unit for m in METRICS.values() if m.kind is MetricKind.NOISY}

    assert exact == {Unit.COUNT, Unit.BYTES}
    assert exact & noisy == set()
    assert "Counts and bytes are exact" in text_of("docs/reference/metrics.md")


def test_the_end_of_a_metric_is_its_unit() -> None:
    text = text_of("docs/reference/metrics.md").partition("| metric |")[0]
    ends = {
        Unit.MS: "_ms",
        Unit.BYTES: "_bytes",
        Unit.PERCENT: "_pct",
        Unit.PER_SECOND: "_per_s",
    }

    assert [end for end in ends.values() if f"`{end}`" not in text] == []
    for metric in METRICS.values():
        if metric.unit is Unit.RATIO:
            assert f"`{metric.name}`" in text
        elif metric.unit is Unit.COUNT:
            assert not metric.name.endswith(tuple(ends.values()))
        else:
            assert metric.name.endswith(ends[metric.unit])


def test_the_outcomes_stand_in_their_order() -> None:
    named = first_cells(rows_of(REFERENCE, "| outcome | meaning | pytest reports |"))

    assert named == [outcome.value.upper() for outcome in Outcome]


def test_every_public_name_and_its_signature_stand_in_the_reference() -> None:
    named = first_cells(rows_of(REFERENCE, "| name | what it is |"))

    assert sorted(name.strip("`").split("(")[0] for name in named) == sorted(
        pytest_gpuperf.__all__
    )
    assert named[:3] == [
        "`budget(*, on=None, **limits)`",
        "`tolerance(*, detect=None, **ratios)`",
        "`ranks(n, *, timeout_s=None)`",
    ]


def test_every_use_of_the_fixture_stands_in_the_reference() -> None:
    named = first_cells(rows_of(REFERENCE, "| use | meaning |"))
    called = {"compare", "loader", "steps", "trainer"}
    attributes = [n for n in vars(Gpuperf) if not n.startswith("_") and n not in called]

    assert named == [
        f"`gpuperf{parameters(Gpuperf.__call__)}`",
        f"`gpuperf.loader{parameters(Gpuperf.loader)}`",
        f"`gpuperf.steps{parameters(Gpuperf.steps)}`",
        f"`gpuperf.trainer{parameters(Gpuperf.trainer)}`",
        f"`gpuperf.compare{parameters(Gpuperf.compare)}`",
        *(f"`gpuperf.{name}`" for name in attributes),
    ]


def parameters(method: Callable[..., object]) -> str:
    """Parameters as they are written, without annotations."""
    _, *rest = inspect.signature(method).parameters.values()
    bare = [parameter.replace(annotation=inspect._empty) for parameter in rest]
    return str(inspect.Signature(bare))


def test_every_number_of_a_comparison_stands_in_the_reference() -> None:
    named = first_cells(rows_of(REFERENCE, "| result | meaning |"))
    counted = [name for name in properties(Compared) if name != "time"]

    assert named == [
        *(f"`result.time.{name}`" for name in properties(TimeRatio)),
        *(f"`result.{name}`" for name in counted),
        *(f"`result.memory.{name}`" for name in properties(Difference)),
    ]


def properties(kind: type) -> list[str]:
    return [name for name, value in vars(kind).items() if isinstance(value, property)]


@pytest.mark.parametrize("kind", Refresh)
def test_every_kind_of_refresh_is_shown(kind: Refresh) -> None:
    assert f"--gpuperf-update={kind.value}" in text_of(
        "docs/guides/accept-a-baseline.md"
    )


def test_the_marks_are_named() -> None:
    first = f"as `{BUDGET_MARK}`, `{TOLERANCE_MARK}`"
    assert f"{first} and `{RANKS_MARK}`" in text_of(REFERENCE)


def test_the_numbers_of_runs_are_those_of_the_code() -> None:
    assert (FULL_RUNS, ENOUGH_RUNS, MOST_RUNS) == (8, 5, 20)
    assert "newest 20 runs are kept" in text_of(REFERENCE)
    assert "A refresh stores eight runs." in text_of("docs/internals")
    assert "With fewer than five stored runs" in text_of("docs/internals")


def test_the_scripted_device_is_for_this_project_alone() -> None:
    assert ScriptedDevice.kind.value not in text_of(
        "docs/reference/devices.md"
    ).replace("<!-- script", "")


def test_the_page_of_devices_says_which_budgets_a_cpu_cannot_judge() -> None:
    named: dict[str, str] = {}
    for cells in rows_of(
        "docs/reference/devices.md", "| | `cuda` | `simulated` | `cpu` |"
    ):
        words, *_, on_cpu = cells.strip("| ").split(" | ")
        for keyword in re.findall(r"`(\w+)`", words):
            named.setdefault(keyword, on_cpu)
    unmeasurable = {
        keyword
        for keyword in {*BUDGET_KEYWORDS} & {*named}
        if all(metric.name in CpuDevice.unmeasurable for metric in limited_by(keyword))
    }

    assert unmeasurable > {"mem_mb", "syncs", "launches", "flops", "busy_pct"}
    assert {k for k in unmeasurable if named[k] != "no"} == set()


def test_the_page_of_devices_says_where_time_budgets_apply() -> None:
    timed = [k for k in BUDGET_KEYWORDS if limited_by(k)[0].unit is Unit.MS]
    keywords = ", ".join(f"`{keyword}`" for keyword in timed)

    assert not CpuDevice.kind.has(Capability.GPU_TIMES)
    only = 'only where the budget says `on="cpu"`'
    assert row(keywords, "yes", "no", only) in text_of("docs/reference/devices.md")
    assert row("`speedup`", "yes", "no", "yes") in text_of("docs/reference/devices.md")


def test_each_error_id_has_one_heading_whose_anchor_is_the_id() -> None:
    headings = re.findall(r"^### (.*)$", text_of(ERRORS), re.MULTILINE)

    assert headings == [error_id.name for error_id in ErrorId]


@pytest.mark.parametrize("error_id", ErrorId, ids=lambda e: e.name)
def test_an_error_id_is_explained_below_its_title(error_id: ErrorId) -> None:
    _, _, section = text_of(ERRORS).partition(f"### {error_id.name}\n\n")
    title, _, explained = section.partition("\n#")[0].partition(".** ")

    assert title == f"**{error_id.value}"
    assert 1 <= len(re.findall(r"\.(?=\s)", explained)) <= 3


def test_each_error_id_is_raised_and_no_other() -> None:
    sources = (ROOT / "pytest_gpuperf").rglob("*.py")
    used = re.findall(
        r"ErrorId\.(GP\w+)", "\n".join(p.read_text("utf-8") for p in sources)
    )

    assert sorted(set(used)) == [error_id.name for error_id in ErrorId]


def test_the_table_of_remedies_has_what_is_advised() -> None:
    table = text_of("docs/reference/remedies.md")
    header, *rows = (
        tuple(cell.strip() for cell in line.strip("|").split(" | "))
        for line in table.splitlines()
        if line.startswith("| ")
    )

    of_kinds = (*KIND_REMEDIES.values(), *GARBAGE_REMEDIES)
    remedies = (*FRAMEWORK_REMEDIES, *SYNC_REMEDIES, *of_kinds)
    fixes = [fix for _, fix in rows]
    assert header == ("cause", "fix")
    assert fixes == [*dict.fromkeys(r.do for r in remedies if r.do in fixes)]
    assert len(rows) >= 15


def test_what_is_supported_is_what_is_declared_and_tested() -> None:
    project, tested = text_of("pyproject.toml"), text_of("tests/stub_cuda/torches.py")
    pythons = re.findall(r"Python :: (3\.\d+)", project)
    torches = re.findall(r'"(2\.\d+)\.0"', tested.partition("MINOR_TORCHES")[2][:200])
    (pinned,) = re.findall(
        r"^torch==(2\.\d+)", text_of("constraints.txt"), re.MULTILINE
    )
    least = dict(re.findall(r'"(torch|pytest)>=([\d.]+)"', project))
    rows = dict(row[2:].split(" | ")[:2] for row in supported())

    assert rows["Python"] == f"{pythons[0]} to {pythons[-1]}"
    assert rows["torch"] == f"{least['torch']} to {torches[-1]}"
    assert torches[0] == least["torch"]
    assert len({*torches, pinned}) == len(torches) + 1
    assert rows["pytest"] == f"{least['pytest']} and newer"
    assert f"All tests run on torch {pinned}." in text_of(SUPPORT)


SUPPORT = "docs/reference/support.md"


def supported() -> list[str]:
    return rows_of(SUPPORT, "| | versions | how long |")


MOST_WORDS: Final = 26_000
"""In all pages of ``docs``: a page that grows is paid for by one that repeats another."""

MOST_LINES: Final = 120
"""Of the README."""


def test_the_docs_and_the_readme_stay_short() -> None:
    readme, *pages = (document.read_text(encoding="utf-8") for document in DOCUMENTS)

    assert sum(len(page.split()) for page in pages) <= MOST_WORDS
    assert len(readme.splitlines()) <= MOST_LINES
