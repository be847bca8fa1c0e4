"""README and docs as blocks that can be followed, and outputs as shapes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final


ROOT: Final = Path(__file__).parents[1]
DOCUMENTS: Final = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))

BLOCK: Final = re.compile(
    r"^```(?P<kind>\w+)(?: (?P<name>\S+))?\n(?P<text>.*?)^```$"
    r"|^<!-- (?P<hidden>script|device|file) (?P<value>.*?) -->$",
    re.MULTILINE | re.DOTALL,
)

SHAPES: Final = (
    (r"[=_-]{3,}", "---"),  # pytest's rules are as wide as the terminal
    (r" \(\d+:\d\d:\d\d\)", ""),  # what pytest adds from a minute on
    (r"\S*?\w+\.py:\d+ in \w+", "LINE"),
    (r"peak_allocated_bytes", "MEMORY"),
    (r"\b(?:cpu|CPU|scripted)\b", "DEVICE"),
    (r"\bp = \d[\d.]*(?:e-\d+)?", "p = #"),
    (r"[-+]?\d[\d.]* ?(?:ns|us|ms|s|B|KiB|MiB|GiB|%)(?!\w)", "#"),
)
"""What differs between a real device and the scripted one, and between two runs."""


@dataclass(frozen=True)
class Block:
    """A fenced block, or a comment for the blocks that follow.

    A comment is the script of the device, the device, or a file and what it is a copy of.
    """

    line: int
    kind: str
    name: str
    text: str


@dataclass(frozen=True)
class Command:
    """A line after ``$`` and the output that is shown for it."""

    line: str
    output: str

    @property
    def fails(self) -> bool:
        """Whether the output shows that tests failed, or became worse."""
        shown = self.output.replace("would have failed", "warned")
        return any(word in shown for word in (" failed", " worse"))


def blocks_of(text: str) -> list[Block]:
    return [
        Block(
            line=text.count("\n", 0, found.start()) + 1,
            kind=found["hidden"] or found["kind"],
            name=found["name"] or "",
            text=found["value"] or found["text"],
        )
        for found in BLOCK.finditer(text)
    ]


def commands_of(block: Block) -> list[Command]:
    """Commands of a console block, or of the ``run`` keys of a workflow."""
    if block.kind == "yaml":
        lines = re.findall(r"^ *- run: (.+)$", block.text, re.MULTILINE)
        return [Command(line=line, output="") for line in lines]
    parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
    assert parts[0] == "", f"a console block begins with a command: {parts[0]!r}"
    return [
        Command(line=line, output=output)
        for line, _, output in (part.partition("\n") for part in parts[1:])
    ]


PROGRESS: Final = re.compile(r"^gpuperf: measuring \d+/\d+ tests, .*\n", re.MULTILINE)
"""What a log gets of a run that takes more than ten seconds, as here on a busy machine."""


def shape(output: str) -> str:
    """*output* without what differs from run to run, each gap one space."""
    shaped = " ".join(PROGRESS.sub("", output).split())
    for pattern, name in SHAPES:
        shaped = re.sub(pattern, name, shaped)
    return shaped


def has_shape(output: str, shown: str) -> bool:
    """Whether *output* looks as *shown*, where a line ``...`` stands for anything."""
    parts = re.split(r"^\.\.\.$", shown, flags=re.MULTILINE)
    pattern = ".*".join(re.escape(shape(part)) for part in parts)
    return re.fullmatch(pattern, shape(output)) is not None


def edited(text: str, diff: str) -> str:
    """*text* after *diff*, whose lines stand together at one place of the text."""
    lines = [line or " " for line in diff.splitlines()]
    old = [line[1:] for line in lines if line[0] in " -"]
    new = [line[1:] for line in lines if line[0] in " +"]
    before, after = "\n".join(old), "\n".join(new)
    assert text.count(before) == 1, f"expected once:\n{before}"
    return text.replace(before, after)


def text_of(place: str) -> str:
    """The text of a page, or of all pages in a folder."""
    path = ROOT / place
    pages = sorted(path.rglob("*.md")) if path.is_dir() else [path]
    return "\n".join(page.read_text(encoding="utf-8") for page in pages)


def rows_of(place: str, header: str) -> Iterator[str]:
    """Rows of the table under *header*, in a page or in a folder of pages."""
    lines = text_of(place).splitlines()
    start = lines.index(header) + 2
    for line in lines[start:]:
        if not line.startswith("|"):
            return
        yield line
