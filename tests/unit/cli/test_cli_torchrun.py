"""``gpuperf audit torchrun ... train.py``: a program of several ranks as the only one."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from pytest_gpuperf.cli import main
from pytest_gpuperf.cli.script import Program, launched, only_rank, rank_variable
from pytest_gpuperf.errors import UsageError


@pytest.mark.parametrize(
    ("words", "name", "is_module", "arguments"),
    [
        ("train.py", "train.py", False, ()),
        ("--nproc-per-node=8 train.py 1 --lr 2", "train.py", False, ("1", "--lr", "2")),
        ("--standalone --nproc_per_node 8 train.py", "train.py", False, ()),
        ("--nnodes 2 --rdzv-id 4 -m pkg.train --nnodes 3", "pkg.train", True, None),
    ],
)
def test_options_of_the_launcher_are_not_those_of_the_program(
    words: str,
    name: str,
    is_module: bool,  # noqa: FBT001
    arguments: tuple[str, ...] | None,
) -> None:
    assert launched("torchrun", words.split()) == Program(
        name=name,
        is_module=is_module,
        arguments=("--nnodes", "3") if arguments is None else arguments,
        as_rank=True,
    )


@pytest.mark.parametrize("words", [[], ["--standalone"], ["--nnodes", "train.py"]])
def test_a_launcher_without_a_program_is_refused(words: list[str]) -> None:
    with pytest.raises(UsageError, match="torchrun: found no script"):
        launched("torchrun", words)


def test_one_rank_of_one_is_what_the_program_reads() -> None:
    found = only_rank()

    assert (found["RANK"], found["LOCAL_RANK"], found["WORLD_SIZE"]) == ("0", "0", "1")
    assert int(found["MASTER_PORT"]) > 0


RANKED = """\
import os
import sys
import torch
import torch.distributed as dist

dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
model = torch.nn.Linear(2, 2).to(rank)
replica = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank])
optimizer = torch.optim.SGD(replica.parameters())
for _ in range(int(sys.argv[1])):
    loss = replica(torch.ones(2, 2, device="cuda")).sum()
    loss.backward()
    optimizer.step()
    loss.item()
dist.destroy_process_group()
"""


@pytest.fixture
def _ranked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of several ranks in the working directory."""
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(RANKED, "utf-8")


@pytest.mark.slow
@pytest.mark.usefixtures("_ranked")
@pytest.mark.parametrize(
    "launcher",
    [
        ["torchrun", "--nproc-per-node=8"],
        ["-m", "torch.distributed.run", "--nproc-per-node", "8"],
    ],
    ids=" ".join,
)
def test_a_program_of_several_ranks_runs_as_one_and_that_is_said(
    launcher: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    code = main(["audit", *launcher, "train.py", "3"])

    output = capfd.readouterr().out
    assert code == 0
    assert output.startswith("gpuperf: 1 sync per step on 1 line, 3 steps")
    assert "note: it ran as one rank of one, with RANK=0" in output
    assert "next: gpuperf audit --max-syncs-per-step=1 torchrun train.py 3\n" in output


@pytest.mark.usefixtures("_ranked")
def test_the_memory_of_one_rank_is_that_of_the_program(
    capfd: pytest.CaptureFixture[str],
) -> None:
    code = main(
        ["memory", "--no-savings", "torchrun", "--nproc-per-node=8", "train.py", "3"]
    )

    output = capfd.readouterr().out
    assert code == 0
    assert output.startswith("train.py needs ")
    assert "it ran as one rank of one, with RANK=0" in output
    assert "next: gpuperf memory --gb=8 torchrun train.py 3\n" in output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reads", "variable"),
    [
        ('rank = int(os.environ["LOCAL_RANK"])', "LOCAL_RANK"),
        ('torch.distributed.init_process_group("nccl"); rank = 0', "RANK"),
        ('rank = int(os.environ.get("LOCAL_RANK"))', "LOCAL_RANK"),
        ("rank = f\"cuda:{os.environ.get('LOCAL_RANK')}\"", "LOCAL_RANK"),
        (
            """rank = os.getenv("LOCAL_RANK")
def number(text): return int(text)
rank = number(rank)
""",
            "LOCAL_RANK",
        ),
    ],
)
def test_a_script_that_needs_torchrun_learns_so_and_runs_with_that_word_before_it(
    reads: str,
    variable: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    script = f"import os, torch\n{reads}\ntorch.ones(3).to(rank).sum().item()\n"
    Path("train.py").write_text(script, "utf-8")

    failed = main(["audit", "train.py"])
    said = capfd.readouterr().err
    code = main(["audit", "torchrun", "train.py"])

    assert failed == 1
    assert said.startswith("Traceback"), "the program's own error comes first"
    assert said.endswith(
        f"gpuperf: {variable} is what torchrun sets: write torchrun before train.py, as "
        "`torchrun train.py` does, and it runs as one rank of one\n"
    )
    assert code == 0


@pytest.mark.parametrize(
    "error", [KeyError("lr"), KeyError(), KeyError(("RANK",)), ValueError("RANK")]
)
def test_no_other_error_of_a_program_is_taken_for_a_missing_rank(
    error: Exception,
) -> None:
    assert not rank_variable(error)


def test_none_that_no_variable_of_torchrun_gave_is_no_missing_rank(
    tmp_path: Path,
) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import os\nrank = int(os.getenv('LOCAL_RANK', '0'))\nint(os.getenv('LR') if rank == 0 else 1)\n"
    )

    with pytest.raises(TypeError, match="NoneType") as failed:
        runpy.run_path(str(script))

    assert not rank_variable(failed.value)
