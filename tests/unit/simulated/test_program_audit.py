"""What a program does in every step, and what once: optimizers, loaders and loops."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType

import pytest


torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader

from pytest_gpuperf.devices.audit_record import StepAudit, StepMark
from pytest_gpuperf.devices.garbage import held_collector
from pytest_gpuperf.devices.simulated import simulated_gpu
from pytest_gpuperf.devices.simulated.program_audit import ProgramAudit
from pytest_gpuperf.model.finding import Finding


Run = Callable[[Callable[[], object]], StepAudit]


@pytest.fixture
def audited() -> Iterator[Run]:
    """Audit a function as a program."""
    with simulated_gpu(str(Path(__file__).parent)) as gpu:
        program = ProgramAudit(gpu)

        def run(program_code: Callable[[], object]) -> StepAudit:
            program_code()
            return program.audit()

        yield run
        program.close()


def counts(
    audit: StepAudit, program: Callable[[], object]
) -> list[tuple[int, int, bool]]:
    """Return of each sync its line after the program's ``def``, its count, and if it is once."""
    assert isinstance(program, FunctionType)
    begin = program.__code__.co_firstlineno
    return sorted((line_of(f) - begin, f.per_step, f.once) for f in audit.findings)


def line_of(finding: Finding) -> int:
    assert finding.location is not None
    return finding.location.line


def sgd() -> torch.optim.Optimizer:
    weight = torch.ones(1, device="cuda", requires_grad=True)
    weight.grad = torch.ones(1, device="cuda")
    return torch.optim.SGD([weight], lr=0.1)


def test_a_step_is_that_of_an_optimizer_whatever_loops_there_are(audited: Run) -> None:
    x = torch.ones(1, device="cuda")

    def program() -> None:
        optimizer = sgd()
        for _ in range(8):
            x.item()
        for _ in DataLoader(torch.ones(6, 1), batch_size=2):
            optimizer.step()
            x.item()

    audit = audited(program)

    assert (audit.steps, audit.mark, audit.loop) == (3, StepMark.OPTIMIZER, None)
    assert counts(audit, program) == [(3, 8, True), (6, 3, False)]
    assert audit.syncs == (1, 1, 1)


def test_two_optimizers_that_step_in_turns_make_one_step(audited: Run) -> None:
    def program() -> None:
        both = [sgd(), sgd()]
        for _ in range(4):
            for optimizer in both:
                optimizer.step()

    assert audited(program).steps == 4


def test_two_optimizers_of_layers_that_are_trained_one_after_the_other_step_on_their_own(
    audited: Run,
) -> None:
    def program() -> None:
        for optimizer in [sgd(), sgd()]:
            for _ in range(4):
                optimizer.step()

    # The first step of the second one could be part of the last step of the first.
    assert audited(program).steps == 7


def test_an_optimizer_that_is_made_in_each_step_is_counted(audited: Run) -> None:
    def program() -> None:
        for _ in range(4):
            sgd().step()
            gc.collect()

    assert audited(program).steps == 4


def test_without_an_optimizer_a_step_is_a_backward_of_the_line_that_begins_most(
    audited: Run,
) -> None:
    weight = torch.ones(1, device="cuda", requires_grad=True)

    def train() -> None:
        for _ in range(4):
            (weight * 2).backward()
            weight.data.add_(weight.grad, alpha=-0.1)
            weight.grad.item()

    def evaluate() -> None:
        for _ in DataLoader(torch.ones(6, 1), batch_size=1):
            weight.item()

    def program() -> None:
        weight.item()
        for _epoch in range(2):
            train()
            evaluate()
        (weight * 3).backward()

    audit = audited(program)

    assert (audit.steps, audit.mark, audit.loop) == (8, StepMark.BACKWARD, None)
    assert sorted((f.per_step, f.in_steps, f.once) for f in audit.findings) == [
        (1, 1, True),
        (8, 8, False),
        (12, 2, False),
    ]


def test_the_backward_of_a_checkpoint_inside_of_a_backward_is_no_step(
    audited: Run,
) -> None:
    weight = torch.ones(1, device="cuda", requires_grad=True)

    def program() -> None:
        for _ in range(3):
            doubled = torch.utils.checkpoint.checkpoint(
                torch.sin, weight, use_reentrant=True
            )
            doubled.backward()

    assert audited(program).steps == 3


def test_without_an_optimizer_a_step_is_a_batch_of_the_loader(audited: Run) -> None:
    x = torch.ones(1, device="cuda")
    loader = DataLoader(torch.ones(6, 1), batch_size=2)

    def program() -> None:
        x.item()
        for _epoch in range(2):
            for _batch in loader:
                x.item()

    audit = audited(program)

    assert sorted(f.in_steps for f in audit.findings) == [1, 6]
    assert (audit.steps, audit.mark, audit.loop) == (6, StepMark.LOADER, None)
    assert counts(audit, program) == [(1, 1, True), (4, 6, False)]


def test_without_either_a_step_is_a_turn_of_the_outermost_loop(audited: Run) -> None:
    x = torch.ones(1, device="cuda")

    def read() -> None:
        for _ in range(3):
            x.item()

    def program() -> None:
        x.item()
        for _ in range(10):
            read()
            x.tolist()

    audit = audited(program)

    assert (audit.steps, audit.mark) == (10, StepMark.LOOP)
    assert audit.loop is not None
    assert audit.loop.function == "program"
    assert counts(audit, program) == [(-2, 30, False), (1, 1, True), (4, 10, False)]


def test_what_one_step_alone_does_often_is_not_what_each_does(audited: Run) -> None:
    x = torch.ones(1, device="cuda")

    def program() -> None:
        optimizer = sgd()
        for step in range(5):
            x.item()
            optimizer.step()
            if step % 2:
                x.item()
        for _ in range(50):
            x.item()

    audit = audited(program)

    assert sorted((f.in_steps, f.once) for f in audit.findings) == [
        (1, True),
        (2, False),
        (5, False),
    ]
    assert (audit.totals.syncs, audit.syncs) == (57, (1, 1, 2, 1, 2))


def test_what_follows_the_last_step_is_of_no_step(audited: Run) -> None:
    x = torch.ones(1, device="cuda", requires_grad=True)

    def program() -> None:
        for _ in range(3):
            x.sum().backward()
            x.item()
        x.item()

    audit = audited(program)

    assert [(f.per_step, f.after_last) for f in audit.findings] == [
        (3, False),
        (1, True),
    ]
    assert audit.mark is StepMark.BACKWARD


def test_the_last_batch_of_a_loader_is_a_step(audited: Run) -> None:
    x = torch.ones(1, device="cuda")

    def program() -> None:
        for number, _ in enumerate(DataLoader(torch.ones(3, 1), batch_size=1)):
            if number == 2:
                x.item()

    audit = audited(program)

    assert audit.mark is StepMark.LOADER
    assert not any(f.once for f in audit.findings)


def test_the_last_turn_of_a_loop_is_a_step(audited: Run) -> None:
    x = torch.ones(1, device="cuda")

    def program() -> None:
        for number in range(3):
            x.add_(1)
            if number == 2:
                x.item()

    audit = audited(program)

    assert audit.mark is StepMark.LOOP
    assert not any(f.once for f in audit.findings)


# Steps of a run of any length: their number, and the syncs that most of them have.


def read(x: torch.Tensor) -> float:
    return float(x.sum().item())


def branch(x: torch.Tensor, turns: int) -> None:
    for turn in range(turns):
        read(x)
        if turn % 3 == 0:
            x.max().item()


def either(x: torch.Tensor, turns: int) -> None:
    for turn in range(turns):
        if turn % 3:
            x.tolist()
        else:
            x.item()


def continued(x: torch.Tensor, turns: int) -> None:
    for turn in range(turns):
        if turn % 2:
            x.item()
            continue
        x.tolist()


def last_turn_differs(x: torch.Tensor, turns: int) -> None:
    for turn in range(turns):
        read(x)
        if turn < turns - 1:
            x.item()


def while_loop(x: torch.Tensor, turns: int) -> None:
    turn = 0
    while turn < turns:
        x.item()
        turn += 1


def generator(x: torch.Tensor, turns: int) -> None:
    def batches() -> Iterator[torch.Tensor]:
        for _ in range(turns):
            yield x.cpu().cuda()

    for batch in batches():
        read(batch)


def all_in_a_generator(x: torch.Tensor, turns: int) -> None:
    assert len([*(read(x) for _ in range(turns))]) == turns


def composite(x: torch.Tensor, turns: int) -> None:
    for _ in range(turns):
        torch.allclose(x, x)


def epochs(x: torch.Tensor, turns: int) -> None:
    for _epoch in range(2):
        for _batch in range(turns):
            read(x)
        x.tolist()


class Trainer:
    def fit(self, x: torch.Tensor, turns: int) -> None:
        for _epoch in range(2):
            self.epoch(x, turns)

    def epoch(self, x: torch.Tensor, turns: int) -> None:
        for _batch in range(turns):
            self.step(x)
        read(x)

    def step(self, x: torch.Tensor) -> None:
        read(torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Tanh())(x))


def evaluated_by_the_same_line(x: torch.Tensor, turns: int) -> None:
    for turn in range(turns):
        read(x)
        if turn % 10 == 0 or turn == turns - 1:
            for _ in range(5):
                read(x)


def accumulated(_: torch.Tensor, turns: int) -> None:
    optimizer = sgd()
    for turn in range(4 * turns):
        trained(optimizer).item()
        if turn % 4 == 3:
            optimizer.step()


def read_behind_the_step(x: torch.Tensor, turns: int) -> None:
    optimizer = sgd()
    for turn in range(turns):
        read(x)
        optimizer.step()
        x.item()
        if turn and turn % 10 == 0:
            [*map(read, [x] * 20)]
    [*map(read, [x] * 7)]


def no_waits(x: torch.Tensor, turns: int) -> None:
    x.item()
    for _ in range(turns):
        x = x * 2


def turned_by_modules(x: torch.Tensor, turns: int) -> None:
    class Blocks(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(7):
                x = x.neg()
            return x

    model = Blocks()
    for _ in range(turns):
        read(model(x))


@pytest.mark.parametrize("turns", [7, 22, 41])
@pytest.mark.parametrize(
    ("program", "epochs", "syncs"),
    [
        (branch, 1, 1),
        (either, 1, 1),
        (continued, 1, 1),
        (last_turn_differs, 1, 2),
        (while_loop, 1, 1),
        (generator, 1, 3),
        (all_in_a_generator, 1, 1),
        (composite, 1, 1),
        (epochs, 2, 1),
        (Trainer().fit, 2, 1),
        (evaluated_by_the_same_line, 1, 1),
        (accumulated, 1, 4),
        (read_behind_the_step, 1, 2),
        (no_waits, 1, 0),
        (turned_by_modules, 1, 1),
    ],
)
def test_what_most_steps_do_is_the_same_in_a_run_of_any_length(
    program: Callable[[torch.Tensor, int], None],
    epochs: int,
    syncs: int,
    turns: int,
    audited: Run,
) -> None:
    x = torch.ones(1, device="cuda")

    audit = audited(lambda: program(x, turns))

    assert (audit.steps, audit.per_step) == (epochs * turns, syncs)
    assert sum(audit.syncs) + sum(f.per_step for f in audit.findings if f.once) == (
        audit.totals.syncs
    )
    assert all(f.in_steps <= audit.steps for f in audit.findings)


def test_many_waits_in_one_call_are_no_loop(audited: Run) -> None:
    model = torch.nn.Sequential(*(torch.nn.Linear(2, 2) for _ in range(4)))

    def program() -> None:
        model.to("cuda")

    audit = audited(program)

    assert (audit.steps, audit.mark) == (0, None)
    assert counts(audit, program) == [(1, 8, False)]


class Rows(torch.Tensor):
    """A user's class of tensors."""


def _printing(x: torch.Tensor) -> None:
    print(x, x * 2)  # noqa: T201, as programs do
    print([x, x + 1])  # noqa: T201, as above
    print("{} {}".format(x.sum(), x))  # noqa: T201, UP032, two values in one call


def _printing_an_own_class(x: torch.Tensor) -> None:
    rows = x.as_subclass(Rows)
    print(rows, rows + 1, sep=", ")  # noqa: T201, as above


@pytest.mark.parametrize("prints", [_printing, _printing_an_own_class])
def test_values_that_one_call_prints_are_no_loop(
    audited: Run, prints: Callable[[torch.Tensor], None]
) -> None:
    audit = audited(lambda: prints(torch.ones(2, device="cuda")))

    assert (audit.steps, audit.mark) == (0, None)
    assert audit.totals.syncs


def test_a_loop_keeps_no_tensor_alive(audited: Run) -> None:
    alive = []

    def read() -> None:
        x = torch.ones(1, device="cuda")
        gc.disable()
        alive.append(sum(isinstance(t, torch.Tensor) for t in gc.get_objects()))
        x.item()

    def program() -> None:
        for _ in range(4):
            read()

    try:
        audited(program)
    finally:
        gc.enable()

    assert len(set(alive)) == 1


def test_the_line_of_torch_that_waits_is_named_and_separates_causes(
    audited: Run,
) -> None:
    x = torch.ones(1, device="cuda", requires_grad=True)
    x.grad = torch.ones(1, device="cuda")

    def program() -> None:
        torch.nn.utils.clip_grad_norm_([x], 1.0, error_if_nonfinite=True), x.item()

    audit = audited(program)

    named = {
        f.torch and f"{Path(f.torch.file).name} {f.torch.function}"
        for f in audit.findings
    }
    assert named == {"clip_grad.py _get_total_norm", None}
    assert {line_of(f) for f in audit.findings} == {program.__code__.co_firstlineno + 1}


@pytest.mark.parametrize(("every", "said"), [(1, True), (5, False)])
def test_a_collection_in_each_step_is_named_as_what_it_costs(
    every: int, *, said: bool
) -> None:
    with simulated_gpu(str(Path(__file__).parent)) as gpu:
        program = ProgramAudit(gpu)
        optimizer = sgd()
        for step in range(10):
            optimizer.step()
            if step % every == 0:
                gc.collect()
        notes = program.notes()
        program.close()

    assert bool(notes) == said
    assert all("calls gc.collect() 10 times" in note for note in notes)
    assert gc.collect.__name__ == "collect"
    assert not hasattr(gc.collect, "__wrapped__")


def test_what_collects_to_measure_is_no_call_of_the_program() -> None:
    with simulated_gpu(str(Path(__file__).parent)) as gpu:
        program = ProgramAudit(gpu)
        optimizer = sgd()
        with held_collector() as collector:
            for _ in range(10):
                optimizer.step()
                collector.collect()
        notes = list(program.notes())
        program.close()

    assert notes == []


# Replays of captured graphs.


def waits_of(
    program: Callable[[], object], run: Run
) -> tuple[StepMark | None, int, float]:
    """Return what marks the steps, their number, and the syncs in each."""
    audit = run(program)
    return audit.mark, audit.steps, sum(audit.syncs) / audit.steps


def captured(*work: Callable[[], object]) -> list[torch.cuda.CUDAGraph]:
    graphs = []
    for part in work:
        graphs.append(torch.cuda.CUDAGraph())
        with torch.cuda.graph(graphs[-1]):
            part()
    return graphs


def trained(optimizer: torch.optim.Optimizer) -> torch.Tensor:
    (weight,) = optimizer.param_groups[0]["params"]
    loss: torch.Tensor = weight.mul(2).sum()
    loss.backward()
    return loss


def test_a_replay_of_a_captured_step_is_a_step_and_the_warm_up_is_none(
    audited: Run,
) -> None:
    def program() -> None:
        optimizer, x = sgd(), torch.ones(1, device="cuda")

        def step() -> None:
            trained(optimizer)
            optimizer.step()

        for _ in range(3):
            step()
        (graph,) = captured(step)
        for _ in range(10):
            x.copy_(torch.ones(1))
            graph.replay()
            x.item()

    assert waits_of(program, audited) == (StepMark.REPLAY, 10, 2.0)


def test_an_optimizer_outside_of_the_graph_ends_the_steps_after_the_warm_up(
    audited: Run,
) -> None:
    def program() -> None:
        optimizer, x = sgd(), torch.ones(1, device="cuda")
        for _ in range(11):
            trained(optimizer)
            optimizer.step()
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin()
        trained(optimizer)
        graph.capture_end()
        for number in range(20):
            graph.replay()
            if number % 2:
                x.item()
                optimizer.step()

    assert waits_of(program, audited) == (StepMark.OPTIMIZER, 10, 1.0)


def test_replays_of_two_graphs_are_one_step_of_a_turn(audited: Run) -> None:
    def program() -> None:
        x = torch.ones(1, device="cuda")
        first, *layers = captured(*[lambda: x + 1] * 4)
        for _ in range(10):
            first.replay()
            x.item()
            for layer in layers:
                layer.replay()

    assert waits_of(program, audited) == (StepMark.REPLAY, 10, 1.0)


def test_graphs_for_several_sizes_are_a_step_each(audited: Run) -> None:
    def program() -> None:
        x = torch.ones(1, device="cuda")
        graphs = captured(*[lambda: x + 1] * 2)
        for size in (0, 1, 0, 0, 1, 1):
            x.copy_(torch.ones(1))
            graphs[size].replay()
            x.item()

    assert waits_of(program, audited) == (StepMark.REPLAY, 6, 2.0)


def test_a_graph_that_only_evaluates_ends_no_step_of_a_training(audited: Run) -> None:
    def program() -> None:
        optimizer, x = sgd(), torch.ones(1, device="cuda")
        (graph,) = captured(lambda: x + 1)
        for number in range(10):
            trained(optimizer)
            optimizer.step()
            x.item()
            if number == 5:
                graph.replay()
                graph.replay()

    assert waits_of(program, audited) == (StepMark.OPTIMIZER, 10, 1.0)


# What steps leave to the garbage collector.


class Node:
    other: object
    tensor: torch.Tensor


def leave_a_cycle() -> None:
    a, b = Node(), Node()
    a.other, b.other, a.tensor = b, a, torch.ones(2**18, device="cuda")


@pytest.fixture
def collector() -> Iterator[None]:
    enabled, threshold = gc.isenabled(), gc.get_threshold()
    yield
    assert gc.get_threshold() == threshold
    (gc.enable if enabled else gc.disable)()


def leave_cycles(optimizer: torch.optim.Optimizer, steps: int) -> None:
    for _ in range(steps):
        leave_a_cycle()
        optimizer.step()


@pytest.mark.usefixtures("collector")
@pytest.mark.parametrize("steps", [4, 5, 9])
def test_what_only_the_collector_frees_of_each_step_is_found(
    audited: Run, steps: int
) -> None:
    found = audited(lambda: leave_cycles(sgd(), steps)).garbage

    assert found is not None
    assert (found.nbytes, found.cycle) == (2**20, "Node.other -> Node.other")
    (held,) = found.held
    assert held.location is not None
    assert held.location.function == "leave_a_cycle"


@pytest.mark.usefixtures("collector")
def test_steps_before_the_first_of_an_optimizer_are_none_of_it(audited: Run) -> None:
    def program() -> None:
        batches = torch.utils.data.TensorDataset(torch.ones(8))
        for _ in DataLoader(batches):
            leave_a_cycle()
        optimizer = sgd()
        for _ in range(6):
            optimizer.step()

    found = audited(program).garbage

    assert found is not None
    assert found.nbytes == 0


@pytest.mark.slow
@pytest.mark.usefixtures("collector")
@pytest.mark.parametrize("switch", [gc.disable, gc.freeze, gc.collect])
def test_a_program_that_uses_the_collector_is_told_the_truth(
    audited: Run, switch: Callable[[], object]
) -> None:
    def program() -> None:
        optimizer = sgd()
        for _ in range(6):
            leave_a_cycle()
            switch()
            optimizer.step()

    found = audited(program).garbage

    assert found is not None
    assert found.nbytes == (2**20 if switch is gc.disable else 0)
    gc.unfreeze()


def test_a_gradient_that_was_expanded_is_added_into_a_tensor_of_its_own(
    audited: Run,
) -> None:
    def program() -> None:
        leaf, mask = (torch.ones(2, 3, 8, 8, device="cuda") for _ in range(2))
        used = leaf.requires_grad_() * 1
        ((mask * used).sum((2, 3)).mean() + used.sum((2, 3)).mean()).backward()
        grads.append(leaf.grad)

    grads: list[object] = []
    audited(program)

    assert grads != [None]
