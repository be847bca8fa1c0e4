"""What a step trains on per second."""

from __future__ import annotations

import sys
from typing import Final

from scripted_project import ScriptedProject


GPUPERF: Final = (sys.executable, "-m", "pytest_gpuperf")


def test_a_rate_is_shown_and_kept_and_gates_nothing(
    project: ScriptedProject,
) -> None:
    project.file(
        "def test_step(gpuperf):\n"
        "    gpuperf(int, samples=64, tokens=6.4)\n"
        "    if gpuperf.measurement:\n"
        "        rate = gpuperf.measurement.times['samples_per_s']\n"
        "        assert rate.q25 == pytest.approx(6400)\n"
    )

    result = project.run("-v")
    assert project.pytester.run(*GPUPERF, "report", "--out=page.html").ret == 0

    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*6,400 samples/s, 640 tokens/s*"])
    page = (project.pytester.path / "page.html").read_text(encoding="utf-8")
    assert "6,400 samples/s, 640 tokens/s" in page
