"""The rounds of a gated test: as long on a GPU as those that are stored."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import entries_in


pytestmark = pytest.mark.gpu

SUITE = """
from pathlib import Path
import torch

def test_step(gpuperf):
    runs = Path(__file__).with_name("runs")
    with runs.open("a") as file:
        file.write("x")
    cycles = 2_000_000 + 500_000 * (runs.stat().st_size % 2)
    gpuperf(lambda: torch.cuda._sleep(cycles))
"""
"""A step of one to two milliseconds, by turns: each run alone would choose other rounds."""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A test with the plugin alone, whether the package is installed or not."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "pytest_gpuperf.plugin")
    pytester.makepyfile(SUITE)
    return pytester.path


def run(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess("--gpuperf", "--gpuperf-device=cuda", *options)


def stored_runs(project: Path) -> list[dict[str, object]]:
    (path,) = (project / "baselines").glob("cuda-*.json")
    (entry,) = entries_in(path).values()
    runs: list[dict[str, object]] = entry["runs"]
    return runs


def measured_rounds(project: Path) -> set[int]:
    (path,) = (project / ".gpuperf").glob("pending-cuda-*.json")
    (entry,) = entries_in(path).values()
    return {run["round_steps"] for run in entry["runs"]}


@pytest.mark.usefixtures("on_virtual_clock")
def test_all_runs_of_a_refresh_have_the_same_rounds_and_a_gate_repeats_them(
    pytester: pytest.Pytester, project: Path
) -> None:
    assert run(pytester, "--gpuperf-update=all").ret == 0
    (steps,) = {stored["round_steps"] for stored in stored_runs(project)}

    # As from another process, which would have chosen another number.
    assert isinstance(steps, int)
    path = next((project / "baselines").glob("cuda-*.json"))
    text = path.read_text(encoding="utf-8")
    path.write_text(
        text.replace(f'"round_steps": {steps}', f'"round_steps": {steps + 7}'),
        encoding="utf-8",
    )
    run(pytester)

    assert measured_rounds(project) == {steps + 7}
