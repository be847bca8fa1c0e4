"""The examples are gated by ``baselines/``: what is planted in one turns it red."""

from __future__ import annotations

import difflib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest


pytest.importorskip("torch")

ROOT: Final = Path(__file__).parents[1]
STORED: Final = "baselines/simulated-cuda.json"

MOST_LINES: Final = 100
"""Of a diff that somebody reads."""

SIMULATED: Final = (
    "--gpuperf-device=simulated",
    "--gpuperf-tolerance=mem_mb=0% and 0 MiB",
)
"""As in ``[testenv:tests]`` of tox.ini."""

CIFAR: Final = "examples/no_hidden_sync/test_cifar_loop.py"
MNIST: Final = "examples/host_to_device/test_mnist_loop.py"
COMPILED: Final = "examples/graphs/test_compiled_step.py"


@dataclass(frozen=True)
class Planted:
    """A line of an example and what it becomes."""

    file: str
    line: str
    worse: str


WAIT: Final = Planted(CIFAR, "training.step().detach()", "training.step().item()")
BYTES: Final = Planted(
    CIFAR,
    "torch.randn(BATCH, 3, 32, 32, device=device)",
    "torch.randn(BATCH + 1, 3, 32, 32, device=device)[:BATCH]",
)
COPIES: Final = Planted(MNIST, 'pin_memory=device == "cuda"', "pin_memory=False")
BREAK: Final = Planted(
    COMPILED,
    "    return nn.functional.cross_entropy(model(rows), labels)\n",
    """\
    print(f"a batch of {len(rows)}")
    return nn.functional.cross_entropy(model(rows), labels)
""",
)
LARGER: Final = Planted(MNIST, "BATCH = 64", "BATCH = 96")


def plant(folder: Path, *changes: Planted) -> None:
    for change in changes:
        path = folder / change.file
        before = path.read_text(encoding="utf-8")
        assert before.count(change.line) == 1
        after = before.replace(change.line, change.worse)
        path.write_text(after, encoding="utf-8")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what the gate reads."""
    ignored = shutil.ignore_patterns("__pycache__", ".pytest_cache", ".gpuperf")
    for name in ("examples", "baselines"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def run_in(folder: Path, module: str, *arguments: str, status: int = 0) -> str:
    """Run a command where no other plugin is, and return what it prints."""
    alone = {
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_PLUGINS": "pytest_gpuperf.plugin",
        "CI": "",
        "COLUMNS": "120",
    }
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=folder,
        env=os.environ | alone,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def test_a_planted_wait_copy_and_byte_are_red_at_their_lines(checkout: Path) -> None:
    plant(checkout, WAIT, BYTES, COPIES)

    red = run_in(checkout, "pytest", CIFAR, MNIST, "--gpuperf", *SIMULATED, status=1)

    assert "NEW SYNC: 1 per step, was 0 (+1), limit 0" in red
    assert f"--> {CIFAR}:63 in step" in red
    assert "63 | epoch_loss += training.step().item()" in red
    assert "NEW UNPINNED COPIES: 2 per step, was 0 (+2), allowed 0" in red
    assert f"--> {MNIST}:53 in batches" in red
    assert "53 | images.to(device, non_blocking=True)," in red
    assert "MORE MEMORY: " in red
    assert "gpuperf: 3 failed (3 worse), 1 passed on simulated GPU" in red


def test_a_planted_graph_break_is_red_where_code_is_compiled(checkout: Path) -> None:
    plant(checkout, BREAK)

    arguments = (COMPILED, "--gpuperf", "--gpuperf-device=cpu")
    red = run_in(checkout, "pytest", *arguments, status=1)

    assert "OVER LIMIT graph_breaks: 1" in red
    assert f"--> {COMPILED}:28 in loss_of" in red


def test_a_refresh_changes_the_lines_that_a_reviewer_reads(checkout: Path) -> None:
    plant(checkout, LARGER)
    before = (checkout / STORED).read_text(encoding="utf-8")

    run_in(checkout, "pytest_gpuperf", "refresh", "--device=simulated", MNIST, status=1)
    assert (checkout / STORED).read_text(encoding="utf-8") == before

    accept = ("--accept-drift", "--device=simulated")
    run_in(checkout, "pytest_gpuperf", "refresh", *accept, MNIST)

    after = (checkout / STORED).read_text(encoding="utf-8")
    changes = [
        f"{line[0]} {line[1:].strip()}"
        for line in difflib.ndiff(before.splitlines(), after.splitlines())
        if line[:2] in {"- ", "+ "}
    ]
    assert any(c[0] == "-" and '"h2d_bytes": 201216,' in c for c in changes)
    assert any(c[0] == "+" and '"h2d_bytes": 301824,' in c for c in changes)
    assert len(changes) < MOST_LINES


def test_a_refresh_without_a_change_leaves_each_byte(checkout: Path) -> None:
    before = (checkout / STORED).read_bytes()

    for _ in range(2):
        run_in(checkout, "pytest_gpuperf", "refresh", "--device=simulated", MNIST)
        assert (checkout / STORED).read_bytes() == before
