"""A trainer is run until all is measured, and what does not train is refused."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from types import ModuleType, SimpleNamespace

import pytest

from pytest_gpuperf.errors import ErrorId, StepError, UsageError
from pytest_gpuperf.measure.step import Fetched, Subject
from pytest_gpuperf.trainers.frameworks import TimedFetches, loop_of, writes
from pytest_gpuperf.trainers.handover import (
    EndStep,
    StepBatches,
    changed,
    measure_training,
)


def three_steps(subject: Subject) -> None:
    for _ in range(3):
        subject.step()


class FlagLoop:
    """Ends after at most *most* steps, or when it is asked to."""

    name, remedy, batches = "Flags", "set most", None

    def __init__(self, most: int) -> None:
        self.most = most
        self.begun: list[int] = []
        self.is_closed = False

    def run(self, end_step: EndStep) -> None:
        for number in range(self.most):
            self.begun.append(number)
            if not end_step():
                break
        self.is_closed = True


def test_a_trainer_ends_by_its_own_flag_after_the_last_step() -> None:
    loop = FlagLoop(most=100)

    measure_training(loop, three_steps)

    assert loop.begun == [0, 1, 2]
    assert loop.is_closed


def test_a_trainer_that_does_not_stop_at_once_ends_no_more_steps() -> None:
    class Slow(FlagLoop):
        def run(self, end_step: EndStep) -> None:
            self.begun = [n for n in range(self.most) if end_step()]

    loop = Slow(most=7)

    measure_training(loop, three_steps)

    assert loop.begun == [0, 1]


def test_a_trainer_that_ends_too_early_names_what_to_set() -> None:
    with pytest.raises(StepError) as caught:
        measure_training(FlagLoop(most=2), three_steps)

    assert str(caught.value) == (
        "gpuperf.trainer(Flags): it ended after 2 steps, and measuring takes more: set "
        "most [GP311]"
    )


def test_what_measuring_refuses_is_raised_and_nothing_is_trained() -> None:
    loop = FlagLoop(most=100)
    refusal = UsageError("no such limit", ErrorId.GP201)

    def refuse(subject: Subject) -> None:
        raise refusal

    with pytest.raises(UsageError, match="no such limit"):
        measure_training(loop, refuse)
    assert loop.begun == []


def test_an_error_of_the_training_is_raised_as_it_is() -> None:
    class Broken(FlagLoop):
        def run(self, end_step: EndStep) -> None:
            end_step()
            raise ArithmeticError

    with pytest.raises(ArithmeticError):
        measure_training(Broken(most=9), three_steps)


def test_what_was_changed_for_a_training_is_restored_after_an_error() -> None:
    arguments = SimpleNamespace(max_steps=-1, eval_on_start=True)

    def fail() -> None:
        with changed(arguments, max_steps=9, eval_on_start=False):
            assert vars(arguments) == {"max_steps": 9, "eval_on_start": False}
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert vars(arguments) == {"max_steps": -1, "eval_on_start": True}


# Waits for batches.


def played(*moments: int) -> StepBatches:
    return StepBatches(partial(next, iter((0, *moments))))


def test_the_wait_of_a_step_is_from_its_request_to_its_batch() -> None:
    batches = played(100, 130, 200, 250)
    batches.step()
    for _ in range(2):
        batches.fetch()
        batches.came()
        batches.step()

    assert batches.fetched == Fetched(batches=2, waited_ns=80, opening_ns=0)


def test_the_batches_of_one_step_are_one_wait() -> None:
    batches = played(10, 11, 20, 22)
    batches.step()
    for _ in range(2):
        batches.fetch()
        batches.came()
    batches.step()

    assert batches.fetched == Fetched(batches=1, waited_ns=3, opening_ns=0)


def test_the_first_batch_of_an_epoch_is_no_wait() -> None:
    batches = played(10, 60)
    batches.step()
    batches.epoch()
    batches.fetch()
    batches.came()
    batches.step()

    assert batches.fetched == Fetched(batches=0, waited_ns=0, opening_ns=50)
    assert batches.openings_ns == [0, 50]


@pytest.mark.parametrize(("workers", "together"), [(0, 1), (4, 4), (99, 16), ("2", 1)])
def test_batches_of_workers_arrive_in_bursts(workers: object, together: int) -> None:
    batches = StepBatches()

    batches.has_workers(workers, kept=False)

    assert batches.together == together


def test_fetches_are_timed_by_the_profiler_that_the_trainer_has() -> None:
    begun: list[str] = []
    theirs = SimpleNamespace(start=begun.append, stop=begun.append, setup=begun.clear)
    batches = played(10, 60)
    profiler = TimedFetches(theirs, batches)

    for name in ("[Loop].train_dataloader_next", "backward"):
        profiler.start(name)
        profiler.stop(name)
    batches.step()

    assert batches.openings_ns == [50]
    assert begun == [*["[Loop].train_dataloader_next"] * 2, *["backward"] * 2]
    profiler.setup()  # type: ignore[operator]
    assert begun == []


# Which adapter.


def kind_of(package: str, name: str, *bases: type) -> type:
    return type(name, bases, {"__module__": f"{package}.trainer"})


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    def has(name: str, version: str) -> None:
        module = ModuleType(name)
        module.__version__ = version  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, name, module)

    return has


@pytest.mark.parametrize(
    ("package", "trainer", "version", "loop"),
    [
        ("transformers", "Trainer", "5.23.0", "transformers.Trainer"),
        ("transformers", "Trainer", "4.46.0.dev0", "transformers.Trainer"),
        ("lightning", "Trainer", "2.6.6", "lightning.Trainer"),
        ("pytorch_lightning", "Trainer", "2.1.0", "lightning.Trainer"),
        ("accelerate", "Accelerator", "1.15.0", "accelerator, train"),
    ],
)
def test_a_trainer_is_known_by_the_package_of_a_class_that_it_inherits(
    packages: Callable[[str, str], None],
    package: str,
    trainer: str,
    version: str,
    loop: str,
) -> None:
    packages(package, version)
    own = kind_of("my_project", "MyTrainer", kind_of(package, trainer))

    assert loop_of(own(), (print,)).name == loop


@pytest.mark.parametrize(
    ("package", "trainer", "version", "expected"),
    [
        ("transformers", "Trainer", "4.45.2", "4.46"),
        ("lightning", "Trainer", "2.0.9.post0", "2.1"),
        ("accelerate", "Accelerator", "0.34", "1.0"),
    ],
)
def test_an_old_framework_is_refused_with_the_version_to_install(
    packages: Callable[[str, str], None],
    package: str,
    trainer: str,
    version: str,
    expected: str,
) -> None:
    packages(package, version)

    with pytest.raises(UsageError) as caught:
        loop_of(kind_of(package, trainer)(), ())

    assert str(caught.value) == (
        f"gpuperf.trainer(trainer): found {package} {version}, expected {expected} or "
        "newer; install a newer one, or say where its steps end: "
        "`with gpuperf.steps() as step:`, and a call of step() at the end of each [GP224]"
    )


def test_an_accelerator_without_its_loop_is_refused(
    packages: Callable[[str, str], None],
) -> None:
    packages("accelerate", "1.15.0")
    accelerator = kind_of("accelerate", "Accelerator")()

    with pytest.raises(UsageError, match=r"training loop, found none; .* \[GP223\]"):
        loop_of(accelerator, ())
    with pytest.raises(UsageError, match="training loop, found a int;"):
        loop_of(accelerator, (3,))


@pytest.mark.parametrize(
    "stranger",
    [3, object(), kind_of("torch.nn.modules", "Module")(), SimpleNamespace(train=True)],
    ids=["number", "object", "module", "flag"],
)
def test_what_does_not_train_is_refused_with_the_way_to_measure_it(
    stranger: object,
) -> None:
    with pytest.raises(UsageError) as caught:
        loop_of(stranger, ())

    text = str(caught.value)
    assert f"found a {type(stranger).__name__} of " in text
    assert "`with gpuperf.steps() as step:`" in text
    assert text.endswith("[GP223]")


@pytest.mark.parametrize(
    ("module", "name", "is_writer"),
    [
        ("transformers.integrations.integration_utils", "WandbCallback", True),
        ("transformers.trainer_callback", "ProgressCallback", True),
        ("transformers.trainer_callback", "DefaultFlowCallback", False),
        ("my_project", "PrinterCallback", False),
    ],
)
def test_callbacks_that_only_write_are_taken_off(
    *, module: str, name: str, is_writer: bool
) -> None:
    assert writes(type(name, (), {"__module__": module})) is is_writer


# Loops that are known by their optimizer.


@pytest.fixture
def hooks(monkeypatch: pytest.MonkeyPatch) -> list[Callable[..., None]]:
    """What is called after each step of an optimizer."""
    called: list[Callable[..., None]] = []

    def register(hook: Callable[..., None]) -> SimpleNamespace:
        called.append(hook)
        return SimpleNamespace(remove=partial(called.remove, hook))

    module = ModuleType("torch.optim.optimizer")
    module.register_optimizer_step_post_hook = register  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return called


def stepping(hooks: list[Callable[..., None]], optimizers: Iterator[object]) -> None:
    for optimizer in optimizers:
        hooks[-1](optimizer, (), {})


def test_a_function_is_called_again_until_all_is_measured(
    hooks: list[Callable[..., None]],
) -> None:
    epochs = count()

    def epoch() -> None:
        next(epochs)
        stepping(hooks, iter(("Adam", "Adam")))

    measure_training(loop_of(epoch, ()), three_steps)

    assert next(epochs) == 2
    assert hooks == []


def test_a_step_of_two_optimizers_ends_with_that_of_the_first(
    hooks: list[Callable[..., None]],
) -> None:
    made = []

    def train() -> None:
        for name in ("critic", "critic", "artist") * 9:
            made.append(name)
            stepping(hooks, iter((name,)))

    measure_training(loop_of(train, ()), three_steps)

    assert made == ["critic", "critic", "artist", "critic"]


def test_the_train_of_an_object_is_called_once(
    hooks: list[Callable[..., None]],
) -> None:
    class Titan:
        def train(self, steps: int) -> None:
            stepping(hooks, iter(["AdamW"] * steps))

    measure_training(loop_of(Titan(), (9,)), three_steps)
    with pytest.raises(StepError) as caught:
        measure_training(loop_of(Titan(), (2,)), three_steps)

    assert "gpuperf.trainer(Titan): it ended after 2 steps, and" in str(caught.value)
    assert "set a larger number of steps in its configuration" in str(caught.value)


def test_a_function_without_an_optimizer_of_torch_is_an_early_end() -> None:
    with pytest.raises(
        StepError, match=r"gpuperf.trainer\(nothing\): it ended after 0"
    ):
        measure_training(loop_of(nothing, ()), three_steps)


def nothing() -> None: ...
