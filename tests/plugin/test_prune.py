"""``--gpuperf-update=all`` removes baselines of tests that are gone, where all were looked at."""

from __future__ import annotations

import pytest
from scripted_project import ScriptedProject


A, B, C = (f"test_it.py::test_{name}" for name in "abc")
ONE = "def test_{0}(gpuperf): gpuperf(int)\n"
LEFT = [
    "gpuperf: 1 entry of baselines/scripted.json has no test any more,",
    f"    --gpuperf-update=all removes it: {C}",
]
DESELECTING = (
    "def pytest_collection_modifyitems(items):\n"
    "    items[:] = [item for item in items if item.name != 'test_a']\n"
)
SKIPPING = "import pytest\npytest.skip('not here', allow_module_level=True)\n"


@pytest.fixture
def shrunk(project: ScriptedProject) -> ScriptedProject:
    """A project of tests ``a`` and ``b`` that once had a ``c``."""
    project.file("".join(map(ONE.format, "abc")))
    project.record()
    project.file("".join(map(ONE.format, "ab")))
    return project


def test_a_renamed_test_is_compared_once_it_is_renamed_in_the_file_as_well(
    shrunk: ScriptedProject,
) -> None:
    shrunk.file("".join(map(ONE.format, "abd")))
    renamed = C.replace("_c", "_d")
    words = " ".join(shrunk.run().outlines).split()
    assert f"is {C} now {renamed}?" in " ".join(words)

    file = shrunk.path / "baselines" / "scripted.json"
    file.write_text(file.read_text("utf-8").replace(C, renamed), "utf-8")

    shown = shrunk.run().outlines
    assert "gpuperf: 3 passed on scripted" in shown


def test_a_whole_run_names_what_is_stale_and_removes_nothing(
    shrunk: ScriptedProject,
) -> None:
    result = shrunk.run()

    assert result.ret == pytest.ExitCode.OK
    start = result.outlines.index(LEFT[0])
    assert result.outlines[start : start + 2] == LEFT
    assert sorted(shrunk.entries()) == [A, B, C]


@pytest.mark.parametrize("workers", [(), ("-p", "xdist.plugin", "-n2")], ids=str)
def test_a_refresh_of_all_tests_removes_it_and_shows_what_it_was(
    shrunk: ScriptedProject, workers: tuple[str, ...]
) -> None:
    if workers:
        pytest.importorskip("xdist")
    result = shrunk.refresh(*workers, which="all")

    assert result.ret == pytest.ExitCode.OK
    start = result.outlines.index("refreshed baselines/scripted.json:")
    assert result.outlines[start + 2].split() == [
        *("100.0", "MiB", "-", "gone", "peak_allocated_bytes", C)
    ]
    assert sorted(shrunk.entries()) == [A, B]
    assert LEFT[0] not in result.outlines


@pytest.mark.parametrize(
    ("which", "arguments", "files"),
    [
        ("missing", [], {}),
        ("all", ["-k", "test_a"], {}),
        ("all", [A], {}),
        ("all", [], {"conftest": DESELECTING}),
        ("all", [], {"test_it": SKIPPING, "test_other": ONE.format("d")}),
    ],
    ids=["another kind", "-k", "a test", "a plugin deselects", "a module skips itself"],
)
def test_what_was_not_looked_at_stays(
    shrunk: ScriptedProject, which: str, arguments: list[str], files: dict[str, str]
) -> None:
    for name, source in files.items():
        shrunk.pytester.makepyfile(**{name: source})

    result = shrunk.refresh(*arguments, which=which)

    assert result.ret == pytest.ExitCode.OK
    assert {A, B, C} <= shrunk.entries().keys()
