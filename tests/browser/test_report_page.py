"""The page in a browser: it filters, it names runs, and asks for nothing else."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chromium import Chromium, program
from pages import BAD, GOOD, ITEM, contents, full_contents

from pytest_gpuperf.model.finding import Location
from pytest_gpuperf.model.verdict import Outcome
from pytest_gpuperf.report.html.page import page_text


pytestmark = pytest.mark.skipif(
    program() is None, reason="no Chromium is installed: `apt-get install chromium`"
)

SHOWN = "[...document.querySelectorAll('details.test')].filter((t) => !t.hidden)"
NAMES = f"{SHOWN}.map((t) => t.querySelector('code').textContent)"
OPEN = f"{SHOWN}.filter((t) => t.open).length"
COUNT = "document.getElementById('shown').textContent"
HASH = "location.hash"


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with Chromium(str(program())) as started:
        started.resize(1280, 900)
        yield started


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four tests: one regressed, one over budget by its syncs, two that passed."""
    over = replace(BAD, test="t.py::waits", verdicts=BAD.verdicts[1:])
    other = replace(GOOD, test="t.py::<b>other</b>")
    path: Path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page_text(contents(BAD, over, GOOD, other)), "utf-8")
    return path


def test_the_page_asks_for_nothing_and_has_no_complaint(
    browser: Chromium, page: Path
) -> None:
    browser.open(page)
    browser.value(f"{SHOWN}.forEach((t) => t.open = true)")

    assert browser.requested == [page.as_uri()]
    assert browser.complaints == []


def test_all_tests_are_shown_the_worst_first_and_what_failed_is_open(
    browser: Chromium, page: Path
) -> None:
    browser.open(page)

    assert browser.value(NAMES) == [
        BAD.test,
        "t.py::waits",
        GOOD.test,
        "t.py::<b>other</b>",
    ]
    assert browser.value(OPEN) == 2
    assert browser.value(COUNT) == ""


def test_words_and_outcomes_in_the_address_choose_tests(
    browser: Chromium, page: Path
) -> None:
    browser.open(page, "#q=test_step+train&outcome=failed,passed")

    assert browser.value(NAMES) == [BAD.test]
    assert browser.value(OPEN) == 1
    assert browser.value(COUNT) == "1 of 4 shown"


def test_what_is_typed_is_looked_for_and_stands_in_the_address(
    browser: Chromium, page: Path
) -> None:
    browser.open(page)
    browser.value("document.getElementById('words').focus()")
    browser.type("t.py::<b>")

    assert browser.value(NAMES) == ["t.py::<b>other</b>"]
    assert browser.value(HASH) == "#q=t.py%3A%3A%3Cb%3E"


def test_a_line_of_a_finding_is_found(browser: Chromium, page: Path) -> None:
    browser.open(page, "#q=cudaStreamSynchronize")

    assert browser.value(NAMES) == [BAD.test, "t.py::waits"]


def test_words_that_no_test_has_show_none(browser: Chromium, page: Path) -> None:
    browser.open(page, "#q=%3Cscript%3E")

    assert browser.value(NAMES) == []
    assert browser.value(COUNT) == "0 of 4 shown"


def test_an_outcome_is_chosen_and_let_go_by_the_keyboard(
    browser: Chromium, page: Path
) -> None:
    browser.open(page)
    browser.value("document.querySelector('.chip.passed').focus()")

    browser.press("Enter")
    chosen = browser.value(NAMES), browser.value(HASH)
    browser.press("Enter")

    assert chosen == ([GOOD.test, "t.py::<b>other</b>"], "#outcome=passed")
    assert len(browser.value(NAMES)) == 4
    assert browser.value(HASH) == ""


def test_everything_that_is_shown_opens_at_once(browser: Chromium, page: Path) -> None:
    browser.open(page, "#outcome=passed")
    browser.value("document.getElementById('open').click()")

    assert browser.value(OPEN) == 2

    browser.value("document.getElementById('open').click()")

    assert browser.value(OPEN) == 0


WIDTHS = (400, 800, 1280)

BEYOND = """[...document.querySelectorAll('body *')].filter((e) => {
    const box = e.getBoundingClientRect();
    const scrolls = e.closest('.wide');
    return box.width && !scrolls && (box.right > innerWidth + 1 || box.left < -1);
}).map((e) => e.outerHTML.slice(0, 80))"""
"""Elements that reach over an edge of the window."""


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with every picture, of tests that failed and tests that passed."""
    path: Path = tmp_path_factory.mktemp("full") / "report.html"
    path.write_text(page_text(full_contents()), "utf-8")
    return path


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dark", [False, True])
def test_it_fits_a_phone_and_a_desk_by_day_and_by_night(
    browser: Chromium, full: Path, width: int, *, dark: bool
) -> None:
    browser.resize(width, 900, dark=dark)
    browser.open(full)
    browser.value("document.querySelectorAll('details').forEach((d) => d.open = true)")

    paper = browser.value("getComputedStyle(document.body).backgroundColor")

    assert browser.value("document.documentElement.scrollWidth") <= width
    assert browser.value(BEYOND) == []
    assert paper == ("rgb(15, 19, 24)" if dark else "rgb(255, 255, 255)")
    browser.resize(1280, 900)


SEEN = """(selector) => [...document.querySelectorAll(selector)]
    .filter((e) => e.checkVisibility() && e.getBoundingClientRect().height > 0)
    .map((e) => e.textContent)"""


def seen(browser: Chromium, selector: str) -> list[str]:
    """Texts of what *selector* finds and a reader can see."""
    found: list[str] = browser.value(f"({SEEN})({selector!r})")
    return found


def wait_for(browser: Chromium, expression: str) -> Any:
    """The value of a JavaScript *expression*, as soon as it is one that is true."""
    look = f"const found = {expression}; found ? done(found) : setTimeout(look, 10)"
    return browser.value(
        f"new Promise((done) => {{ const look = () => {{ {look} }}; look(); }})"
    )


@pytest.mark.parametrize("width", WIDTHS)
def test_the_answer_is_seen_without_a_click(
    browser: Chromium, full: Path, width: int
) -> None:
    browser.resize(width, 900)
    browser.open(full)

    assert seen(browser, ".what b") == ["SLOWER", "OVER LIMIT syncs"]
    assert seen(browser, ".source .here") == ["3  total += loss.item()\n"]
    assert seen(browser, ".said h2") == ["fix", "sure", "limit", "accept", "env"]
    assert seen(browser, ".said .command")[0].startswith("gpuperf accept ")
    assert seen(browser, "figcaption")[1:3] == [
        "memory over one step",
        "memory at the peak, 100.0 MiB",
    ]
    assert seen(browser, ".verdicts") == []
    browser.resize(1280, 900)


def test_charts_are_as_wide_as_there_is_room(browser: Chromium, full: Path) -> None:
    browser.open(full)
    width = "document.querySelector('{}').getBoundingClientRect().width"

    body = browser.value(width.format(".body"))

    assert browser.value(width.format(".body figure:not(.place)")) > 0.95 * body


def test_a_print_opens_what_failed_with_its_reasons(
    browser: Chromium, tmp_path: Path
) -> None:
    path = tmp_path / "report.html"
    failing = [replace(BAD, test=f"t.py::t[{n}]") for n in range(5)]
    path.write_text(page_text(contents(*failing, GOOD)), "utf-8")
    browser.open(path)
    before = browser.value(OPEN)

    browser.call("Page.printToPDF")

    assert (before, browser.value(OPEN)) == (3, 5)
    browser.call("Emulation.setEmulatedMedia", media="print")
    assert len(seen(browser, ".said p")) >= 5
    assert seen(browser, ".tools") == []
    browser.call("Emulation.setEmulatedMedia", media="")


def test_a_print_has_what_was_compressed_of_all_that_failed(
    browser: Chromium, tmp_path: Path
) -> None:
    path = tmp_path / "report.html"
    failing = [replace(BAD, test=f"t.py::t[{n}]") for n in range(60)]
    path.write_text(page_text(contents(*failing)), "utf-8")
    browser.open(path)
    wait_for(browser, "!document.querySelector('[data-lazy]')")

    browser.call("Page.printToPDF")

    assert 'data-lazy=""' in path.read_text("utf-8")
    assert len(seen(browser, ".what")) == 2 * len(failing)


def test_what_is_compressed_opens_and_is_found(
    browser: Chromium, tmp_path: Path
) -> None:
    path = tmp_path / "report.html"
    many = [replace(BAD, test=f"t.py::t[{n}]") for n in range(120)]
    other = replace(ITEM, location=Location(file="far.py", line=9, function="step"))
    last = replace(GOOD, test="t.py::last", findings=(other,))
    path.write_text(page_text(contents(*many, last)), "utf-8")
    browser.open(path)
    lazy = path.read_text("utf-8").count('data-lazy=""')
    browser.value(f"{SHOWN}.at(-1).open = true")

    opened = wait_for(browser, f"{SHOWN}.at(-1).lastElementChild.textContent")
    browser.open(path, "#q=far.py")
    wait_for(browser, f"{SHOWN}.length")

    assert lazy > 50
    assert "far.py:9 in step" in opened
    assert browser.value(NAMES) == ["t.py::last"]
    assert browser.complaints == []


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The source of axe-core, from the npm registry."""
    folder = tmp_path_factory.mktemp("axe")
    if shutil.which("npm") is None:
        pytest.skip("no npm to fetch axe-core with")
    command = ("npm", "pack", "--silent", AXE)
    try:
        subprocess.run(
            command, cwd=folder, check=True, capture_output=True, timeout=600
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        pytest.skip("axe-core cannot be fetched from the npm registry")
    (archive,) = folder.glob("*.tgz")
    with tarfile.open(archive) as files:
        found = files.extractfile("package/axe.min.js")
        assert found
        return found.read().decode()


AXE = "axe-core@4.14.1"

VIOLATIONS = """axe.run(document).then((found) => found.violations.map(
    (v) => `${v.id}: ${v.nodes.length} x ${v.nodes[0].html.slice(0, 120)}`))"""


@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize("dark", [False, True])
def test_nobody_is_kept_out(
    browser: Chromium, full: Path, axe: str, width: int, *, dark: bool
) -> None:
    browser.resize(width, 900, dark=dark)
    browser.open(full)
    browser.value("document.querySelectorAll('details').forEach((d) => d.open = true)")
    browser.value(f"{axe}; true")

    assert browser.value(VIOLATIONS) == []
    browser.resize(1280, 900)


def test_an_empty_run_has_nothing_to_filter(browser: Chromium, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(page_text(contents()), "utf-8")
    browser.open(path)

    assert browser.complaints == []
    assert browser.value("document.querySelector('main').textContent") == (
        "There is nothing to show."
    )


def test_the_outcomes_of_the_verdicts_are_those_of_the_buttons(
    browser: Chromium, tmp_path: Path
) -> None:
    path = tmp_path / "report.html"
    every = [
        replace(GOOD, test=o.value, verdicts=(replace(GOOD.verdicts[0], outcome=o),))
        for o in Outcome
    ]
    path.write_text(page_text(contents(*every)), "utf-8")
    browser.open(path, "#outcome=no+baseline,inconclusive")

    assert browser.value(NAMES) == ["inconclusive", "no baseline"]
