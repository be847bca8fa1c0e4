"""``gpuperf audit`` of a script that a signal ends, or that other processes work for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_gpuperf.cli import main


pytest.importorskip("torch")

ENDED = """\
import os
import signal
import torch

torch.ones((), device="cuda").item()
os.kill({process}, signal.SIGTERM)
while True:
    signal.pause()
"""
FOUND = """\
gpuperf: 1 sync on 1 line
  --> train.py:5 in <module>
    5 | torch.ones((), device="cuda").item()
      |                              ^^^^^^^ once: the CPU reads one element
  fix      add it up on the GPU with .detach(), read it every N steps
note: SIGTERM ended it: this is what it did before
copies: 0 (0 B) to the GPU, 0 (0 B) to the CPU
"""
TERMINATED = 143
"""Exit status that a shell gives a process that SIGTERM ended."""


def write(text: str) -> Path:
    file = Path("train.py")
    file.write_text(text, encoding="utf-8")
    return file


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "process", ["os.getpid()", "os.getppid()"], ids=["the script", "the command"]
)
def test_sigterm_prints_what_was_found_until_then(
    process: str, capfd: pytest.CaptureFixture[str]
) -> None:
    write(ENDED.format(process=process))

    code = main(["audit", "train.py"])

    assert (code, *capfd.readouterr()) == (TERMINATED, FOUND, "")


FORKED = """\
import os
import signal
import torch

torch.ones((), device="cuda").item()
child = os.fork()
if child == 0:
    os.kill(os.getpid(), signal.SIGTERM)
_, status = os.waitpid(child, 0)
assert os.WTERMSIG(status) == signal.SIGTERM
torch.ones((), device="cuda").item()
"""


@pytest.mark.slow
def test_sigterm_of_a_fork_ends_the_fork_alone(
    capfd: pytest.CaptureFixture[str],
) -> None:
    write(FORKED)

    assert main(["audit", "train.py"]) == 0
    assert "gpuperf: 2 syncs on 2 lines" in capfd.readouterr().out


OWN_HANDLER = """\
import os
import signal
import sys
import torch

signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
torch.ones((), device="cuda").item()
os.kill(os.getpid(), signal.SIGTERM)
"""


@pytest.mark.slow
def test_a_script_that_handles_sigterm_ends_as_it_decides(
    capfd: pytest.CaptureFixture[str],
) -> None:
    write(OWN_HANDLER)

    assert main(["audit", "train.py"]) == 3
    out = capfd.readouterr().out
    assert "note: the script failed (exit status 3): this is what it did before" in out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ending", "status"),
    [
        ("assert False, 'diverged'", 1),
        ("raise SystemExit(4)", 4),
        ("import sys; sys.exit('out of data')", 1),
        ("import os; os._exit", 0),  # named, and not called
    ],
)
def test_a_script_that_failed_says_so_and_offers_no_number_to_keep(
    ending: str, status: int, capfd: pytest.CaptureFixture[str]
) -> None:
    write(f"import torch\ntorch.ones((), device='cuda').item()\n{ending}\n")
    note = f"the script failed (exit status {status}): this is what it did before"

    assert main(["audit", "train.py"]) == status
    out = capfd.readouterr().out
    assert (f"note: {note}\n" in out) is bool(status)
    assert ("next:" in out) is not bool(status)

    assert main(["audit", "train.py", "--json"]) == status
    document = json.loads(capfd.readouterr().out)
    assert document["notes"] == ([note] if status else [])


@pytest.mark.slow
@pytest.mark.parametrize(("most", "status"), [(0, 1), (1, 0)])
def test_a_limit_that_is_given_is_answered_with_no_other(
    most: int, status: int, capfd: pytest.CaptureFixture[str]
) -> None:
    write("import torch\ntorch.ones((), device='cuda').item()\n")

    assert main(["audit", "train.py", f"--max-syncs={most}"]) == status
    assert "next:" not in capfd.readouterr().out


PARENT = """\
import multiprocessing
import os
import shlex
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
import torch
import torch.multiprocessing

def train(rank=0):
    torch.ones((), device="cuda").item()

def rest(rank):
    return rank

class Rows(torch.utils.data.Dataset):
    def __len__(self): return 2
    def __getitem__(self, row): return torch.ones(2)

def process(method, target=train):
    child = multiprocessing.get_context(method).Process(target=target, args=(0,))
    child.start()
    return child

if __name__ == "__main__":
    train()
    {start}
"""
FAILED = "started 1 process that failed without a GPU"
CHILD = "[sys.executable, '-c', 'import train as t; t.train()']"
POOL = "with ProcessPoolExecutor(1, multiprocessing.get_context('spawn')) as pool:"
LOADER = "torch.utils.data.DataLoader(Rows(), num_workers=1, multiprocessing_context='spawn')"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "start", "said"),
    [
        ("memory", "process('spawn')", FAILED),
        (
            "audit",
            "process('fork').join()",
            "1 operation of forked processes went unchecked",
        ),
        (
            "audit",
            f"subprocess.call({CHILD})",
            FAILED,
        ),
        ("audit", f"os.system(shlex.join({CHILD}))", FAILED),
        (
            "audit",
            f"os.waitpid(os.posix_spawn(sys.executable, {CHILD}, os.environ), 0)",
            FAILED,
        ),
        ("memory", f"os.spawnv(os.P_WAIT, sys.executable, {CHILD})", FAILED),
        (
            "audit",
            f"os.execv(sys.executable, {CHILD})",
            "train.py:27 makes another Python of the process, without a GPU",
        ),
        (
            "audit",
            "ours, own = os.pipe(); os.fork() or (os.close(own), os.read(ours, 1), os._exit(0))",
            "train.py:27 forked 1 process that the script does not wait for",
        ),
        (
            "audit",
            "torch.multiprocessing.spawn(train, join=False).processes[0].join()",
            FAILED,
        ),
        (
            "audit",
            f"{POOL} pool.submit(rest, 1).result()",
            "note: train.py:27 started 1 process without",
        ),
        (
            "audit",
            f"process('fork', rest); os.system('false'); list({LOADER})",
            "",
        ),
    ],
    ids=[
        "spawn",
        "fork",
        "subprocess",
        "system",
        "posix_spawn",
        "spawnv",
        "execv",
        "running",
        "torch",
        "pool",
        "neither",
    ],
)
def test_what_other_processes_do_on_a_gpu_is_said_to_be_unchecked(
    command: str, start: str, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    write(PARENT.format(start=start))

    code = main([command, "train.py"])

    shown = "\n".join(capfd.readouterr())
    assert said in shown
    assert any(word in shown for word in ("started", "forked", "makes")) is bool(said)
    assert code == bool(said and "note" not in said)
