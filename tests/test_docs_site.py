"""The site that `make docs` builds: it opens from a disk and asks nothing of the network."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import pytest
from documents import DOCUMENTS, ROOT


pytest.importorskip("material", reason="mkdocs-material is not installed: `make docs`")

LOADED: Final = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "link": "href",
    "use": "href",
}
"""What a browser fetches without being asked, and where its address is."""

IN_STYLES: Final = re.compile(r"""(?:url\(|@import )\s*["']?(https?:)?//""")


class Reader(HTMLParser):
    """What a page loads, where it links to, and its anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.anchors.add(values.get("id") or "")
        if tag in LOADED and (address := values.get(LOADED[tag])):
            self.loaded.append(address)
        if tag == "a" and (address := values.get("href")):
            self.links.append(address)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = (sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir")
    built = subprocess.run(
        [*command, str(folder)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Reader]:
    return {page: Reader(page.read_text("utf-8")) for page in site.rglob("*.html")}


def is_remote(address: str) -> bool:
    return bool(urlsplit(address).netloc)


def test_each_page_of_docs_is_a_page_of_the_site(
    site: Path, pages: dict[Path, Reader]
) -> None:
    docs = ROOT / "docs"
    sources = [path.relative_to(docs) for path in DOCUMENTS if docs in path.parents]
    names = {"README": "index"}

    built = {site / s.with_name(f"{names.get(s.stem, s.stem)}.html") for s in sources}

    assert built == set(pages) - {site / "404.html"}


def test_no_page_loads_anything_from_elsewhere(pages: dict[Path, Reader]) -> None:
    assert all(page.loaded for page in pages.values())
    remote = {a for page in pages.values() for a in page.loaded if is_remote(a)}

    assert remote == set()


def test_no_style_loads_anything_from_elsewhere(site: Path) -> None:
    styles = list(site.rglob("*.css"))

    assert styles
    assert [s for s in styles if IN_STYLES.search(s.read_text("utf-8"))] == []


def test_each_link_within_the_site_leads_to_its_anchor(
    pages: dict[Path, Reader],
) -> None:
    broken = [
        f"{page.name}: {link}"
        for page, read in pages.items()
        if page.name != "404.html"
        for link in read.links
        if not is_remote(link) and not leads(page, link, pages)
    ]

    assert broken == []


def leads(page: Path, link: str, pages: dict[Path, Reader]) -> bool:
    """Whether a *link* of *page* leads to a file, and to an anchor if it names one."""
    parts = urlsplit(link)
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if target.is_dir():
        target /= "index.html"
    if not parts.fragment or target not in pages:
        return target.is_file()
    return unquote(parts.fragment) in {*pages[target].anchors, "__skip"}


def test_a_page_shows_blocks_and_hides_what_sets_them_up(site: Path) -> None:
    page = (site / "why" / "blamed.html").read_text("utf-8")

    assert "SLOWER: 2.400 ms per step" in page
    assert "script {" not in page
    assert "set-up" not in page


def test_the_index_for_language_models_names_each_page_with_its_text(
    site: Path,
) -> None:
    index = (site / "llms.txt").read_text("utf-8")
    entries = re.findall(r"^- \[.+\]\((\S+)\): \S.*$", index, re.MULTILINE)

    assert entries == re.findall(r"\]\((\S+)\)", index)
    assert sorted(site / e for e in entries) == sorted(site.rglob("*.md"))
