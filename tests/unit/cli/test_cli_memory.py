"""``gpuperf memory``: scripts as people write them, and what goes wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from pytest_gpuperf.cli import main, memory
from pytest_gpuperf.cli.script_process import ScriptRequest
from pytest_gpuperf.model.measurement import Saving


TRAINING = """
import sys
import torch
from torch import nn

batch = int(sys.argv[sys.argv.index("--batch") + 1])

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide, self.narrow = nn.Linear(256, 1024), nn.Linear(1024, 256)

    def forward(self, x):
        return x + self.narrow(torch.relu(self.wide(x)))

model = nn.Sequential(*(Block() for _ in range(4))).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for number in range(100):
    loss = model(torch.randn(batch, 256, device="cuda")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("step", number)
"""


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def _torch() -> None:
    pytest.importorskip("torch")


with_torch = pytest.mark.usefixtures("_torch")


def write(text: str) -> None:
    Path("train.py").write_text(text, encoding="utf-8")


def document(captured: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(captured.readouterr().out)
    return found


@pytest.mark.slow
@with_torch
@pytest.mark.parametrize("sizes_only", [[], ["--no-values"]], ids=["values", "sizes"])
def test_a_script_is_ended_after_some_steps_and_its_peak_is_explained(
    capfd: pytest.CaptureFixture[str], sizes_only: list[str]
) -> None:
    write(TRAINING)

    asked = ["--no-savings", "--gb=2", "--steps=3", *sizes_only]
    code = main(["memory", "train.py", *asked, "--", "--batch", "2048"])

    out = capfd.readouterr().out.splitlines()
    assert code == 0
    assert out[:2] == ["step 0", "step 1"]
    assert out[2].endswith(" MiB and 64.0 MiB of cuBLAS at its peak; it fits in 2 GiB")
    text = " ".join(" ".join(out).split())
    assert "optimizer state 16.0 MiB" in text
    assert "parameters 8.02 MiB" in text
    assert "--> train.py:14 in forward" in text
    assert " 14 | return x + self.narrow(torch.relu(self.wide(x)))" in text
    assert " taken here" in text


@pytest.mark.slow
@with_torch
def test_a_small_peak_needs_no_saving_and_one_run_is_enough(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(TRAINING)
    runs: list[object] = []
    monkeypatch.setattr(memory, "run_program", counted(runs, memory.run_program))

    options = ["--no-values", "--html=page.html"]
    code = main(["memory", "train.py", *options, "--", "--batch", "8"])

    assert code == 0
    assert len(runs) == 1
    page = Path("page.html").read_text(encoding="utf-8")
    assert "memory over one step" in page
    assert "<h1>train.py needs " in page
    shown = capfd.readouterr().out
    assert "  fix      none tried for a peak below 1 GiB; -v tries all\n" in shown


@pytest.mark.slow
@with_torch
def test_a_script_that_compiles_is_said_to_be_predicted_as_eager_code(
    capfd: pytest.CaptureFixture[str],
) -> None:
    found = []
    for backend in ("inductor", "aot_eager"):
        compiled = f"model = torch.compile(model, backend='{backend}')\noptimizer ="
        write(TRAINING.replace("optimizer =", compiled))
        asked = ["--json", "--no-savings", "--no-values", "--steps=1"]
        assert main(["memory", "train.py", *asked, "--", "--batch", "8"]) == 0
        found.append(document(capfd))

    fused, plain = found
    (note,) = fused["notes"]
    assert note.startswith("torch.compile: the peak is that of eager code")
    assert "with a cold cache takes up to 50 MiB more" in note
    assert fused["as_eager"] is True
    assert plain["notes"] == []
    assert plain["as_eager"] is False


INFERENCE = """
import torch
from torch import nn
from torch.utils.data import DataLoader

model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256)).cuda()
with torch.inference_mode():
    for number, batch in enumerate(DataLoader(torch.randn(BATCHES, 256), batch_size=1)):
        model(batch.cuda().expand(512, 256))
        print("batch", number)
"""

BY_BATCH = "no optimizer steps: a step is a batch of the DataLoader"


@pytest.mark.slow
@with_torch
@pytest.mark.parametrize(("batches", "steps"), [(100, 4), (3, 3)])
def test_a_loop_over_a_loader_without_an_optimizer_is_ended_after_some_batches(
    capfd: pytest.CaptureFixture[str], batches: int, steps: int
) -> None:
    write(INFERENCE.replace("BATCHES", str(batches)))

    code = main(["memory", "train.py", "--no-savings"])

    out = capfd.readouterr().out
    assert code == 0
    assert out.count("batch ") - out.count("a batch ") == steps
    assert f"predicted from {steps} steps on" in out
    assert f"  note     {BY_BATCH}\n" in out
    # What the last batch takes is pictured.
    assert "--> train.py:9 in <module>" in out
    assert "per step: activations 4.0" in out


@pytest.mark.slow
@with_torch
def test_batches_end_no_step_while_there_is_an_optimizer_that_has_yet_to_step(
    capfd: pytest.CaptureFixture[str],
) -> None:
    # A check of the model before training, and gradients of nine batches a step.
    evaluation = (
        "    for batch in loader:\n        with torch.no_grad(): model(batch.cuda())\n"
    )
    write(
        "import torch\n"
        "from torch.utils.data import DataLoader\n"
        "model = torch.nn.Linear(256, 256).cuda()\n"
        "optimizer = torch.optim.AdamW(model.parameters())\n"
        "loader = DataLoader(torch.randn(9, 256))\n"
        "for epoch in range(9):\n"
        f"{evaluation}"
        "    for batch in loader: model(batch.cuda()).sum().backward()\n"
        "    optimizer.step()\n"
        "    print('epoch', epoch)\n"
    )

    code = main(["memory", "train.py", "--json", "--no-savings", "--steps=2"])

    captured = capfd.readouterr()
    found = json.loads(captured.out)
    assert code == 0
    assert captured.err.count("epoch") == 1
    assert found["steps"] == 2
    assert found["notes"] == []


@pytest.mark.slow
@with_torch
def test_two_optimizers_that_step_in_turns_make_one_step(
    capfd: pytest.CaptureFixture[str],
) -> None:
    both = TRAINING.replace(
        "for number", "other = torch.optim.AdamW(model.parameters())\nfor number"
    )
    write(both.replace("optimizer.step()", "optimizer.step(); other.step()"))

    code = main(["memory", "train.py", "--no-savings", "--", "--batch", "8"])

    assert code == 0
    out = capfd.readouterr().out
    # The second's state is made in the second step: more steps show that it stays.
    assert out.count("step ") - out.count("per step") == 6
    assert "predicted from 7 steps" in out


def counted(
    runs: list[object], run: Callable[..., tuple[int, object]]
) -> Callable[..., tuple[int, object]]:
    def run_program(*given: object, **streams: object) -> tuple[int, object]:
        runs.append(given)
        return run(*given, **streams)

    return run_program


def repeating(
    alike: Collection[Saving], run: Callable[..., tuple[int, object]]
) -> Callable[..., tuple[int, object]]:
    """Answer with the first run's report for savings that are *alike*: processes are slow."""
    first: list[tuple[int, object]] = []

    def run_program(request: ScriptRequest, **streams: object) -> tuple[int, object]:
        if request.saving not in alike:
            first.append(run(request, **streams))
            return first[-1]
        return first[0]

    return run_program


@with_torch
def test_each_saving_is_predicted_again(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without a state of the optimizer the first step's peak is as large as any.
    write(TRAINING.replace("AdamW", "SGD"))
    alike = {Saving.EARLY_ZERO_GRAD, Saving.FOR_LOOP, Saving.FUSED}
    monkeypatch.setattr(memory, "run_program", repeating(alike, memory.run_program))

    asked = ["--json", "--no-values", "--steps=2", "--gb=0.77"]
    typed = ["memory", "train.py", *asked, "--batch-option=--batch"]
    code = main([*typed, "--", "--batch", "2048"])

    found = document(capfd)
    peaks = {saving["saving"]: saving["allocated_bytes"] for saving in found["savings"]}
    assert code == 1
    assert found["fit"] == "does not fit"
    assert found["not_checked"] == []
    assert list(peaks) == [
        "zero_grad(set_to_none=True) before the forward",
        "foreach=False in the optimizer",
        "fused=True in the optimizer",
        "checkpointing of the repeated blocks",
        "half the batch, accumulated over two",
    ]
    whole = found["allocated_bytes"]
    assert peaks["foreach=False in the optimizer"] == whole
    assert peaks["checkpointing of the repeated blocks"] < 0.95 * whole
    assert peaks["half the batch, accumulated over two"] < 0.95 * whole


@pytest.mark.slow
@with_torch
def test_a_script_that_fails_has_no_peak(capfd: pytest.CaptureFixture[str]) -> None:
    write("import torch\ntorch.zeros(3, device='cuda')\nraise SystemExit(3)\n")

    code = main(["memory", "train.py", "--no-savings"])

    assert code == 3
    assert capfd.readouterr().err == (
        "gpuperf: train.py failed, so its peak is unknown\n"
    )


@with_torch
def test_a_script_whose_loop_depends_on_what_it_reads_cannot_be_known_without_values(
    capfd: pytest.CaptureFixture[str],
) -> None:
    write(
        "import torch\n"
        "x = torch.ones(1000, 1000, device='cuda')\n"
        "if x.sum().item() > 3: y = x + 1\n"
    )

    code = main(["memory", "train.py", "--no-savings", "--no-values", "--gb=0.77"])

    out = capfd.readouterr().out
    assert code == 1
    assert (
        "  note     inconclusive: Tensor.item: no values are kept on the simulated GPU"
        in out
    )
    assert "at its peak; only a GPU can tell if 0.77 GiB is enough" in out


HELP = "see `gpuperf memory --help` [GP102]"


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        (
            "--gb=many",
            f"argument --gb: expected a number of GiB above 0, found 'many'; {HELP}",
        ),
        (
            "--steps=0",
            f"argument --steps: expected a whole number from 1 on, found '0'; {HELP}",
        ),
        (
            "--batch-option=--batch -- --lr 1",
            (
                "--batch-option=--batch: found no --batch among the script's arguments; "
                "expected its batch size after `--`, as in `-- --batch 32` [GP113]"
            ),
        ),
        *(
            (
                f"--batch-option=--batch -- --batch {size}",
                f"--batch {size}: expected a batch size of 2 or more, to be halved [GP113]",
            )
            for size in ("1", "all")
        ),
    ],
)
def test_a_question_that_cannot_be_meant_is_one_sentence(
    capsys: pytest.CaptureFixture[str], typed: str, sentence: str
) -> None:
    write("")

    assert main(["memory", "train.py", *typed.split()]) == 4
    assert capsys.readouterr().err == f"gpuperf: {sentence}\n"


@pytest.mark.slow
@with_torch
def test_a_script_too_large_for_the_host_says_so_and_is_predicted(
    capfd: pytest.CaptureFixture[str],
) -> None:
    write(
        "import torch\n"
        "from pytest_gpuperf.devices.simulated.tensor_values import BACKING\n"
        "BACKING._available = lambda: 2**30\n"
        "weights = torch.ones(2**15, 2**15, device='cuda')\n"
    )

    code = main(["memory", "train.py", "--no-savings", "--gb=80"])

    out = capfd.readouterr().out.splitlines()
    assert code == 0
    assert out[0] == "train.py needs 4.00 GiB at its peak; it fits in 80 GiB"
    assert out[-2:] == [
        "  note     values on the simulated GPU need more than the 1024 MiB of memory",
        "           that this machine has left: from there on it runs without values",
    ]


CYCLES = """
import gc
import torch

class Node:
    pass

def step(weight):
    a, b = Node(), Node()
    a.other, b.other, a.big = b, a, weight.detach() + 1
    (weight * a.big).sum().backward()
    weight.grad = None

{}
weight = torch.nn.Parameter(torch.randn(2**18, device="cuda"))
for _ in range(40):
    step(weight)
"""


@with_torch
def test_steps_without_a_collection_need_what_they_need_if_it_is_switched_off(
    capfd: pytest.CaptureFixture[str],
) -> None:
    found = []
    for switch in ("", "gc.disable()"):
        write(CYCLES.format(switch))
        assert main(["memory", "--json", "--no-savings", "--steps=9", "train.py"]) == 0
        found.append(document(capfd))

    held_off, switched_off = found
    assert held_off["garbage_bytes"] == switched_off["garbage_bytes"] == 2**20
    assert held_off["uncollected_bytes"] == held_off["allocated_bytes"] + 7 * 2**20
    # It grows, so it is seen to its end.
    assert switched_off["steps"] == 40
    assert switched_off["allocated_bytes"] == held_off["allocated_bytes"] + 38 * 2**20
    assert any("collector is switched off" in note for note in switched_off["notes"])
    assert {
        f["location"]["line"] for f in found[0]["findings"] if f["kind"] == "garbage"
    } == {10}


MODEL, LOOP = TRAINING.split("model = ")


@pytest.mark.slow
@with_torch
@pytest.mark.parametrize("program", [["pkg/train.py"], ["-m", "pkg.train"]])
@pytest.mark.parametrize(("root", "names_the_model"), [(".", True), ("pkg", False)])
def test_a_module_is_predicted_as_its_file_is_and_only_lines_below_the_root_are_named(
    program: list[str],
    root: str,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    *,
    names_the_model: bool,
) -> None:
    monkeypatch.syspath_prepend(".")
    monkeypatch.setenv("PYTHONPATH", ".")
    Path("pkg").mkdir()
    Path("pkg/__init__.py").touch()
    Path("blocks.py").write_text(MODEL, encoding="utf-8")
    Path("pkg/train.py").write_text(f"from blocks import *\nmodel = {LOOP}", "utf-8")

    typed = ["memory", "--no-savings", "--steps=3", f"--root={root}", *program]
    assert main([*typed, "--", "--batch", "2048"]) == 0

    out = capfd.readouterr().out
    assert " needs 86.1 MiB and 64.0 MiB of cuBLAS at its peak" in out
    assert "--> pkg/train.py:7 in <module>" in out
    assert ("blocks.py" in out) is names_the_model
