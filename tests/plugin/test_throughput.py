"""What a step trains on per second."""

from __future__ import annotations

import sys
from typing import Final

import pytest
from scripted_project import ScriptedProject


GPUPERF: Final = (sys.executable, "-m", "pytest_gpuperf")


def test_the_rate_is_that_of_the_time_that_is_judged(project: ScriptedProject) -> None:
    project.file(
        "import pytest\n"
        "def test_step(gpuperf):\n"
        "    gpuperf(int, samples=64)\n"
        "    if gpuperf.measurement:\n"
        "        times = gpuperf.measurement.times\n"
        "        assert times['samples_per_s'].q25 == pytest.approx(6400)\n"
        "        assert 'tokens_per_s' not in times\n"
    )

    project.run().assert_outcomes(passed=1)


def test_a_rate_is_shown_and_kept_and_gates_nothing(
    project: ScriptedProject,
) -> None:
    project.file("def test_step(gpuperf): gpuperf(int, samples=64, tokens=6.4)\n")

    result = project.run("-v")
    assert project.pytester.run(*GPUPERF, "report", "--out=page.html").ret == 0

    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*6,400 samples/s, 640 tokens/s*"])
    page = (project.pytester.path / "page.html").read_text(encoding="utf-8")
    assert "6,400 samples/s, 640 tokens/s" in page


@pytest.mark.parametrize(
    "value", ["0", "-1", "'64'", "True", "float('nan')", "10**400"]
)
def test_what_is_no_number_of_samples_is_refused(
    project: ScriptedProject, value: str
) -> None:
    project.file(f"def test_step(gpuperf): gpuperf(int, samples={value})\n")

    result = project.run()

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*samples=*expected how many samples one step trains*"]
    )
