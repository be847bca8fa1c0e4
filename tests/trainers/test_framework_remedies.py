"""What is advised inside of a framework waits less and trains the same."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest
from framework_programs import FRAMEWORK_PROGRAMS

from pytest_gpuperf.report.remedies import ALL_SYNC_REMEDIES


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    """What an audit said, its syncs per step, and what was trained."""

    said: str
    waits: float
    trained: str


def audited(text: str, folder: Path) -> Audited:
    (folder / "train.py").write_text(text, "utf-8")
    command = [sys.executable, "-m", "pytest_gpuperf", "audit", "train.py"]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=True
    )
    waits = re.search(r"^gpuperf: ([\d.]+) syncs? per step", done.stdout, re.MULTILINE)
    trained = re.search(r"^result (.*)$", done.stdout + done.stderr, re.MULTILINE)
    assert waits, done.stdout
    assert trained, done.stdout
    return Audited(
        said=" ".join(done.stdout.split()), waits=float(waits[1]), trained=trained[1]
    )


@pytest.mark.parametrize("rule", FRAMEWORK_PROGRAMS)
def test_a_setting_that_is_advised_waits_less_and_trains_the_same(
    rule: str, tmp_path: Path
) -> None:
    program = FRAMEWORK_PROGRAMS[rule]
    missing = [name for name in program.packages if find_spec(name) is None]
    if missing:
        pytest.skip(f"tox -e trainers installs {', '.join(missing)}")
    (remedy,) = (each for each in ALL_SYNC_REMEDIES if each.rule == rule)

    before = audited(program.text(program.before), tmp_path)
    after = audited(program.text(program.after), tmp_path)

    assert f"fix {remedy.do}" in before.said
    assert remedy.do not in after.said
    assert after.waits < before.waits
    assert after.trained == before.trained
