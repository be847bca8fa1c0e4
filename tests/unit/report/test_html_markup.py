"""Markup: text stays text, whatever it holds."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given, strategies as st

from pytest_gpuperf.report.html import contents as markup
from pytest_gpuperf.report.html.contents import (
    VISIBLE_CHARS,
    Markup,
    escaped,
    without_layout,
)


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


MEANT: Final = '<p title="{{ text }}">{{ text }}</p>'


def filled_in(source: str, **values: object) -> str:
    """What a template with this *source* becomes."""
    template = markup._environment().from_string(without_layout(source))
    return str(template.render(values))


def test_a_text_becomes_a_text_and_an_attribute_and_ends_neither() -> None:
    assert filled_in(MEANT, text="\"><b>&'") == (
        '<p title="&quot;&gt;&lt;b&gt;&amp;&#x27;">&quot;&gt;&lt;b&gt;&amp;&#x27;</p>'
    )


def test_what_is_markup_already_is_not_escaped_again() -> None:
    macro = "{% macro m(text) %}<b>{{ text }}</b>{% endmacro %}"

    assert (
        filled_in("{{ a }}{{ b }}{{ c }}", a="<", b=Markup("<br>"), c=escaped("<"))
        == "&lt;<br>&lt;"
    )
    assert filled_in(f"{macro}{{{{ m(text) }}}}", text="<") == "<b>&lt;</b>"


@pytest.mark.parametrize(
    "source",
    [
        "{{ texts | join(between) }}",
        "{{ texts[0] ~ between ~ texts[1] }}",
        "{% set both %}{{ texts[0] }}{{ between }}{{ texts[1] }}{% endset %}{{ both }}",
        "{{ (texts[0] + between + texts[1]) | string }}",
    ],
)
def test_texts_put_together_in_a_template_are_escaped_once(source: str) -> None:
    assert filled_in(source, texts=["<\x1b", ">"], between="&") == "&lt;␛&amp;&gt;"


@pytest.mark.parametrize("value", [None, (), ["<p>"], b"text"])
def test_a_value_that_is_no_text_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="no text for a page"):
        filled_in("{{ value }}", value=value)


def test_a_value_that_nobody_gave_is_refused() -> None:
    with pytest.raises(Exception, match="'text' is undefined"):
        filled_in(MEANT)


def test_the_lines_of_a_template_are_its_layout() -> None:
    source = """
    <dl title="{{ text }}"
      class="wide">
      {% if text %}
        <dt>
          {{ text }}
        <dd>in two
          lines
      {% endif %}
    </dl>
    """

    assert filled_in(source, text="a\n b") == (
        '<dl title="a\n b" class="wide"><dt>a\n b<dd>in two lines</dl>'
    )


def test_no_template_marks_a_text_as_safe() -> None:
    folder = Path(markup.__file__).with_name("templates")
    sources = [path.read_text("utf-8") for path in folder.iterdir()]

    assert len(sources) > 9
    assert not [s for s in sources if re.search(r"\bsafe\b|autoescape", s)]


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
    written = filled_in(MEANT, text=text)

    read = Read(written.encode("utf-8").decode("utf-8"))

    shown = text.translate(VISIBLE_CHARS)
    assert read.elements == [("p", {"title": shown})]
    assert read.data == shown
