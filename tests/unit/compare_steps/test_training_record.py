"""What the first steps of a process leave of their training."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest


torch = pytest.importorskip("torch")

from pytest_gpuperf.compare_steps.training_record import record_steps, recording_program
from pytest_gpuperf.devices.simulated import simulated_gpu
from pytest_gpuperf.judge.training import judge_training
from pytest_gpuperf.measure.step import Subject, subject_of
from pytest_gpuperf.model.ab import TrainingAnswer, TrainingRecord
from pytest_gpuperf.model.codec import decode, encode
from pytest_gpuperf.worker.measurer import TrainingPass


def training(*, scaled: bool = False, autocast: bool = False) -> Callable[[], Any]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(20, 8), torch.nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=scaled)
    scaler = torch.amp.GradScaler("cpu", enabled=scaled)
    inputs = torch.randn(4, 20)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss = model(inputs).float().square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return step


def recorded(step: Callable[[], Any]) -> TrainingRecord:
    return record_steps(subject_of(step))[0]


def test_a_step_has_its_loss_gradients_movement_and_options_by_the_modules_names() -> (
    None
):
    record = recorded(training())

    assert [step.updates for step in record.steps] == [1, 1, 1]
    step = record.steps[0]
    assert [each.name for each in step.tensors] == [
        "0.weight",
        "0.bias",
        "1.weight",
        "1.bias",
    ]
    assert (step.returned, len(step.losses)) == (None, 1)
    weight = step.tensors[0]
    assert weight.movement is not None
    assert weight.movement.norm > 0
    assert (weight.options["lr"], weight.options["betas"]) == ("0.01", "0.9, 0.999")
    assert "fused" not in weight.options
    assert decode(TrainingRecord, encode(record)) == record


def test_gradients_that_a_fused_optimizer_unscales_itself_are_those_without_a_scale() -> (
    None
):
    plain, scaled = recorded(training()), recorded(training(scaled=True))

    found = judge_training([plain], [scaled])

    assert found.answer is TrainingAnswer.SAME, found


@pytest.mark.parametrize(
    ("autocast", "precision"), [(True, "bfloat16"), (False, "float32")]
)
def test_the_coarsest_type_that_a_step_computes_in_is_seen_in_its_graph(
    autocast: bool,  # noqa: FBT001
    precision: str,
) -> None:
    assert recorded(training(autocast=autocast)).precision == precision


def test_recording_draws_nothing() -> None:
    step = training()
    state = torch.get_rng_state()

    recorded(step)

    assert torch.equal(torch.get_rng_state(), state)


def test_what_trains_nothing_has_what_it_returns_alone() -> None:
    found = recorded(lambda: {"loss": torch.ones(3), "count": 2})

    assert found.steps[0].returned is not None
    assert found.steps[0].returned.sums == (1.0, 1.0, 1.0, 2.0)
    assert found.steps[0].tensors == ()


def test_a_program_is_ended_after_three_steps_of_its_first_optimizer() -> None:
    step, made = training(), []

    def program() -> None:
        for number in range(9):
            made.append(number)
            step()

    with recording_program() as record, pytest.raises(SystemExit):
        program()

    assert made == [0, 1, 2]
    assert [len(each.tensors) for each in record().steps] == [4, 4, 4]


def test_a_program_that_only_goes_back_is_one_step() -> None:
    weight = torch.ones(2, requires_grad=True)

    with recording_program() as record:
        weight.sum().backward()

    (step,) = record().steps
    assert [loss.sums for loss in step.losses] == [(2.0,)]


def multiplying(kind: str, device: str) -> Subject:
    layer = torch.nn.Conv2d(1, 2, 3) if kind == "convolution" else torch.nn.Linear(4, 2)
    layer.to(device)

    def step() -> None:
        layer(torch.ones(1, 1, 4, 4, device=device)).sum().backward()

    return subject_of(step)


@pytest.fixture
def rounding() -> Iterator[None]:
    """Let products round on a GPU as those of convolutions do."""
    matmul = torch.backends.cuda.matmul
    before, matmul.allow_tf32 = matmul.allow_tf32, True
    yield
    matmul.allow_tf32 = before


@pytest.mark.usefixtures("rounding")
@pytest.mark.parametrize("kind", ["convolution", "product"])
def test_what_a_simulated_gpu_multiplies_is_compared_as_closely_as_on_a_cpu(
    kind: str,
) -> None:
    with simulated_gpu():
        real, _ = record_steps(multiplying(kind, "cuda"))
        simulated, _ = record_steps(multiplying(kind, "cuda"), simulated=True)
    cpu, _ = record_steps(multiplying(kind, "cpu"))

    assert real.precision == "tensorfloat32"  # where a GPU is real, it may round
    assert simulated.precision == cpu.precision == "float32"


@pytest.mark.parametrize(
    ("emulating", "precision"),
    [(None, "tensorfloat32"), (SimpleNamespace(gave_up_values=""), "float32")],
    ids=["a GPU", "a simulated one"],
)
def test_the_device_of_a_run_says_whether_it_is_simulated(
    emulating: object, precision: str
) -> None:
    call: Any = SimpleNamespace(item=SimpleNamespace(nodeid="t.py::test"), name=None)
    device: Any = SimpleNamespace(emulating=emulating)
    passed = TrainingPass(device)

    with simulated_gpu():
        passed.measure(call, multiplying("convolution", "cuda"))

    (record,) = passed.records.values()
    assert record.precision == precision
