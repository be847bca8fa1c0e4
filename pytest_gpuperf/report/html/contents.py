"""The contents of the page: one section for each call of a test, the worst first.

Templates are filled in here, so that no text can become markup.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any, Final

from ...errors import ErrorId, UsageError
from ...model.baseline import Entry
from ...model.finding import Location
from ...model.run import Results
from ..judged_calls import JudgedCall


SourceLines = Mapping[tuple[str, int], str]
"""By file and line."""

COMMIT_CHARS: Final = 10
"""Characters that name a commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """A run, its *sections*, and what else is known of its tests.

    ``stored`` are the baselines, ``pending`` is what this run measured, both by call,
    from the folders named.
    """

    results: Results
    sections: Sequence[JudgedCall]
    stored: Mapping[str, Entry] = field(default_factory=dict)
    pending: Mapping[str, Entry] = field(default_factory=dict)
    lines: SourceLines = field(default_factory=dict)
    pending_folder: str = ".gpuperf"
    baselines_folder: str = ""

    def line_of(self, file: str, line: int) -> str:
        """Return the text of a line as it is now; nothing if that is not known."""
        return self.lines.get((file, line), "")


AROUND: Final = 1
"""Lines of source that are shown on either side of one."""


def locations_of(sections: Sequence[JudgedCall]) -> Iterator[Location]:
    """Yield where their findings are, and the lines around."""
    for section in sections:
        for finding in section.verdict.findings if section.verdict else ():
            at = finding.location
            if at is not None:
                for line in range(at.line - AROUND, at.line + AROUND + 1):
                    yield replace(at, line=line)


# Templates that are filled in so that no text can become markup.
#
# They lie in `templates`. Their lines are layout: a line end, with the blanks around
# it, is written as a blank between two words, and not at all next to a tag.


_BIDI: Final = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
_INVISIBLE: Final = (*range(0x7F, 0xA0), *_BIDI, 0x2028, 0x2029, 0xFFFE, 0xFFFF)

VISIBLE_CHARS: Final = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n"},
    **{code: f"\\u{code:04x}" for code in (*_INVISIBLE, *range(0xD800, 0xE000))},
}
"""Replaces characters that are no text: those that control a terminal, turn the
direction of writing, end a line of a script, or cannot be written as UTF-8."""


class Markup(str):
    """HTML that goes into the page unchanged."""

    __slots__ = ()

    def __html__(self) -> str:
        """Return it as it is: by this name templates know what needs no escaping."""
        return self


def escaped(value: object) -> Markup:
    """Escape a text or number so that it reads as it is; return markup unchanged."""
    # The type marks text that is escaped already, so that nothing is escaped twice or never.
    if isinstance(value, Markup):
        return value
    if hasattr(value, "__html__"):  # what a macro or a block of a template gave
        return Markup(value)
    if not isinstance(value, str | int | float):
        msg = f"{value}: no text for a page"
        raise TypeError(msg)
    text = str(value)
    shown = text if text.isprintable() else text.translate(VISIBLE_CHARS)
    return Markup(escape(shown))


def rendered(template: str, /, **values: object) -> Markup:
    """Return the *template* of this name with its *values* filled in, each escaped.

    Raises ``UsageError`` if jinja2 is not installed.
    """
    return Markup(_environment().get_template(f"{template}.html.j2").render(values))


@cache
def asset(name: str) -> Markup:
    """Return the text of a file next to this module."""
    return Markup(files(__package__).joinpath(name).read_text(encoding="utf-8"))


_NEXT_TO_TAG: Final = re.compile(r"(?<=[>}])\s*\n\s*|\s*\n\s*(?=[<{])")
_LINE_END: Final = re.compile(r"\s*\n\s*")


def without_layout(source: str) -> str:
    """Return the *source* of a template as one line."""
    return _LINE_END.sub(" ", _NEXT_TO_TAG.sub("", source.strip()))


@cache
def _environment() -> Any:
    try:
        # Imported here: torch requires it, and this room alone needs it.
        import jinja2
    except ModuleNotFoundError:
        msg = "a page needs jinja2, which is not installed; run `pip install jinja2`"
        raise UsageError(msg, ErrorId.GP528) from None
    return jinja2.Environment(
        loader=jinja2.FunctionLoader(
            lambda name: without_layout(asset(f"templates/{name}"))
        ),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        # Before its own escaping, to which an escaped text is markup.
        finalize=escaped,
    )
