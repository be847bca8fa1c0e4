"""Finds turns of phrase that readers stumble over, in the documents and the messages.

    python tools/prose.py            # all places
    python tools/prose.py README.md  # some files

Prints file, line, the words and why; exits with 1 if there are any. A plain pattern finds
some innocent sentence one day: rewrite it, or let ``ALLOWED`` say why it stays.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple


ROOT: Final = Path(__file__).parents[1]

PLACES: Final = {
    "README.md": 0,
    "docs/README.md": 0,
    "docs/start": 0,
    "docs/guides": 0,
    "docs/ci": 0,
    "docs/why": 0,
    "docs/compare": 0,
    "docs/errors.md": 0,
    "docs/reference": 0,
    "docs/internals": 0,
    "docs/decisions": 0,
    "docs/evidence": 0,
    "tests/features.md": 0,
    "pytest_gpuperf": 0,
    "tests": 12,
}
"""Files and folders, and how much may still be found there: a number only becomes smaller.

Of Markdown the text is read, of Python what is printed: messages and help; of tests their names.
"""

PATTERNS: Final = {
    r"(?:\d|\b(?:counts?|milliseconds|millijoules|MiB)) an?"
    r" (?:step|run|second|test|rank|kind|call|row)\b": '"per step", not "a step"',
    r"\b(?:an?|one) (?:row|line|file|page|rank|GPU|worker|pytest|process|server|folder|one"
    r"|baseline|number|sample|object|measure|all-reduce|batch) an? (?:isolated |visible )?"
    r"(?:step|run|rank|kind|call|row|test|metric|bucket|slot|GPU|clone|machine|device)\b": (
        '"one file per kind", not "one a kind"'
    ),
    r"(?<![Tt]here\s)\b(?:is|are|was|were) no (?!longer\b|more\b|less\b|fewer\b)\w+": (
        '"is not": "no" is no adjective here'
    ),
    r"\b(?:stands?|stood)\b(?!-in| (?:for|by|out|in for)\b)": '"is", "is written"',
    r"\b(?:lies?|lay|lain)\b(?! out\b)": '"is"',
    r"\bsettl(?:e|es|ed|ing)\b": '"decides", "compares"; of clocks "becomes steady"',
    r"\blaid to\b": '"counted as", "caused by"',
    r"\bof (?:it|which)\b": "name the thing",
    r"\b(?:is|are|was|were|be) told\b(?! apart)|\btold (?:by|about|from|when|with)\b": (
        'say who says what: "the message says"'
    ),
    r"\b(?:holds|held)\b": '"keeps", "contains", "applies"',
    r"(?:(?<=[.;:!]\s)|(?<=\n\n)|(?<=-\s))Where\b(?! (?:to|do|does|is|are|did)\b[^.]*\?)": (
        '"if": "where" is for places'
    ),
    r"\bwhere (?:there|it (?:is|has|can|does)|none|nothing|no|they|nobody|somebody|CI)\b": (
        '"if": "where" is for places'
    ),
    r"\bthat (?:is|are) (?:meant|wanted|asked|named|given|stored|there|alike)\b": (
        'an adjective: "an intended change", "the stored time"'
    ),
    r"\bhosts?\b(?!ed)": '"CPU"',
    r"\b(?:pretend\w*|ghosts?)\b": '"simulated GPU", "GPU tensor"',
    r"\b(?:undecided|not judged|graphs? kept)\b": (
        '"inconclusive", "not checked", "retained graph"'
    ),
    r"\b\d+ waits\b|\b(?:an?|no|each|every|any|new|allowed|hidden) waits?\b(?! for a core)": (
        '"sync": how often the CPU waits for the GPU is a count of syncs'
    ),
    r"\bwitness(?:es|ed)?\b|\bnews\b|\bdearest\b": '"shows", "new", "slowest"',
    r"(?<!-)\boccasions?\b": '"session": runs that one machine made at one time',
    r"\bbeside\b": '"next to", "with", "as well as"',
    r"\b(?:is|are|was|were) left behind\b": '"leaked", "is left"',
    r"\b(?:draws?|drawn)\b": '"uses random numbers", "is random"; of pictures "shows"',
    r"(?:(?<=[.;:!]\s)|(?<=\n\n))Who wants\b": '"To get ..., do ..."',
    r"\b(?:nobody|somebody)\b": '"no one", "someone", or name them',
    r"\b(?:lets?|letting) go\b": '"frees", "releases"',
    r"\bas ever\b|\ball the same\b|\bsay(?:s|ing)? so\b|\bbut for\b|\band the like\b": (
        "a phrase that can go"
    ),
    r"\bneeds? no such\b|\bsuch things\b|\bnone of (?:it|them)\b": "name the thing",
    r"\bis to be (?!able)\w+|\bare to be (?!able)\w+": '"must be", or who does it',
}
"""What to look for, spaces standing for any gap, and what to write in its place."""

TEST_NAME: Final = re.compile(r"^ *def (test_\w+)", re.MULTILINE)
IN_NAMES: Final = {r"\btold\b": '"said", "shown"', r"\bbesides?\b": '"next to"'}
"""What to look for in the names of tests: they are long, and each is read alone."""

ALLOWED: Final = {
    ("pytest_gpuperf/devices/simulated/tensor.py", "host"): "torch's own message"
}
"""Words that stay, by file and text, and why."""

ELSEWHERE: Final = re.compile(
    r"^```.*?^```$|<!--.*?-->|`[^`\n]*(?:\n[^`\n]+)?`|\]\([^)]*\)|^ {4}[^\n]*$",
    re.MULTILINE | re.DOTALL,
)
"""What is code, comment or address in Markdown."""


class Finding(NamedTuple):
    """Words at a line, and why they should go."""

    line: int
    words: str
    why: str


def findings(text: str, patterns: Mapping[str, str] = PATTERNS) -> list[Finding]:
    """What the *patterns* find in plain *text*, in its order."""
    return sorted(
        Finding(text.count("\n", 0, found.start()) + 1, " ".join(found[0].split()), why)
        for pattern, why in patterns.items()
        for found in re.finditer(pattern.replace(" ", r"\s+"), text)
    )


def prose_of(markdown: str) -> str:
    """The text of *markdown*, with code and addresses blanked at their places."""
    return ELSEWHERE.sub(lambda code: re.sub(r"[^\n]", "#", code[0]), markdown)


def sentences_of(source: str) -> str:
    """Texts in *source* of three words and more, without docstrings, at their lines."""
    lines = [""] * (source.count("\n") + 2)
    tree = ast.parse(source)
    documented = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)
    }
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and id(node) not in documented and node.value.strip().count(" ") > 1:
            lines[node.lineno - 1] += " | " + " ".join(node.value.split())
    return "\n".join(lines)


def names_of(source: str) -> str:
    """The names of the tests in *source* as words, at their lines."""
    names = (TEST_NAME.match(line) for line in source.splitlines())
    return "\n".join(name[1].replace("_", " ") if name else "" for name in names)


def files_of(place: str) -> list[Path]:
    """The file, or those in the folder that are read."""
    path = ROOT / place
    if path.is_file():
        return [path]
    if place == "tests":
        return sorted(path.rglob("test_*.py"))
    return sorted([*path.rglob("*.md"), *path.rglob("*.py")])


def read(path: Path) -> list[Finding]:
    """What is found in the text of a page, the messages of a module, the names of tests."""
    text = path.read_text(encoding="utf-8")
    if path.name.startswith("test_"):
        return findings(names_of(text), IN_NAMES)
    return findings(prose_of(text) if path.suffix == ".md" else sentences_of(text))


def found_in(place: str) -> list[str]:
    """A line for each thing to rewrite in a file or folder."""
    lines = []
    for path in files_of(place):
        name = str(path.relative_to(ROOT))
        lines += [
            f"{name}:{found.line}: {found.words!r}: {found.why}"
            for found in read(path)
            if (name, found.words) not in ALLOWED
        ]
    return lines


def main(places: Mapping[str, int]) -> int:
    """Print what is found in each place with more than it may have; return 1 if any has."""
    failed = False
    for place, most in places.items():
        lines = found_in(place)
        if len(lines) > most:
            failed = True
            print(*lines, f"{place}: {len(lines)} to rewrite, at most {most}", sep="\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(dict.fromkeys(sys.argv[1:], 0) or PLACES))
