"""The pages of docs as mkdocs takes them, and their index for language models.

The Markdown is written for GitHub and followed by ``tests/test_readme.py``. Three things in
it are not mkdocs' own: the comments that set a page's blocks up, the name of a file behind
the language of its block, and links to files of the project outside of the folder.
"""

from __future__ import annotations

import os
import posixpath
import re
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mkdocs.structure.files import File


if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.nav import Navigation
    from mkdocs.structure.pages import Page


COMMENT: Final = re.compile(r"^<!-- .*?-->\n+", re.MULTILINE | re.DOTALL)
NAMED_BLOCK: Final = re.compile(r"^```(\w+) (\S+)$", re.MULTILINE)
FENCED: Final = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
LINK: Final = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<url>[^)\s]+)\)")
SENTENCE: Final = re.compile(r"(.+?[.!?])(?=\s|$)", re.DOTALL)
SHOWN: Final = "project"
"""Where in the site the files of the project are that pages link to."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put pages in the place of the patterns in the menu."""
    docs = Path(config.docs_dir)
    pages = sorted(str(path.relative_to(docs)) for path in docs.rglob("*.md"))
    config.nav = expanded(config.nav, pages, set(named(config.nav)))
    return config


def named(menu: Any) -> list[str]:
    """Paths and patterns in *menu*, at whatever depth."""
    if isinstance(menu, str):
        return [menu]
    below = menu.values() if isinstance(menu, dict) else menu
    return [name for item in below for name in named(item)]


def expanded(menu: Any, pages: list[str], taken: set[str]) -> Any:
    """*menu* with each pattern replaced by the pages that are not *taken*."""
    if isinstance(menu, dict):
        return {title: expanded(below, pages, taken) for title, below in menu.items()}
    if isinstance(menu, str):
        return menu
    items: list[Any] = []
    for item in menu:
        if isinstance(item, str) and "*" in item:
            items += [p for p in pages if fnmatch(p, item) and p not in taken]
        else:
            items.append(expanded(item, pages, taken))
    return items


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files of the project that pages link to."""
    for page in files.documentation_pages():
        for link in LINK.finditer(page.content_string):
            path = outside(page.src_uri, link["url"], config)
            if path and shown(path) not in files.src_uris:
                source = Path(config.docs_dir).parent / path
                files.append(
                    File.generated(config, shown(path), abs_src_path=str(source))
                )
    return files


def outside(page: str, url: str, config: MkDocsConfig) -> str | None:
    """Path in the project of what *page* links to, if that is a file beside docs."""
    if "://" in url or url.startswith("#"):
        return None
    folder = Path(config.docs_dir).name
    place = posixpath.join(folder, posixpath.dirname(page), url.partition("#")[0])
    path = posixpath.normpath(place)
    inside = path == folder or path.startswith(f"{folder}/")
    there = (Path(config.docs_dir).parent / path).is_file()
    return path if there and not inside else None


def shown(path: str) -> str:
    """Path in the site of a file of the project; code is shown, and not downloaded."""
    return f"{SHOWN}/{path}" + ("" if path.endswith(".json") else ".txt")


def on_page_markdown(
    markdown: str, *, page: Page, config: MkDocsConfig, **_: Any
) -> str:
    """Return the text of *page* as mkdocs takes it."""
    text = COMMENT.sub("", markdown)
    page.meta.setdefault("description", summary_of(text))
    page.meta["text"] = text
    parts = FENCED.split(text)
    return "".join(
        NAMED_BLOCK.sub(r'```\1 title="\2"', part)
        if part.startswith("```")
        else LINK.sub(lambda link: relinked(link, page.file.src_uri, config), part)
        for part in parts
    )


def relinked(link: re.Match[str], page: str, config: MkDocsConfig) -> str:
    """*link* to the copy in the site, where it leads out of docs."""
    path = outside(page, link["url"], config)
    if path is None:
        return link[0]
    to = posixpath.relpath(shown(path), posixpath.dirname(page) or ".")
    return f"[{link['text']}]({to})"


def summary_of(text: str) -> str:
    """First sentence of a page, without markup, on one line."""
    paragraphs = (part.strip() for part in FENCED.sub("", text).split("\n\n"))
    first = next((p for p in paragraphs if p and p[0] not in "#|-<>!"), "")
    sentence = SENTENCE.match(first)
    plain = LINK.sub(r"\g<text>", sentence[1] if sentence else first)
    return " ".join(re.sub(r"[*`]", "", plain).split()).removesuffix(":")


def on_nav(nav: Navigation, *, config: MkDocsConfig, **_: Any) -> Navigation:
    """Remember the menu: the index has its order."""
    config.extra["menu"] = nav
    return nav


def on_post_build(*, config: MkDocsConfig) -> None:
    """Write `llms.txt`, and the text of each page beside it."""
    site = Path(config.site_dir)
    lines = [f"# {config.site_name}", "", f"> {config.site_description}"]
    for section in config.extra["menu"].items:
        lines += ["", f"## {section.title}", ""]
        for page in pages_of(section):
            source = page.file.src_uri
            (site / source).parent.mkdir(parents=True, exist_ok=True)
            (site / source).write_text(page.meta["text"], encoding="utf-8")
            described = page.meta["description"]
            lines.append(f"- [{page.title}]({source}): {described}".removesuffix(": "))
    (site / "llms.txt").write_text("\n".join(lines) + os.linesep, encoding="utf-8")


def pages_of(item: Any) -> list[Page]:
    """Pages in a part of the menu, in its order."""
    if item.is_page:
        return [item]
    return [page for child in item.children for page in pages_of(child)]
