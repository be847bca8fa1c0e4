"""The memory of a program without an optimizer or a backward: turns of its loop are steps."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pytest_gpuperf.model.finding import FindingKind
from pytest_gpuperf.model.measurement import Forecast


torch = pytest.importorskip("torch")

from pytest_gpuperf.devices.audit_record import StepAudit
from pytest_gpuperf.devices.simulated import memory_watch, simulated_gpu
from pytest_gpuperf.devices.simulated.memory_watch import EnoughSteps, watching_program
from pytest_gpuperf.devices.simulated.program_audit import ProgramAudit
from pytest_gpuperf.measure.forecast import forecast_of_program


KIB, MIB = 2**10, 2**20
ROWS = 4096


@pytest.fixture(scope="module", autouse=True)
def _quick() -> Iterator[None]:
    with simulated_gpu(values=False):
        gc.freeze()
        yield
        gc.unfreeze()


def forecast_of_script(folder: Path, text: str) -> Forecast:
    """Predict it as ``gpuperf memory`` does, from outside of pytest's own frames."""
    file = str(folder / "script.py")
    with (
        simulated_gpu(str(folder), values=False),
        watching_program(f"{folder}/", 4) as memory,
    ):
        with suppress(EnoughSteps):
            exec(compile(text, file, "exec"), {"__name__": "__main__"})  # noqa: S102
        return forecast_of_program(memory)


def purposes(forecast: Forecast) -> dict[str, int]:
    """Return the MiB at the peak by purpose, without those below one."""
    (peak,) = [f for f in forecast.findings if f.kind is FindingKind.PEAK]
    return {name: round(n / MIB) for name, n in peak.held_for if n >= MIB}


def lines_of(forecast: Forecast) -> list[int]:
    """Return the lines that hold memory, the largest first."""
    held = [f for f in forecast.findings if f.kind is FindingKind.MEMORY]
    return [f.location.line for f in held if f.location]


BEGIN = "import torch\nmodel = torch.nn.Linear(1024, 1024, device='cuda')\n"
BATCH = f"rows = torch.randn({ROWS}, 1024, device='cuda')\n"

STEPPED = "no optimizer steps: a step is a turn of the loop around"

LOOPS = {
    "evaluation": (
        (
            f"{BEGIN}{BATCH}"
            "for _ in range(4):\n"
            "    with torch.no_grad():\n"
            "        model(rows).log_softmax(-1)\n"
        ),
        6,
        {"parameters": 4, "inputs": 16, "activations": 32, "cuBLAS workspaces": 32},
    ),
    "a function whose model is gone at the end": (
        (
            "import torch\n"
            "def main():\n"
            "    model = torch.nn.Linear(1024, 1024, device='cuda')\n"
            f"    {BATCH}"
            "    left = 4\n"
            "    while left:\n"
            "        scores(model, rows)\n"
            "        left -= 1\n"
            "@torch.inference_mode()\n"
            "def scores(model, rows):\n"
            "    return model(rows).log_softmax(-1)\n"
            "main()\n"
        ),
        11,
        {"parameters": 4, "inputs": 16, "activations": 32, "cuBLAS workspaces": 32},
    ),
    "a comprehension that keeps little": (
        f"{BEGIN}{BATCH}found = [model(rows).argmax(-1) for _ in range(4)]\n",
        4,
        {"parameters": 4, "inputs": 16, "activations": 16, "cuBLAS workspaces": 32},
    ),
    "gradients by torch.func": (
        (
            f"{BEGIN}{BATCH}"
            "def loss(x): return model(x).square().sum()\n"
            "for _ in range(4):\n"
            "    torch.func.grad(loss)(rows)\n"
        ),
        6,
        None,
    ),
}


@pytest.mark.parametrize("case", LOOPS)
def test_a_turn_of_the_loop_is_the_step_and_has_lines_and_purposes(
    tmp_path: Path, case: str
) -> None:
    text, line, expected = LOOPS[case]

    found = forecast_of_script(tmp_path, text)

    assert found.steps == 4
    assert found.notes[0].startswith(f"{STEPPED} {tmp_path}/script.py:")
    assert lines_of(found)[0] == line
    assert expected is None or purposes(found) == expected


def test_a_cache_that_grows_is_at_its_peak_in_the_last_turn(tmp_path: Path) -> None:
    found = forecast_of_script(
        tmp_path,
        f"{BEGIN}cache = []\n"
        "for _ in range(6):\n"
        f"    cache.append(model(torch.randn({ROWS}, 1024, device='cuda')).detach())\n",
    )

    assert found.steps == 6
    assert found.allocated_bytes > 6 * 16 * MIB
    # What five turns have kept is there before the last one.
    assert purposes(found)["kept from earlier steps"] == 5 * 16
    assert set(lines_of(found)) == {5}


TRAINED = """\
import torch
from collections import deque
model = torch.nn.Linear(256, 256, device="cuda")
optimizer = torch.optim.Adam(model.parameters())
kept, total = {kept}, 0.0
for step in range({steps}):
    out = model(torch.randn({rows}, 256, device="cuda"))
    loss = out.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    {body}
"""


@pytest.mark.parametrize(
    ("kept", "body", "kib", "line"),
    [
        ("[]", "kept.append(out.detach())", 512, 12),
        ("[]", "kept.append(out.detach()[::100])", 512, 12),  # a view keeps all of it
        ("{}", "kept[step] = out", 512, 7),
        ("[]", "kept.append(model(torch.ones(512, 256).cuda()).mean())", 512, 12),
        ("[]", "kept += [out.data] if step % 2 else []", 256, 12),
        ("[]", "if step % 2: kept.append(out.detach())", 256, 12),
        ("model.weight[:0].detach()", "kept = torch.cat([kept, out.data])", 512, 12),
        ("model.weight[:0]", "kept = torch.vstack((kept, out)).detach()", 512, 12),
        ("[]", "kept.append(loss.detach())", 0, None),  # a few scalars
        ("[]", "kept.append(out.data)\n    if step % 10 == 9: kept = []", 0, None),
        ("deque(maxlen=6)", "kept.append(out.detach())", 0, None),
        ("{}", "kept.setdefault(step % 5, out.detach())", 0, None),
        ("0.0", "kept = 0.9 * kept + model.weight.detach()", 0, None),
        ("0.0", "kept = out.detach()", 0, None),
    ],
)
def test_what_steps_leave_grows_and_has_its_line_but_not_what_is_given_back(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kept: str,
    body: str,
    kib: int,
    line: int | None,
) -> None:
    monkeypatch.setattr(memory_watch, "MOST_GROWING_STEPS", 11)
    text = TRAINED.format(kept=kept, steps=99, rows=512, body=body)

    found = forecast_of_script(tmp_path, text)

    assert found.growth_bytes // KIB == kib
    left = [f.location for f in found.findings if f.kind is FindingKind.LEFT]
    assert [place.line for place in left if place][:1] == ([line] if line else [])
    assert found.was_ended


def test_what_every_fifth_step_leaves_grows_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_watch, "MOST_GROWING_STEPS", 24)
    body = "if step % 5 == 0: kept.append(out.detach())"
    text = TRAINED.format(kept="[]", steps=99, rows=5120, body=body)

    assert forecast_of_script(tmp_path, text).growth_bytes // KIB in range(900, 1200)


def test_batches_that_grow_are_no_growth(tmp_path: Path) -> None:
    larger = TRAINED.format(kept="[]", steps=9, rows="64 * step + 64", body="pass")

    assert not forecast_of_script(tmp_path, larger).growth_bytes


def audit_of_script(folder: Path, text: str, steps: int) -> tuple[StepAudit, str]:
    """Audit it as ``gpuperf audit`` does, with its notes."""
    text = text.replace("range(99)", f"range({steps})")
    with simulated_gpu(str(folder), values=False) as gpu:
        program = ProgramAudit(gpu)
        code = compile(text, str(folder / "script.py"), "exec")
        exec(code, {"__name__": "__main__"})  # noqa: S102
        audit, notes = program.audit(), program.notes()
        program.close()
    return audit, "; ".join(notes)


@pytest.mark.parametrize(
    ("kept", "body", "steps"),
    [
        ("model.weight[:0].detach()", "kept = torch.cat([kept, out.data])", 9),
        ("model.weight[:0].detach()", "kept = torch.vstack((kept, out.data))", 14),
        (
            "torch.ones(1, 1).cuda()",
            "kept = torch.nn.functional.pad(kept, (0, 2**17))",
            20,
        ),
        ("()", "kept += (out.detach(),)", 9),
        ("deque()", "kept.append(out.detach())", 14),
        ("{}", "kept[f'{step}'] = torch.stack([out.detach()] * 2)", 9),
    ],
)
def test_an_audit_says_the_line_of_what_grows_in_a_run_of_any_length(
    tmp_path: Path, kept: str, body: str, steps: int
) -> None:
    text = TRAINED.format(kept=kept, steps=99, rows=512, body=body)

    growth = audit_of_script(tmp_path, text, steps)[0].growth

    assert growth.nbytes >= 512 * KIB
    place = growth.held[0].location
    assert place is not None
    assert place.line in {7, 12}


@pytest.mark.parametrize(
    ("body", "graphs", "line"),
    [
        ("total = total + loss", "a graph", 12),
        ("kept.append(out)", "a graph", 7),  # the loss of this step has a longer one
        ("kept.append(out); total = total + loss", "a graph", 7),
        (
            "kept += [loss, out.abs().sum()]; first = locals().get('first', loss)",
            "3 graphs",
            "8 of script.py and line 12",
        ),
        ("kept.append(loss.detach())", "", 0),
    ],
)
def test_a_graph_that_hangs_longer_each_step_has_its_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    body: str,
    graphs: str,
    line: object,
) -> None:
    monkeypatch.setattr(memory_watch, "MOST_GROWING_STEPS", 6)
    text = TRAINED.format(kept="[]", steps=99, rows=8, body=body)

    notes = "; ".join(forecast_of_script(tmp_path, text).notes)

    said = f"every step keeps {graphs} of autograd alive, from line {line} of script.py"
    assert notes.startswith(said if line else "")
    assert bool(notes) == bool(line)
    assert audit_of_script(tmp_path, text, 9)[1] == notes


def test_what_earlier_steps_keep_has_the_line_that_keeps_it(tmp_path: Path) -> None:
    found = forecast_of_script(
        tmp_path,
        "import torch\n"
        "models = [torch.nn.Linear(1024, 1024).cuda() for _ in range(4)]\n"
        "for model in models:\n"
        f"    rows = torch.randn({ROWS}, 1024, device='cuda')\n"
        "    out = model(rows)\n"
        "    out.sum().backward()\n"
        "    model.rows, model.out = rows.view(-1), out.detach()\n",
    )

    assert purposes(found)["kept from earlier steps"] == 3 * 2 * 16
    assert "inputs" not in purposes(found)
    assert 7 in lines_of(found)


def test_a_program_in_which_nothing_repeats_is_one_step_with_all_of_its_lines(
    tmp_path: Path,
) -> None:
    found = forecast_of_script(tmp_path, f"{BEGIN}{BATCH}out = model(rows)\n")

    assert found.steps == 1
    assert found.notes == ()
    assert sorted(set(lines_of(found))) == [2, 3, 4]
    assert purposes(found)["parameters"] == 4


def test_turns_before_the_first_backward_are_no_steps(tmp_path: Path) -> None:
    found = forecast_of_script(
        tmp_path,
        "import torch\n"
        "layers = [torch.nn.Linear(64, 64).cuda() for _ in range(9)]\n"
        "for _ in range(2):\n"
        "    x = torch.randn(64, 64, device='cuda')\n"
        "    for layer in layers: x = layer(x)\n"
        "    x.sum().backward()\n",
    )

    assert found.steps == 2
    assert found.notes == ("no optimizer steps: a step is a backward",)


def test_what_the_step_before_left_has_its_line_and_what_is_kept_has_none(
    tmp_path: Path,
) -> None:
    forecast = forecast_of_script(
        tmp_path,
        (
            "import torch\nmodel = torch.nn.Linear(4096, 4096, device='cuda')\n"
            "rows = torch.randn(8, 4096, device='cuda')\n"
            "optimizer = torch.optim.AdamW(model.parameters())\n"
            "for _ in range(5):\n"
            "    loss = model(rows).mean() + torch.ones(2**27, device='cuda').sum()\n"
            "    optimizer.zero_grad()\n"
            "    loss.backward()\n"
            "    optimizer.step()\n"
        ),
    )

    # The gradients live until `zero_grad`; the optimizer's state was taken once.
    assert set(lines_of(forecast)) == {6, 8}
    assert purposes(forecast)["gradients"] == 64


CYCLES = {
    "an object that holds itself": (
        "class Batch:\n"
        "    pass\n"
        "for _ in range(6):\n"
        "    batch = Batch()\n"
        "    batch.rows, batch.own = torch.ones(2**18, device='cuda'), batch\n"
        "    del batch\n"
    ),
    "a function that calls itself": (
        "@torch.inference_mode()\n"
        "def scored():\n"
        "    rows = torch.ones(2**18, device='cuda')\n"
        "    def sums(depth):\n"
        "        return sums(depth - 1) if depth else rows.sum()\n"
        "    return sums(2)\n"
        "for _ in range(6):\n"
        "    scored()\n"
    ),
    "an error that is kept by its own frame": (
        "def tried(rows):\n"
        "    try:\n"
        "        rows.view(7)\n"
        "    except RuntimeError as error:\n"
        "        kept = error\n"
        "for _ in range(6):\n"
        "    tried(torch.ones(2**9, 2**8, 2, device='cuda'))\n"
    ),
}


@pytest.mark.parametrize("text", CYCLES.values(), ids=CYCLES)
def test_each_turn_is_told_what_it_leaves_to_the_collector(
    tmp_path: Path, text: str
) -> None:
    forecast = forecast_of_script(tmp_path, f"import torch\n{text}")

    assert forecast.garbage_bytes == MIB
    assert forecast.allocated_bytes < 3 * MIB
    assert FindingKind.GARBAGE in {found.kind for found in forecast.findings}
    # Five turns are over before the last one begins.
    assert forecast.uncollected_bytes - forecast.allocated_bytes >= 4 * MIB


SELF = CYCLES["an object that holds itself"]


def test_turns_that_collect_leave_nothing_to_the_collector(tmp_path: Path) -> None:
    forecast = forecast_of_script(
        tmp_path, f"import gc, torch\n{SELF}    gc.collect()\n"
    )

    assert not forecast.garbage_bytes
    assert forecast.allocated_bytes < 3 * MIB


def test_without_a_collector_the_peak_is_that_of_all_turns(tmp_path: Path) -> None:
    forecast = forecast_of_script(
        tmp_path, f"import gc, torch\ngc.disable()\n{SELF}gc.enable()\n"
    )

    assert forecast.allocated_bytes >= 6 * MIB


@pytest.mark.parametrize("text", [text for text, *_ in LOOPS.values()], ids=LOOPS)
def test_loops_without_cycles_leave_nothing_to_the_collector(
    tmp_path: Path, text: str
) -> None:
    assert not forecast_of_script(tmp_path, text).garbage_bytes


def test_many_turns_that_leave_nothing_are_not_collected_each(tmp_path: Path) -> None:
    runs: list[object] = []
    gc.callbacks.append(lambda phase, _: runs.append(phase))
    try:
        forecast = forecast_of_script(
            tmp_path,
            (
                "import torch\nx = torch.ones(2**18, device='cuda')\n"
                "for _ in range(200):\n    x.exp()\n"
            ),
        )
    finally:
        gc.callbacks.pop()

    assert forecast.steps == 200
    assert runs.count("start") < 50


@pytest.mark.usefixtures("settings_unread")
@pytest.mark.parametrize("variable", ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"])
@pytest.mark.parametrize(
    ("setting", "is_before", "mib", "noted", "unchecked"),
    [
        ("expandable_segments:True", True, 33.75, 1, 0),
        ("expandable_segments:True", False, 36, 0, 0),
        ("roundup_power2_divisions:4", True, 36, 0, 1),
    ],
)
def test_settings_of_the_allocator_count_if_code_makes_them_before_the_gpu_is_used(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    setting: str,
    mib: float,
    noted: int,
    unchecked: int,
    *,
    is_before: bool,
) -> None:
    """The peaks are those of torch 2.13 for CUDA over stub libraries."""
    monkeypatch.setenv(variable, "")
    sets = f"import os\nos.environ[{variable!r}] = {setting!r}\n"
    uses = f"import torch\nx = torch.zeros({45 * 2**18}, dtype=torch.uint8).cuda()\n"
    begin = sets + uses if is_before else uses + sets

    found = forecast_of_script(tmp_path, begin + "for _ in range(4):\n    y = x + 1\n")

    assert found.allocated_bytes / MIB == mib
    said = f"{variable} sets {setting}"
    assert [said in note for note in found.notes].count(True) == noted
    assert [said in reason for reason in found.not_checked].count(True) == unchecked
