"""How contests of performance were cheated, and what each of them comes to here.

Every cheat is refused with a reason, or its work is counted. None is better or green.
``benchmarks/evidence/cheats.md`` has their sources.
"""

from __future__ import annotations

import gc
import json
import math
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import count, repeat
from pathlib import Path
from types import FrameType
from typing import Any, Final
from unittest.mock import Mock

import pytest
from scripted_device import ScriptedDevice
from scripted_project import ScriptedProject

from pytest_gpuperf.compare_steps.isolation import Pair
from pytest_gpuperf.compare_steps.measure import compare_sides
from pytest_gpuperf.compare_steps.same_training import refuse_other_training, starts_of
from pytest_gpuperf.devices.base import MeasuringDevice
from pytest_gpuperf.devices.preflight import Held
from pytest_gpuperf.devices.simulated import op_plan
from pytest_gpuperf.devices.simulated.device import SimulatedDevice
from pytest_gpuperf.errors import StepError
from pytest_gpuperf.measure import emulated, further_steps, phases
from pytest_gpuperf.measure.plan import MeasurePlan
from pytest_gpuperf.measure.step import Subject
from pytest_gpuperf.model.budget import Tolerance
from pytest_gpuperf.model.measurement import Measurement


torch = pytest.importorskip("torch")

Step = Callable[..., object]


# Work that is done elsewhere or not always: a step that syncs once, and must not hide it.


@pytest.fixture
def device() -> Iterator[SimulatedDevice]:
    made = SimulatedDevice(str(Path(__file__).parent))
    made.enter()
    yield made
    made.leave()


OUTSIDE: Final = (
    "1 sync and 1024 flops per step are in setup, or in what frees the last result: no "
    "metric counts them"
)


class Hiding:
    """The work of an honest step, and steps that hide it."""

    def __init__(self) -> None:
        self.x = torch.ones(8, 8, device="cuda")
        self.calls = 0

    def work(self) -> object:
        return (self.x @ self.x).sum().item()

    def when(self, *, is_due: bool) -> object:
        return self.work() if is_due else self.x + 1

    def counted(self) -> int:
        self.calls += 1
        return self.calls

    def honest(self) -> object:
        return self.work()

    def works_every_second_step(self) -> object:
        return self.when(is_due=self.counted() % 2 == 1)

    def works_every_tenth_step(self) -> object:
        return self.when(is_due=self.counted() % 10 == 0)

    def works_in_the_first_steps(self) -> object:
        return self.when(is_due=self.counted() < 6)

    def does_many_steps_at_once_and_then_none(self) -> object:
        number = self.counted()
        return [self.when(is_due=number % 4 == 0) for _ in range(4)]

    def leaves_its_work_to_the_next_step(self) -> object:
        return self.when(is_due=self.counted() > 1)

    def works_in_a_thread(self) -> object:
        thread = threading.Thread(target=self.work)
        thread.start()
        thread.join()
        return self.x + 1

    def works_on_another_stream(self) -> object:
        with torch.cuda.stream(torch.cuda.Stream()):
            return self.work()

    def works_in_a_finalizer(self) -> object:
        Finalized(self.work)
        return self.x + 1

    def switches_the_garbage_collector_off(self) -> object:
        gc.disable()
        return self.work()


class Finalized:
    """Works when it is freed."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work

    def __del__(self) -> None:
        self._work()


def audited(
    device: SimulatedDevice, step: Step, setup: Callable[[], object] | None = None
) -> Measurement:
    plan = MeasurePlan(test="t.py::t", seconds=600.0)
    return emulated.audit(device, Subject(step=step, setup=setup), plan).measurement


@pytest.fixture
def collecting() -> Iterator[None]:
    yield
    gc.enable()


@pytest.mark.parametrize(
    "name",
    [name for name in vars(Hiding) if "_" in name.strip("_") or name == "honest"],
)
@pytest.mark.usefixtures("collecting")
def test_work_that_a_step_hides_is_counted(device: SimulatedDevice, name: str) -> None:
    found = audited(device, getattr(Hiding(), name))

    counts = [found.exact.get(name, 0) for name in ("syncs", "occasional_syncs")]
    assert max(counts) >= 1
    assert any("_local_scalar_dense" in str(finding.op) for finding in found.findings)


def test_work_that_is_left_to_setup_is_said(device: SimulatedDevice) -> None:
    hiding = Hiding()

    found = audited(device, lambda _: hiding.x + 1, hiding.work)

    assert found.remarks == (OUTSIDE,)


def test_work_that_is_left_to_the_end_of_a_result_is_said(
    device: SimulatedDevice,
) -> None:
    hiding = Hiding()

    def step() -> object:
        hiding.x + 1
        return Finalized(hiding.work)

    assert OUTSIDE in audited(device, step).remarks


def test_a_setup_that_copies_a_batch_is_no_cheat(device: SimulatedDevice) -> None:
    hiding = Hiding()

    found = audited(
        device, lambda x: (x @ hiding.x).sum(), lambda: torch.ones(8, 8).cuda()
    )

    assert found.remarks == ()


def test_a_step_that_does_nothing_is_not_checked(device: SimulatedDevice) -> None:
    found = audited(device, lambda: None)

    assert "syncs" not in found.exact
    assert found.unmeasured["syncs"]


# Results that are not made anew: the check of the training, at the start and at the end.


def callers() -> Iterator[str]:
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        yield frame.f_code.co_filename
        frame = frame.f_back


class Training:
    """An honest step, and steps that spare its work."""

    honest: Training

    def __init__(self, spare: str = "") -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(
            torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.kept: dict[object, Any] = {}
        self.calls = 0
        if not spare:
            Training.honest = self  # as if found by the garbage collector
        self.last = torch.zeros(())
        self._spare = getattr(self, spare) if spare else self.train

    def __call__(self, x: Any) -> object:
        self.calls += 1
        return self._spare(x)

    def train(self, x: Any) -> Any:
        self.optimizer.zero_grad()
        loss = (self.model(x).square() * x.square().mean()).mean()
        loss.backward()
        self.optimizer.step()
        self.last = loss.detach()
        return self.last

    def replay(self, key: object, x: Any) -> Any:
        if key not in self.kept:
            self.kept[key] = self.train(x)
        return self.kept[key]

    def keeps_by_identity(self, x: Any) -> Any:
        return self.replay(id(x), x)

    def keeps_by_address(self, x: Any) -> Any:
        return self.replay(x.data_ptr(), x)

    def keeps_by_content(self, x: Any) -> Any:
        return self.replay(float(x.sum()), x)

    def trains_every_second_step(self, x: Any) -> Any:
        return self.replay(self.calls // 2, x)

    def trains_while_it_is_checked(self, x: Any) -> Any:
        return self.replay(min(self.calls, 5), x)

    def keeps_its_loss_once_it_was_checked(self, x: Any) -> Any:
        if self.calls > 5:
            self.optimizer.step()
            return self.kept[5]
        return self.replay(self.calls, x)

    def trains_only_under_a_check(self, x: Any) -> Any:
        checked = any("training" in file for file in callers())
        return self.train(x) if checked else self.model(x)

    def looks_who_calls_it(self, x: Any) -> Any:
        measured = any("pytest_gpuperf" in file for file in callers())
        return self.model(x).mean() if measured else self.train(x)

    def copies_the_other_side(self, x: Any) -> Any:
        other = Training.honest
        for mine, theirs in zip(
            self.model.parameters(), other.model.parameters(), strict=True
        ):
            mine.grad = theirs.grad.clone()
        self.optimizer.step()
        return other.last.clone()

    def returns_no_number(self, x: Any) -> Any:
        return self.train(x) * torch.nan

    def leaves_out_half_of_the_batch(self, x: Any) -> Any:
        return self.train(x[: len(x) // 2])

    def does_many_steps_at_once_and_then_none(self, x: Any) -> Any:
        if self.calls % 4 == 1:
            self.kept = {n: self.train(x) for n in range(4)}
        return self.kept[(self.calls - 1) % 4]

    def reads_its_loss_late(self, x: Any) -> Any:
        return Late(self, x)

    def returns_a_tensor_that_works_when_it_is_read(self, x: Any) -> Any:
        return self.train(x).as_subclass(LateTensor)

    def trains_in_half_precision(self, x: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.train(x + 100)

    def rounds_its_weights(self, x: Any) -> Any:
        loss = self.train(x)
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.copy_(parameter.to(torch.float8_e4m3fn).float())
        return loss

    def leaves_its_update_to_the_next_step(self, x: Any) -> Any:
        self.optimizer.step()
        self.optimizer.zero_grad()
        loss = self.model(x).square().mean()
        loss.backward()
        return loss.detach()


class Late:
    """A loss that is computed when it is read."""

    def __init__(self, training: Training, x: Any) -> None:
        self._training, self._x = training, x

    def __float__(self) -> float:
        return float(self._training.train(self._x))


class LateTensor(torch.Tensor):
    """A tensor whose class decides what reading it does."""


def compared(before: Step, after: Step, *, is_reused: bool = False) -> str:
    numbers = repeat(0) if is_reused else count()
    batch = torch.empty(12, 8)

    def setup() -> object:
        return batch.copy_(torch.arange(96.0).reshape(12, 8).add(next(numbers)).sin())

    pair = Pair(
        before=Subject(step=before, setup=setup),
        after=Subject(step=after, setup=setup),
        training=0.01,
    )
    plan = MeasurePlan(test="t.py::t", seconds=60.0)
    script = {"t#before": {"step_ms": 10.0}, "t#after": {"step_ms": 5.0}}
    compared = compare_sides(ScriptedDevice(script, 0), pair, plan, Tolerance())
    training = compared.sides.training
    return training.text if training else ""


@pytest.mark.parametrize(
    "spare",
    [name for name in vars(Training) if "_" in name.strip("_") and name != "_spare"],
)
def test_training_that_a_side_spares_is_refused(spare: str) -> None:
    with pytest.raises(StepError, match="GP714") as refused:
        compared(Training(), Training(spare), is_reused=spare == "keeps_by_content")

    assert "the training differs" in str(
        refused.value
    ) or "it cannot be checked" in str(refused.value)


@pytest.mark.parametrize("lr", [0.1, 1e-30])
def test_equal_training_is_equal_at_the_end_as_well(lr: float) -> None:
    before, after = Training(), Training()
    for side in (before, after):
        side.optimizer.param_groups[0]["lr"] = lr

    assert "agree in every digit over 3 steps" in compared(before, after)


@pytest.mark.parametrize("diverged", [(True, True), (True, False)])
def test_training_that_diverged_on_both_sides_proves_nothing(
    diverged: tuple[bool, bool],
) -> None:
    sides = Training(), Training()
    before, after = (Subject(step=side) for side in sides)
    pair = Pair(before=before, after=after, training=0.01)
    starts = starts_of(pair)
    for side, is_nan in zip(sides, diverged, strict=True):
        with torch.no_grad():
            for parameter in side.model.parameters():
                parameter.mul_(math.nan if is_nan else 1.1)

    with nullcontext() if all(diverged) else pytest.raises(StepError, match="GP714"):
        refuse_other_training(pair, *starts)


def test_steps_that_update_every_third_call_may_be_at_another_one() -> None:
    class Accumulating(Training):
        def train(self, x: Any) -> Any:
            loss = self.model(x).square().mean()
            loss.backward()
            if self.calls % 3 == 0:
                self.optimizer.step()
                self.optimizer.zero_grad()
            return loss.detach()

    assert "agree in every digit" in compared(Accumulating(), Accumulating())


# What a test puts in place of what measures it.


class Zero:
    """A callable object."""

    def __call__(self, *_: Any, **__: Any) -> int:
        return 0


def made_of_text() -> Any:
    scope: dict[str, Any] = {}
    exec("def fake(*_, **__): return 0", scope)  # noqa: S102 - as the cheat does
    return scope["fake"]


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("torch.cuda", "synchronize"),
        ("torch.cuda.Event", "elapsed_time"),
        ("torch.cuda", "memory_allocated"),
        ("torch.cuda", "memory_stats"),
        ("torch.profiler", "profile"),
        ("torch.Tensor", "item"),
        ("pytest_gpuperf.measure.timing", "time_round"),
        ("pytest_gpuperf.measure.emulated", "counted_syncs"),
        ("pytest_gpuperf.devices.process_time.HostClock", "wall_ns"),
        ("pytest_gpuperf.devices.cpu.CpuDevice", "now_ns"),
        ("pytest_gpuperf.timers", "cuda_sync"),
    ],
)
@pytest.mark.parametrize(
    "fake",
    [lambda *_, **__: 0, Mock(return_value=0), Zero(), made_of_text(), len],
)
def test_what_measures_is_not_replaced_in_silence(
    monkeypatch: pytest.MonkeyPatch, target: str, name: str, fake: Any
) -> None:
    __import__("pytest_gpuperf.timers")
    held = Held()
    assert [*held.replaced()] == []

    monkeypatch.setattr(f"{target}.{name}", fake)

    assert [*held.replaced()] == [f"{target}.{name}"]


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [
        (emulated, "AUDITED_STEPS", 1),
        (emulated, "LOOKED_STEPS", 0),
        (further_steps, "LOOKED_STEPS", 0),
        (MeasuringDevice, "torch_device", property(lambda _: "cpu")),
        (phases, "PHASES", ()),
    ],
)
def test_constants_are_not_changed_in_silence(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, value: Any
) -> None:
    held = Held()

    monkeypatch.setattr(module, name, value)

    assert [found.rpartition(".")[2] for found in held.replaced()] == [name]


def test_a_table_is_not_changed_in_place_in_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = Held()

    monkeypatch.setitem(op_plan.HOST_ARGUMENTS, "item", 0)

    assert len([*held.replaced()]) == 1


def test_what_a_library_wraps_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held()
    file = str(Path(sysconfig.get_path("purelib"), "a_profiler", "wraps.py"))
    scope: dict[str, Any] = {}
    exec(compile("def wrapped(*_): ...", file, "exec"), scope)  # noqa: S102 - no such file

    monkeypatch.setattr(emulated, "counted_syncs", scope["wrapped"])

    assert [*held.replaced()] == []


@pytest.mark.usefixtures("device")
def test_a_class_of_tensors_that_a_step_moves_to_the_gpu_is_no_cheat() -> None:
    held = Held()

    class Rows(torch.Tensor):
        pass

    moved = torch.ones(2).as_subclass(Rows).to("cuda")

    assert isinstance(moved, Rows)
    assert [*held.replaced()] == []


# What a test does to its own verdict, in a whole run.

TESTS = """
import json, os, sys
from pathlib import Path
from pytest_gpuperf.measure import profile

def step(): pass

def test_honest(gpuperf): gpuperf(step, syncs=0)

@gpuperf.budget(syncs=0)
def test_takes_its_budget_away(gpuperf, request):
    request.node.own_markers.clear()
    gpuperf(step)

def test_edits_what_was_measured(gpuperf):
    gpuperf(step, syncs=0)
    gpuperf.measurement.exact["syncs"] = 0
    object.__setattr__(gpuperf.measurement, "exact", {})

def test_replaces_what_counts(gpuperf, monkeypatch):
    monkeypatch.setattr("pytest_gpuperf.measure.phases.traced_steps", lambda at: at.measurement)
    gpuperf(step, syncs=0)

def test_replaces_its_answer(gpuperf):
    gpuperf(step, syncs=0)
    json.dumps = lambda *_, **__: "[]"

def test_catches_the_refusal(gpuperf):
    try:
        gpuperf(step, syncs=0, name=" ")
    except BaseException:
        pass

def test_skips_when_it_is_measured(gpuperf):
    gpuperf(step, syncs=0)
    pytest.skip("done")

def test_expects_to_fail(gpuperf):
    gpuperf(step, syncs=0)
    sys.exit(0)

def test_exits_with_success(gpuperf):
    gpuperf(lambda: os._exit(0), syncs=0)

def test_never_measures(gpuperf): step()

def test_takes_no_time(gpuperf): gpuperf(step)

def test_forges_its_baseline(gpuperf):
    gpuperf(step)
    path = Path("baselines/scripted.json")
    if path.exists():
        path.write_text(path.read_text().replace("10.0", "99.0"))
"""

SCRIPT: dict[str, object] = {
    "*": {"syncs": 1},
    "test_takes_no_time": {"step_ms": 0.0},
    "test_forges_its_baseline": {"step_ms": 10.0},
}

SAID = {
    "test_honest": "OVER LIMIT syncs",
    "test_takes_its_budget_away": "OVER LIMIT syncs",
    "test_edits_what_was_measured": "OVER LIMIT syncs",
    "test_replaces_what_counts": "GP312",
    "test_replaces_its_answer": "no result",
    "test_catches_the_refusal": "budget never judged",
    "test_skips_when_it_is_measured": "OVER LIMIT syncs",
    "test_expects_to_fail": "SystemExit",
    "test_exits_with_success": "exited with 0",
    "test_never_measures": "budget never judged",
    "test_takes_no_time": "the clock stopped",
    "test_forges_its_baseline": "SLOWER: ",
}


def test_what_a_test_does_to_its_verdict_makes_it_fail(
    project: ScriptedProject,
) -> None:
    project.file(TESTS)
    project.script(SCRIPT)
    project.refresh("-k", "forges")
    project.script({**SCRIPT, "test_forges_its_baseline": {"step_ms": 20.0}})

    project.run("--junitxml=junit.xml")

    results = json.loads((project.path / ".gpuperf/results.json").read_text())
    tests = {key.rpartition("::")[2]: test for key, test in results["tests"].items()}
    assert {n for n in SAID if tests[n]["ending"] not in {"failed", "died"}} == set()
    text = (project.path / "junit.xml").read_text()
    assert {said for said in SAID.values() if said not in text} == set()
