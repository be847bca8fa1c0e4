"""Each name that is no more says what does its job, wherever it is typed."""

from __future__ import annotations

import re
from typing import cast

import pytest
from scripted_project import ScriptedProject

import pytest_gpuperf
from pytest_gpuperf.cli import REFUSAL_OF, USAGE_ERROR, main
from pytest_gpuperf.errors import UsageError
from pytest_gpuperf.model.budget import parse_budget, parse_tolerance
from pytest_gpuperf.model.retired import FORMER_NAMES, RETIRED, Numbers
from pytest_gpuperf.worker.fixture import Gpuperf, Measurer


COMMANDS = [name for name in RETIRED if name.startswith("gpuperf ")]
SETTINGS = [name for name in RETIRED if re.match(r"--|gpuperf_", name)]
KEYWORDS = [name for name in RETIRED if name.endswith("=")]
METRICS = [name for name in RETIRED if name.startswith("[")]
METHODS = [name for name in RETIRED if name.endswith("()")]
MARKS = [
    name for name in RETIRED if name.startswith("gpuperf.") and name not in METHODS
]


def said(name: str) -> str:
    """The text that answers *name*."""
    return f"{name} was removed: {RETIRED[name]} [GP118]"


def test_each_name_is_of_one_of_the_kinds_that_answer() -> None:
    assert sorted(
        [*COMMANDS, *SETTINGS, *KEYWORDS, *METRICS, *METHODS, *MARKS]
    ) == sorted(RETIRED)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_or_its_option_says_what_does_its_job(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command, *rest = name.split()[1:]

    assert main([command, *rest]) == REFUSAL_OF.get(command, USAGE_ERROR)
    assert capsys.readouterr() == ("", f"gpuperf: {said(name)}\n")


@pytest.mark.parametrize("name", SETTINGS)
def test_an_option_or_an_ini_key_says_what_does_its_job(
    project: ScriptedProject, name: str
) -> None:
    project.file("def test_step(gpuperf): gpuperf(int)\n")

    where = [f"{name}=1"] if name.startswith("--") else ["-o", f"{name}=1"]
    result = project.run(*where)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert said(name) in " ".join(result.errlines)


def test_a_retired_ini_key_of_the_file_is_refused(project: ScriptedProject) -> None:
    project.file("def test_step(gpuperf): gpuperf(int)\n")
    project.pytester.makeini("[pytest]\ngpuperf_precision = 2%\n")

    assert said("gpuperf_precision") in " ".join(project.run().errlines)


def test_the_help_of_pytest_has_no_retired_name(
    pytester: pytest.Pytester,
) -> None:
    shown = pytester.runpytest_inprocess("--help").stdout.str()

    assert [n for n in SETTINGS if re.search(rf"\s{n}\b", shown)] == []


@pytest.mark.parametrize("name", KEYWORDS)
def test_a_keyword_says_what_does_its_job(name: str) -> None:
    for parse in (parse_budget, parse_tolerance):
        with pytest.raises(UsageError, match=re.escape(said(name))):
            parse({name.removesuffix("="): 1})


@pytest.mark.parametrize("name", METHODS)
def test_a_method_of_the_fixture_says_what_does_its_job(
    name: str, request: pytest.FixtureRequest
) -> None:
    gpuperf = Gpuperf(cast("Measurer", None), request.node)

    with pytest.raises(UsageError, match=re.escape(said(name))):
        getattr(gpuperf, name[len("gpuperf.") : -2])


@pytest.mark.parametrize("name", MARKS)
def test_a_mark_says_what_does_its_job(name: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said(name))):
        getattr(pytest_gpuperf, name.removeprefix("gpuperf."))


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_of_a_measurement_says_what_does_its_job(name: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said(name))):
        Numbers({"syncs": 1})[name[2:-2]]


def test_a_metric_by_its_former_name_says_the_name_of_today() -> None:
    with pytest.raises(UsageError, match="it is launches"):
        Numbers({"launches": 1})["ops"]
    assert "ops" in FORMER_NAMES


def test_a_metric_that_a_keyword_limited_answers_like_the_keyword() -> None:
    with pytest.raises(UsageError, match=re.escape(said("mfu_pct="))):
        Numbers({"syncs": 1})["mfu_pct"]


def test_a_measurement_in_a_test_answers_for_a_retired_metric(
    project: ScriptedProject,
) -> None:
    project.file(
        "import pytest\n"
        "def test_step(gpuperf):\n"
        "    gpuperf(int)\n"
        "    with pytest.raises(Exception, match='launches. counts'):\n"
        "        gpuperf.measurement.exact['kernels']\n"
        "    with pytest.raises(KeyError):\n"
        "        gpuperf.measurement.times['of_nobody']\n"
    )

    project.run("--gpuperf").assert_outcomes(passed=1)
