"""The table of features: its tests exist, and what code and folders can list is in it."""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Final

import pytest
from documents import ROOT

import pytest_gpuperf
from pytest_gpuperf import Gpuperf
from pytest_gpuperf.cli import COMMANDS
from pytest_gpuperf.model.metrics import BUDGET_KEYWORDS, METRICS
from pytest_gpuperf.plugin.options import OPTIONS, Option


PAGE: Final = ROOT / "tests" / "features.md"
TEXT: Final = PAGE.read_text(encoding="utf-8")

HEADER: Final = (
    "| feature | command that shows it | test that runs it |\n|---|---|---|\n"
)
ROW: Final = re.compile(
    r"\| (?P<feature>[A-Z`][^|]*[^|.]) \| (?P<command>`[^|]+`)"
    r" \| (?P<tests>(?:`tests/[\w/]+\.py(?:::\w+){1,2}`(?:<br>)?)+) \|"
)

FOR_ANNOTATIONS: Final = {"Compared", "Gpuperf"}
"""Public names that nobody calls."""


def rows() -> list[str]:
    """The lines of all tables, below their headers."""
    tables = TEXT.split(HEADER)[1:]
    return [line for table in tables for line in table.split("\n\n")[0].splitlines()]


def named_tests() -> list[str]:
    return re.findall(r"`(tests/[\w/]+\.py::[\w:]+)`", "\n".join(rows()))


def spans() -> list[str]:
    """What is code in the cells of features and commands."""
    cells = "\n".join(line.rpartition(" | ")[0] for line in rows())
    return re.findall(r"`([^`\n]+)`", cells)


def is_in(word: str, spans: list[str]) -> bool:
    """Whether *word* is somewhere in *spans*, and not a part of a longer one."""
    whole = re.compile(rf"(?<![\w-]){re.escape(word)}(?![\w-])")
    return any(whole.search(span) for span in spans)


@cache
def defined_in(file: str) -> frozenset[str]:
    """The functions of *file*, and the methods of its classes behind ``Class::``."""
    body = ast.parse((ROOT / file).read_text(encoding="utf-8")).body
    return frozenset(name for node in body for name in names_of(node))


def names_of(node: ast.stmt) -> Iterator[str]:
    match node:
        case ast.FunctionDef(name=name):
            yield name
        case ast.ClassDef(name=name, body=body):
            yield from (f"{name}::{inner}" for n in body for inner in names_of(n))


def test_each_row_has_a_feature_a_command_and_its_tests() -> None:
    assert TEXT.count(HEADER) == len(re.findall(r"^## ", TEXT, re.MULTILINE))
    assert [line for line in rows() if not ROW.fullmatch(line)] == []
    features = [line.split(" | ")[0] for line in rows()]
    assert len(features) == len(set(features)) > 100


def test_each_test_of_the_table_exists() -> None:
    gone = [
        test
        for test in named_tests()
        for file, _, name in [test.partition("::")]
        if not (ROOT / file).is_file() or name not in defined_in(file)
    ]

    assert gone == []


def test_a_test_that_is_gone_would_be_noticed() -> None:
    here = defined_in("tests/test_features.py")

    assert "test_a_test_that_is_gone_would_be_noticed" in here
    assert "test_that_is_gone" not in here
    assert "TestRefresh::test_refreshes_what_is_missing" in defined_in(
        "tests/unit/cli/test_cli.py"
    )


def test_each_guide_and_each_page_of_the_reference_is_named_below_a_table() -> None:
    listed = "".join(re.findall(r"^Pages: .*?\.$", TEXT, re.MULTILINE | re.DOTALL))
    linked = {
        (PAGE.parent / path).resolve() for path in re.findall(r"\]\((\S+?)\)", listed)
    }
    pages = {
        page
        for folder in ("guides", "reference")
        for page in (ROOT / "docs" / folder).rglob("*.md")
        if page.name != "README.md"
    }

    assert pages <= linked
    assert [path for path in linked if not path.is_file()] == []
    assert listed.count("Pages: ") == TEXT.count(HEADER)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_has_a_row_and_so_has_each_of_its_options(command: str) -> None:
    own = [s for s in spans() if re.search(rf"\bgpuperf {command}(?![\w-])", s)]
    parser = argparse.ArgumentParser(add_help=False)
    module = import_module(f"pytest_gpuperf.cli.{command.replace('-', '_')}")
    module.add_arguments(parser)

    options = [a.option_strings for a in parser._actions if a.option_strings]
    assert own
    assert [names for names in options if not any(is_in(n, own) for n in names)] == []


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_an_option_of_pytest_has_a_row_and_so_has_an_ini_key(option: Option) -> None:
    assert is_in(option.flag if option.on_command_line else option.name, spans())


def test_each_keyword_of_the_marks_has_a_row() -> None:
    written = set(re.findall(r"\b(\w+)=", "\n".join(spans())))

    assert {*BUDGET_KEYWORDS, "detect", "on"} - written == set()


def test_each_metric_has_a_row() -> None:
    assert [name for name in METRICS if not is_in(name, spans())] == []


def test_each_public_name_and_each_use_of_the_fixture_has_a_row() -> None:
    functions = [n for n in pytest_gpuperf.__all__ if n not in FOR_ANNOTATIONS]
    uses = [name for name in vars(Gpuperf) if not name.startswith("_")]

    names = {f"gpuperf.{name}" for name in (*functions, *uses)}
    assert {name for name in names if not is_in(name, spans())} == set()


def test_the_script_names_each_test_once_or_those_below_a_heading() -> None:
    ranks = TEXT.partition("\n## Ranks\n")[2].partition("\n## ")[0]

    assert printed() == list(dict.fromkeys(named_tests()))
    assert printed("ranks") == re.findall(r"`(tests/\S+?)`", ranks)
    assert set(printed("ranks")) < set(printed("ranks", "baselines"))
    assert printed("nowhere") == ["no-heading-has-nowhere"]


def printed(*words: str) -> list[str]:
    """The lines that the script prints."""
    command = [sys.executable, str(ROOT / "tools" / "features.py"), *words]
    return subprocess.check_output(command, text=True).splitlines()
