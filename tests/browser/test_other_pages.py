"""The pages of an audit, a forecast and a comparison in a browser, narrow and wide."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from chromium import Chromium, program


sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "report"))

from golden_audits import FORECAST, FORECAST_BLOCKS, HERE, SAVINGS, WAITING, line_of
from golden_commands import COMPARED

from pytest_gpuperf.report.html.page import ab_page, audit_page, memory_page
from pytest_gpuperf.report.screen.audit import AuditView, audit_blocks
from pytest_gpuperf.report.screen.commits import comparison_blocks


pytestmark = pytest.mark.skipif(
    program() is None, reason="no Chromium is installed: `apt-get install chromium`"
)

CUT = """[...document.querySelectorAll('.lanes text')].map((text) => {
  const box = text.getBoundingClientRect();
  return [text.textContent, box.left, box.right];
}).filter(([_, left, right]) => left < 0 || right > innerWidth)"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with Chromium(str(program())) as started:
        yield started


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    view = AuditView(here=HERE, line_of=line_of, steps=WAITING.steps)
    places = enumerate(WAITING.findings)
    waits = (
        replace(f, waits_after=(9 * n,), operations=27, source="x" * 90)
        for n, f in places
    )
    audit = replace(WAITING, findings=tuple(waits))
    texts = {
        "audit": audit_page("train.py", audit, view, audit_blocks(audit, (), view)),
        "memory": memory_page(FORECAST, SAVINGS, view, FORECAST_BLOCKS),
        "ab": ab_page(COMPARED, view, comparison_blocks(COMPARED)),
    }
    folder = tmp_path_factory.mktemp("pages")
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text, "utf-8")
    return {name: folder / f"{name}.html" for name in texts}


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [400, 900, 1600])
@pytest.mark.parametrize("name", ["audit", "memory", "ab"])
def test_a_page_fits_its_window_and_asks_for_nothing(
    browser: Chromium, pages: dict[str, Path], name: str, width: int, *, dark: bool
) -> None:
    browser.resize(width, 900, dark=dark)
    browser.open(pages[name])

    assert browser.value("document.documentElement.scrollWidth") <= width
    assert browser.value(CUT) == []
    assert browser.requested == [pages[name].as_uri()]
    assert browser.complaints == []
