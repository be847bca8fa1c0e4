"""Each option and its ini key: one resolver, both ways, and a sentence if it is wrong."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest
from scripted_project import ScriptedProject

from pytest_gpuperf.model.baseline import Refresh
from pytest_gpuperf.model.budget import Tolerance
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.plugin.options import OPTIONS, Option
from pytest_gpuperf.plugin.parse_settings import settings_from
from pytest_gpuperf.settings import Isolation, MissingBaseline, Settings


VALUES = {
    "gpuperf_device": ("cpu", DeviceKind.CPU, "device"),
    "gpuperf_update": ("all", Refresh.ALL, "update"),
    "gpuperf_seconds": ("7.5", 7.5, "seconds"),
    "gpuperf_seed": ("7", 7, "seed"),
    "gpuperf_missing_baseline": (
        "every-metric",
        MissingBaseline.EVERY_METRIC,
        "missing_baseline",
    ),
    "gpuperf_warn": ("until 2027-01-15", "2027-01-15", "warn"),
    "gpuperf_isolation": ("module", Isolation.MODULE, "isolation"),
    "gpuperf_tolerance": (
        "ms=5% and 0.1 ms, mem_mb=1%",
        Tolerance(ratios={"ms": 0.05, "mem_mb": 0.01}, floors={"ms": 0.1}),
        "tolerance",
    ),
    "gpuperf_simulated_gb": ("141", 141.0, "simulated_gib"),
}
FLAGS = {
    "gpuperf_strict": "strict",
    "gpuperf_explain": "explain",
    "gpuperf_benchmark": "benchmark",
}


def settings(pytester: pytest.Pytester, *arguments: str) -> Settings:
    return settings_from(pytester.parseconfig(*arguments), {})


def test_there_are_few_options_and_most_can_be_typed() -> None:
    assert len(OPTIONS) <= 15
    assert sum(option.on_command_line for option in OPTIONS) <= 10


def test_the_help_of_pytest_lists_all_options_in_fewer_than_45_lines(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    shown = pytester.runpytest_inprocess("--help").stdout.str()
    title = "GPU performance:\n"
    group = shown.partition(title)[2].partition("\n\n")[0]

    listed = [o for o in OPTIONS if o.on_command_line]
    assert re.findall(r"^  (--gpuperf\S*)", group, re.MULTILINE) == [
        option.flag + shown_value(option) for option in listed
    ]
    assert len(group.splitlines()) < 45


def test_an_ini_key_takes_two_lines_of_the_help_of_pytest() -> None:
    # Behind the name, pytest leaves 56 of 80 columns.
    assert [option.name for option in OPTIONS if len(option.key_help) > 56] == []


def shown_value(option: Option) -> str:
    """How the help writes the value; brackets say that it may be left out."""
    if option.metavar is None:
        return ""
    is_optional = option.without_value is not None
    return f"=[{option.metavar}]" if is_optional else f"={option.metavar}"


def on_command_line(name: str, value: str | None = None) -> str:
    """The argument that sets *name*, by its option or else with pytest's ``-o``."""
    (option,) = (option for option in OPTIONS if option.name == name)
    if option.on_command_line:
        return option.flag if value is None else f"{option.flag}={value}"
    return f"--override-ini={name}={'true' if value is None else value}"


def test_defaults(project: ScriptedProject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "pytest_gpuperf.plugin.parse_settings.today", lambda: "2027-01-15"
    )

    assert settings(project.pytester) == Settings(
        device=None,
        update=None,
        seconds=60.0,
        strict=False,
        missing_baseline=MissingBaseline.WARN,
        isolation=Isolation.TEST,
        baselines=project.path / "baselines",
        artefacts=project.path / ".gpuperf",
        today="2027-01-15",
    )


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("place", ["option", "ini"])
def test_a_value_comes_from_the_option_or_the_ini_key(
    project: ScriptedProject, name: str, place: str
) -> None:
    text, value, field = VALUES[name]
    project.pytester.makeini(f"[pytest]\n{name} = {text}\n" if place == "ini" else "")
    option = on_command_line(name, text)

    found = settings(project.pytester, *([option] if place == "option" else []))

    assert getattr(found, field) == value


@pytest.mark.parametrize("name", FLAGS)
@pytest.mark.parametrize("place", ["option", "ini"])
def test_a_flag_comes_from_the_option_or_the_ini_key(
    project: ScriptedProject, name: str, place: str
) -> None:
    project.pytester.makeini(f"[pytest]\n{name} = true\n" if place == "ini" else "")
    option = on_command_line(name)

    found = settings(project.pytester, *([option] if place == "option" else []))

    assert getattr(found, FLAGS[name]) is True


def test_the_option_wins_over_the_ini_key(project: ScriptedProject) -> None:
    project.pytester.makeini("[pytest]\ngpuperf_seconds = 5\n")

    assert settings(project.pytester, "--gpuperf-seconds=9").seconds == 9.0


def test_every_setting_comes_from_an_option_or_is_derived() -> None:
    set_by_options = {field for _, _, field in VALUES.values()} | set(FLAGS.values())

    assert {f.name for f in fields(Settings)} - set_by_options == {
        "accept_drift",
        "baselines",
        "artefacts",
        "launch",
        "repeated",
        "script",
        "stored_on",
        "today",
        "unchecked_budget",
    }


def test_measuring_is_switched_on_by_the_ini_key(project: ScriptedProject) -> None:
    project.file("@gpuperf.budget(ms=5)\ndef test_step(gpuperf): gpuperf(int)\n")
    ini = "gpuperf = true\ngpuperf_device = scripted\n"
    project.pytester.makeini(f"[pytest]\n{ini}")

    result = project.pytester.runpytest_inprocess()

    result.assert_outcomes(failed=1)
    assert "OVER LIMIT ms: 10.00 ms per step, limit 5.000 ms" in result.outlines


@pytest.mark.parametrize(
    ("arguments", "ini", "sentence"),
    [
        (
            ["--gpuperf-device=tpu"],
            "",
            "--gpuperf-device: found 'tpu', expected one of cuda, simulated, cpu [GP101]",
        ),
        (
            [],
            "gpuperf_seconds = 0",
            "ini key gpuperf_seconds: found '0', expected a positive number of seconds [GP101]",
        ),
    ],
)
def test_a_wrong_value_is_a_usage_error_that_names_its_place(
    project: ScriptedProject, arguments: list[str], ini: str, sentence: str
) -> None:
    project.file("def test_step(gpuperf): gpuperf(int)\n")
    project.pytester.makeini(f"[pytest]\n{ini}\n")

    result = project.pytester.runpytest_inprocess("--gpuperf", *arguments)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert result.errlines == [f"ERROR: {sentence}", ""]


@pytest.mark.parametrize("option", ["--gpuperf-update=all", "--gpuperf-update=odd"])
def test_an_option_that_changes_baselines_is_refused_where_nothing_is_measured(
    option: str, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile("def test_a(): pass")

    result = pytester.runpytest_inprocess(option)

    flag = option.partition("=")[0]
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    why = f"{flag} does nothing without --gpuperf: add it, or leave {flag} out"
    assert result.errlines == [f"ERROR: {why} [GP114]", ""]


def test_the_ini_key_of_the_run_is_enough_for_them(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\ngpuperf = true\n")
    pytester.makepyfile("def test_a(): pass")

    result = pytester.runpytest_inprocess("--gpuperf-update=all", "--co")

    assert result.ret == pytest.ExitCode.OK


@pytest.mark.parametrize("device", ["--gpuperf-device=cpu", "--gpuperf-device cpu"])
def test_a_device_without_gpuperf_is_answered_with_a_line(
    pytester: pytest.Pytester, device: str
) -> None:
    pytester.makepyfile("def test_step(gpuperf): gpuperf(int)\n")

    result = pytester.runpytest_inprocess(*device.split())

    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([IDLE_DEVICE])


def test_a_device_in_addopts_is_a_default_and_no_line_is_written(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile("def test_nothing(): pass\n")
    pytester.makeini("[pytest]\naddopts = --gpuperf-device=cpu\n")

    result = pytester.runpytest_inprocess()

    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line(IDLE_DEVICE)


IDLE_DEVICE = (
    "gpuperf: nothing was measured: --gpuperf-device has no effect without --gpuperf"
)
