"""Colours of lines that people read: on a terminal only, and as they ask for them."""

from __future__ import annotations

from io import StringIO

import pytest

from pytest_gpuperf.report.document import coloured
from pytest_gpuperf.visible import VisibleStream, shows_colours


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    "line", ["  fixed words of a table", '  "key": 1,', "CPU only, since"]
)
def test_a_line_of_another_form_has_none(line: str) -> None:
    assert coloured(line) == line


@pytest.mark.parametrize(
    ("stream", "environ", "shown"),
    [
        (Terminal(), {"TERM": "xterm"}, True),
        (Terminal(), {"TERM": "xterm", "NO_COLOR": ""}, True),
        (StringIO(), {"FORCE_COLOR": "1"}, True),
        (StringIO(), {"TERM": "xterm"}, False),
        (Terminal(), {"TERM": "dumb"}, False),
        (Terminal(), {"TERM": "xterm", "NO_COLOR": "1"}, False),
        (Terminal(), {"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
    ],
)
def test_colours_are_shown_on_a_terminal_and_as_people_ask(
    stream: StringIO, environ: dict[str, str], *, shown: bool
) -> None:
    assert shows_colours(stream, environ) is shown


def test_a_name_in_a_painted_line_cannot_bring_codes_of_its_own() -> None:
    terminal = Terminal()

    VisibleStream(terminal, coloured).write("  --> \x1b[31mevil.py:1\n")

    assert terminal.getvalue() == (
        "\x1b[34;1m  --> \x1b[0m\x1b[1m\\x1b[31mevil.py:1\x1b[0m\n"
    )


def test_what_is_written_in_parts_is_left_as_it_is() -> None:
    terminal = Terminal()
    stream = VisibleStream(terminal, coloured)

    stream.write("  --> ")
    stream.write("a.py:1\n")

    assert terminal.getvalue() == "  --> a.py:1\n"
