"""Markup: text stays text, whatever it holds."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpuperf.report.html.markup import VISIBLE_CHARS
from pytest_gpuperf.report.html.markup import Markup
from pytest_gpuperf.report.html.markup import escaped
from pytest_gpuperf.report.html.markup import joined
from pytest_gpuperf.report.html.markup import tag


class Read(HTMLParser):
    """What a reader of HTML makes of a text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.data = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.data += data


def test_an_element_has_attributes_and_children() -> None:
    element = tag("p", "1 < 2", tag("b", "&"), tabindex=0, class_="why", title=None)

    assert element == '<p tabindex="0" class="why">1 &lt; 2<b>&amp;</b></p>'


def test_an_element_that_ends_by_itself_is_not_closed() -> None:
    assert tag("tr", tag("td", "a"), tag("td", "b")) == "<tr><td>a<td>b"


def test_an_element_that_holds_nothing_is_closed_at_once() -> None:
    assert tag("path", d="M0 0", aria_hidden="true") == (
        '<path d="M0 0" aria-hidden="true"/>'
    )


def test_text_in_an_attribute_cannot_end_it() -> None:
    assert tag("p", title='"><script>') == '<p title="&quot;&gt;&lt;script&gt;"></p>'


def test_what_is_markup_already_is_not_escaped_again() -> None:
    assert joined(["<", Markup("<br>"), escaped("<")]) == "&lt;<br>&lt;"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x00", "␛[31mred␀"),
        ("a\u2028b\u202ec", r"a\u2028b\u202ec"),
        ("\udc80", r"\udc80"),
        ("\x9b", r"\u009b"),
        ("two\nlines\tof 🐍 ünïcode", "two\nlines\tof 🐍 ünïcode"),
        ("]]></style><!--", "]]&gt;&lt;/style&gt;&lt;!--"),
    ],
)
def test_what_is_no_text_becomes_visible(text: str, shown: str) -> None:
    assert escaped(text) == shown


@given(st.text(st.characters(exclude_characters="\r")))
def test_whatever_a_text_holds_it_is_read_back_and_nothing_else(text: str) -> None:
    written = str(tag("p", text, title=text))

    read = Read(written.encode("utf-8").decode("utf-8"))

    shown = text.translate(VISIBLE_CHARS)
    assert read.elements == [("p", {"title": shown})]
    assert read.data == shown
