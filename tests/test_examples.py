"""The examples hold, and the demonstration ends red where something else happens."""

from __future__ import annotations

import configparser
import importlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest


ROOT: Final = Path(__file__).parents[1]
EXAMPLES: Final = ROOT / "examples"

COMPILING: Final = ("examples/graphs", "examples/inference", "examples/kernels")
"""Where most of the time of a test is torch's compiler."""


def gated() -> list[str]:
    """Return the examples that `make test` measures."""
    settings = configparser.ConfigParser(interpolation=None)
    settings.read(ROOT / "tox.ini", encoding="utf-8")
    return settings["shared"]["gated"].split()


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    pytest.importorskip("torch")
    ignored = shutil.ignore_patterns("__pycache__", ".pytest_cache", ".gpuperf")
    shutil.copytree(EXAMPLES, tmp_path / "examples", ignore=ignored)
    settings = "[pytest]\nfilterwarnings = error\naddopts = --strict-markers\n"
    (tmp_path / "pytest.ini").write_text(settings)
    return tmp_path


def run_in(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    quiet = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "CI": "", "COLUMNS": "80"}
    plugin = ("-p", "pytest_gpuperf.plugin")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugin, *arguments],
        cwd=folder,
        env=os.environ | quiet,
        capture_output=True,
        text=True,
        check=False,
    )


DEMONSTRATED: Final = tuple(
    f"--deselect=examples/ladder/test_predicted_gpt2_large.py"
    f"::test_gpt2_large_at_real_size[{rung}]"
    for rung in ("plain", "2 micro-batches")
)
"""What `make demo` predicts as well, for the same figures."""


@pytest.mark.parametrize(
    ("arguments", "elsewhere"),
    [
        ((), (*COMPILING, "examples/ladder", "examples/models")),
        (("--gpuperf", *DEMONSTRATED), gated()),
    ],
    ids=["unmeasured", "without a GPU"],
)
def test_the_examples_pass(
    copied: Path, arguments: tuple[str, ...], elsewhere: Sequence[str]
) -> None:
    """Those that run *elsewhere* too are left out: `make test` gates them, or they are measured."""
    left_out = [f"--ignore={place}" for place in elsewhere]

    result = run_in(copied, "examples", *left_out, *arguments)

    assert result.returncode == 0, result.stdout
    assert " failed" not in result.stdout
    assert re.search(r"\d+ passed, \d+ skipped.* in ", result.stdout.splitlines()[-1])


@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n2")], ids=["one", "xdist"])
def test_a_run_can_end_with_what_became_of_each_claim(
    copied: Path, workers: tuple[str, ...]
) -> None:
    if workers:
        pytest.importorskip("xdist")
    chosen = ["no_hidden_sync/test_item.py", "host_to_device/test_as_tensor.py"]

    result = run_in(
        copied,
        *(f"examples/{name}" for name in chosen),
        "--gpuperf",
        "--gpuperf-device=simulated",
        "--gpuperf-claims",
        *workers,
    )

    assert result.returncode == 0, result.stdout
    lines = result.stdout.splitlines()
    assert {
        line for line in lines if line.endswith(("simulated", "host", "device"))
    } == {
        "claim                 measured here      predicted          verdict      device",
        "D12                   1 -> 0 MiB         -                  passed       host",
        "Y1 80 -> 57 ms        -                  1 -> 0 syncs       passed       simulated",
    }


OLD_GPU: Final = """\
import torch

torch.cuda.is_available = lambda: True
torch.cuda.get_device_capability = lambda: (6, 0)
"""


def test_what_a_gpu_is_too_old_for_is_left_out_visibly(copied: Path) -> None:
    (copied / "old_gpu.py").write_text(OLD_GPU)

    test = (
        "examples/graphs/test_old_gpu.py::test_a_function_is_compiled_on_a_gpu_that_can"
    )
    result = run_in(copied, "-rs", "-p", "old_gpu", test)

    assert result.returncode == 0, result.stdout
    assert "needs compute capability 7.0: this GPU has 6.0" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("1 skipped in ")


def test_a_table_of_claims_without_measurements_is_refused(copied: Path) -> None:
    result = run_in(copied, "examples", "--gpuperf-claims")

    assert result.returncode == pytest.ExitCode.USAGE_ERROR
    assert result.stderr.strip() == (
        "ERROR: --gpuperf-claims: found no --gpuperf, which measures; add it"
    )


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module("demo")


def test_each_edit_of_the_demo_can_be_made_and_names_a_test(demo: ModuleType) -> None:
    steps = (EXAMPLES / "gate" / "test_steps.py").read_text()
    script = (EXAMPLES / "first_minute" / "train.py").read_text()
    commands = sys.modules["demo_commands"]

    for fault in (*demo.FAULTS, demo.MEANT):
        assert f"def {fault.test}(" in steps
        steps = commands.edited(steps, fault.edit)
        assert fault.line in [line.strip() for line in steps.splitlines()]
    for edit in (demo.REFACTORED, demo.CHECKED):
        compile(commands.edited(steps, edit), edit.file, "exec")
    compile(commands.edited(script, demo.FIXED), "train.py", "exec")


@pytest.fixture
def gated(demo: ModuleType) -> tuple[str, str]:
    """What a run with all faults prints, and the tests that it runs."""
    faults = (*demo.FAULTS, demo.MEANT)
    source = "\n".join(fault.line for fault in faults)
    sections = [
        f"____ {fault.test} ____\n{fault.headline}\n   {number} | {fault.line}\n  fix      it"
        for number, fault in enumerate(faults, start=1)
    ]
    summary = [f"FAILED test_steps.py::{fault.test} - why" for fault in faults]
    return "\n".join([*sections, "=========", *summary]), source


def test_exactly_the_planted_failures_are_as_it_should_be(
    demo: ModuleType, gated: tuple[str, str]
) -> None:
    assert demo.require_red(*gated) is None


@pytest.mark.parametrize(
    ("lost", "message"),
    [
        ("FAILED test_steps.py::test_old_losses_keep_no_graph", "expected five other"),
        ("RETAINED GRAPH", "test_old_losses_keep_no_graph: expected 'RETAINED GRAPH'"),
        ("   1 | total", "test_the_loss_stays_on_the_gpu: expected '1 | total"),
        ("\n  fix ", "test_the_loss_stays_on_the_gpu: expected 'fix' in what it says"),
    ],
    ids=["test", "headline", "line", "fix"],
)
def test_a_failure_without_its_test_headline_line_or_fix_ends_the_demo(
    demo: ModuleType, gated: tuple[str, str], lost: str, message: str
) -> None:
    printed, source = gated

    with pytest.raises(Exception, match=re.escape(message)) as caught:
        demo.require_red(printed.replace(lost, ""), source)

    assert type(caught.value).__name__ == "UnexpectedError"


@pytest.mark.parametrize(
    ("percent", "sentence"),
    [
        (None, "This machine is too busy to show anything: no step could be timed."),
        (
            573,
            (
                "This machine is too busy to show anything: it would see slowdowns of "
                "573 % or more."
            ),
        ),
        (2.1, "Yes: it sees slowdowns of 2.1 % or more."),
    ],
)
def test_what_needs_a_clock_first_says_whether_the_machine_is_quiet(
    demo: ModuleType, percent: float | None, sentence: str
) -> None:
    timed = importlib.import_module("demo_time")
    seen = "" if percent is None else f"can detect\n   slowdowns of {percent} % or more"

    assert timed.verdict(timed.acuity(seen)) == sentence


def test_no_example_counts_gpus_because_a_rank_sees_its_own_alone() -> None:
    counting = [
        p.name for p in EXAMPLES.rglob("*.py") if "device_count" in p.read_text()
    ]

    assert counting == []
