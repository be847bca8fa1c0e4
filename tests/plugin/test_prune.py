"""``--gpuperf-prune``: baselines of tests that are gone, where all were looked at."""

from __future__ import annotations

import pytest
from scripted_project import ScriptedProject


A, B, C = (f"test_it.py::test_{name}" for name in "abc")
ONE = "def test_{0}(gpuperf): gpuperf(int)\n"
LEFT = [
    "gpuperf: 1 entry of baselines/scripted.json has no test any more,",
    f"    --gpuperf-prune removes it: {C}",
]


@pytest.fixture
def shrunk(project: ScriptedProject) -> ScriptedProject:
    """A project of tests ``a`` and ``b`` that once had a ``c``."""
    project.file("".join(map(ONE.format, "abc")))
    project.record()
    project.file("".join(map(ONE.format, "ab")))
    return project


def test_a_whole_run_names_what_is_stale_and_removes_nothing(
    shrunk: ScriptedProject,
) -> None:
    result = shrunk.run()

    assert result.ret == pytest.ExitCode.OK
    start = result.outlines.index(LEFT[0])
    assert result.outlines[start : start + 2] == LEFT
    assert sorted(shrunk.entries()) == [A, B, C]


def test_the_option_removes_it_and_shows_what_it_was(shrunk: ScriptedProject) -> None:
    result = shrunk.run("--gpuperf-prune")

    assert result.ret == pytest.ExitCode.OK
    start = result.outlines.index("refreshed baselines/scripted.json:")
    assert result.outlines[start + 2].split() == [
        *("100.0", "MiB", "-", "gone", "peak_allocated_bytes", C)
    ]
    assert sorted(shrunk.entries()) == [A, B]
    assert LEFT[0] not in result.outlines


def test_a_refresh_prunes_as_well_by_option_or_ini_key(
    shrunk: ScriptedProject,
) -> None:
    shrunk.pytester.makeini("[pytest]\ngpuperf_prune = true\n")

    shrunk.run().assert_outcomes(passed=2)
    assert sorted(shrunk.entries()) == [A, B, C]

    shrunk.refresh().assert_outcomes(passed=2)
    assert sorted(shrunk.entries()) == [A, B]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["-k", "test_a"], "-k"),
        (["--deselect", A], "--deselect"),
        ([A], f"the argument {A}"),
    ],
)
def test_a_part_of_the_tests_cannot_be_asked_to_prune(
    shrunk: ScriptedProject, arguments: list[str], named: str
) -> None:
    result = shrunk.run("--gpuperf-prune", *arguments)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert result.errlines == [
        (
            "ERROR: --gpuperf-prune removes the baselines of tests that are gone, but "
            f"{named} selects only some tests: leave out one of them [GP107]"
        ),
        "",
    ]
    assert sorted(shrunk.entries()) == [A, B, C]


def test_a_partial_refresh_with_the_ini_key_says_why_it_prunes_nothing(
    shrunk: ScriptedProject,
) -> None:
    shrunk.pytester.makeini("[pytest]\ngpuperf_prune = true\n")

    result = shrunk.refresh("-k", "test_a")

    assert result.ret == pytest.ExitCode.OK
    assert (
        "gpuperf: nothing was pruned: -k selects some of the tests" in result.outlines
    )
    assert sorted(shrunk.entries()) == [A, B, C]


def test_a_plugin_that_deselects_is_seen(shrunk: ScriptedProject) -> None:
    shrunk.pytester.makeconftest(
        "def pytest_collection_modifyitems(items):\n"
        "    items[:] = [item for item in items if item.name != 'test_a']\n"
    )

    result = shrunk.run("--gpuperf-prune")

    result.assert_outcomes(passed=1)
    assert "gpuperf: nothing was pruned: 1 test was deselected" in result.outlines
    assert sorted(shrunk.entries()) == [A, B, C]


def test_a_module_that_skips_itself_keeps_its_baselines(
    shrunk: ScriptedProject,
) -> None:
    shrunk.pytester.makepyfile(
        test_it="import pytest\npytest.skip('not here', allow_module_level=True)\n",
        test_other=ONE.format("d"),
    )

    result = shrunk.run("--gpuperf-prune")

    result.assert_outcomes(passed=1, skipped=1, warnings=1)
    assert sorted(shrunk.entries()) == [A, B, C]


def test_workers_prune_too(shrunk: ScriptedProject) -> None:
    pytest.importorskip("xdist")

    result = shrunk.run("-p", "xdist.plugin", "-n2", "--gpuperf-prune")

    result.assert_outcomes(passed=2)
    assert sorted(shrunk.entries()) == [A, B]
