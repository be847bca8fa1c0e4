"""The words that the linter of the prose finds, and those that it leaves."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest


SCRIPT = Path(__file__).parents[3] / "tools" / "prose.py"
spec = importlib.util.spec_from_file_location("prose", SCRIPT)
assert spec
assert spec.loader
prose = importlib.util.module_from_spec(spec)
spec.loader.exec_module(prose)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("It waits 2 a step.", ["2 a step"]),
        ("A file, one row a test.", ["one row a test"]),
        ("It says why that is no noise.", ["is no noise"]),
        ("The limit stands in the test.", ["stands"]),
        ("The file lies in the folder.", ["lies"]),
        ("The commit settles it.", ["settles"]),
        ("Idle time is laid to a cause.", ["laid to"]),
        ("The first half of it is slow.", ["of it"]),
        ("The reader is told why.", ["is told"]),
        ("The mark holds here.", ["holds"]),
        ("It ends. Where CI is set it fails.", ["Where"]),
        ("It fails where there is one.", ["where there"]),
        ("A change that is meant passes.", ["that is meant"]),
        ("The host waits.", ["host"]),
        ("The pretended GPU has a rule.", ["pretended"]),
        ("Somebody reads it, or nobody.", ["nobody"]),
        ("It lets go of them.", ["lets go"]),
        ("It works as ever.", ["as ever"]),
        ("An improvement needs no such word.", ["needs no such"]),
        ("The slowdown is to be seen.", ["is to be seen"]),
    ],
)
def test_a_turn_of_phrase_is_found(text: str, words: list[str]) -> None:
    assert [found.words for found in prose.findings(text)] == words


@pytest.mark.parametrize(
    "text",
    [
        "There is no GPU, and it is no longer used.",
        "Where does the time go? See the file where the step waits.",
        "A letter stands for a rank, and the hosted runner is fine.",
        "It takes a step and a run. Each rank has a GPU.",
        "The seconds are told apart: 1 per step.",
        "What has to be able to run is to be able to stop.",
    ],
)
def test_plain_words_are_left(text: str) -> None:
    assert prose.findings(text) == []


def test_a_phrase_is_found_over_the_end_of_a_line_at_its_first() -> None:
    (found,) = prose.findings("One.\nIt is\nlaid\nto a cause.\n")

    assert (found.line, found.words) == (3, "laid to")


def test_code_comments_and_addresses_of_markdown_are_no_prose() -> None:
    text = (
        "<!-- the host\nlies -->\nSee `host` and [it](lies.md).\n\n"
        "```console\n$ gpuperf host\n```\n\n    the host lies\n\nThe host.\n"
    )

    (found,) = prose.findings(prose.prose_of(text))

    assert found.line == 11


def test_of_python_the_sentences_are_read_that_are_no_docstrings() -> None:
    source = (
        '"""The host lies here."""\n'
        'WORDS = "the host"\n'
        "option(\n"
        '    help=f"where {place} the file "\n'
        '    "lies here",\n'
        ")\n"
    )

    (found,) = prose.findings(prose.sentences_of(source))

    assert found.words == "lies"


def test_of_tests_the_names_are_read() -> None:
    names = prose.names_of("def test_a_rank_is_told_why(): ...\ndef told(): ...\n")

    assert [f.words for f in prose.findings(names, prose.IN_NAMES)] == ["told"]


@pytest.mark.parametrize(("most", "status"), [(0, 1), (1, 0), (2, 0)])
def test_a_place_may_have_as_many_as_it_had(
    tmp_path: Path, most: int, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A\n\nThe host.\n")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prose, "ROOT", tmp_path)

        assert prose.main({"page.md": most}) == status

    said = capsys.readouterr().out
    assert ("page.md:3: 'host': \"CPU\"" in said) == bool(status)


@pytest.mark.slow
def test_the_guides_have_nothing_to_rewrite() -> None:
    clean = [place for place, most in prose.PLACES.items() if most == 0]

    assert {"docs/start", "docs/guides", "docs/why", "docs/compare"} <= set(clean)
    assert [line for place in clean for line in prose.found_in(place)] == []
