"""Records what steps train, in few numbers, for a judge who may be in another process."""

from __future__ import annotations

import ast
import gc
import linecache
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import cache, wraps
from itertools import chain, islice
from math import hypot
from typing import Any, Final, TypeVar, cast

from ..judge.training import EQUAL_WITHIN
from ..measure.step import Subject
from ..model.ab import Sketch, TrainedStep, TrainedTensor, TrainingRecord
from .isolation import Unseen, tensors_of


TRAINED_STEPS: Final = 3
"""The second shows what the first did to the parameters, the third what remained."""


def numbers_of(tensor: Any) -> Any:
    """Copy *tensor* to the host as a dense vector of real numbers, of 4 or 8 bytes."""
    import torch

    copied = tensor.detach().to("cpu", copy=True)
    if copied.layout is not torch.strided:
        copied = copied.to_dense()
    if copied.is_complex():
        copied = torch.view_as_real(copied)
    wide = copied.dtype is torch.float64
    return copied.reshape(-1) if wide else copied.reshape(-1).float()


def flat(value: object) -> Any:
    """Return the numbers in a step's result as one vector; ``None`` without any."""
    import torch

    vectors = [
        numbers_of(item)
        if isinstance(item, torch.Tensor)
        else torch.tensor([float(item)], dtype=torch.float64)
        for item in numbers_in(value)
    ]
    return torch.cat([vector.double() for vector in vectors]) if vectors else None


def numbers_in(value: object) -> Iterator[Any]:
    """Yield the tensors and numbers in a step's result, in order."""
    import torch

    if isinstance(value, (torch.Tensor, float, int)):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from numbers_in(item)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from numbers_in(item)


SUMS: Final = 16
COLUMNS: Final = 4096
ROWS: Final = 32
"""Rows of a block: what is copied at a time is 1 MiB, which a cache holds."""


def sketch_of(tensor: Any) -> Sketch:
    """Return the sketch of *tensor*, wherever it is and whatever its type is."""
    return of_numbers(numbers_of(tensor), tuple(tensor.shape))


def of_numbers(vector: Any, shape: tuple[int, ...] | None = None) -> Sketch:
    """Return the sketch of a dense *vector* of real numbers on the host."""
    import torch

    shape = (len(vector),) if shape is None else shape
    norm = float(torch.linalg.vector_norm(vector, dtype=torch.float64))
    if not torch.isfinite(torch.tensor(norm)):
        return Sketch(shape=shape, finite=False)
    return Sketch(shape=shape, norm=norm, sums=tuple(_sums(vector).tolist()))


def _sums(vector: Any) -> Any:
    """Sum up; few numbers are kept as they are, so that nothing of them is lost."""
    import torch

    if len(vector) <= SUMS:
        return vector.double()
    columns = _signs(0, COLUMNS).T
    total = torch.zeros(SUMS, dtype=torch.float64, device="cpu")
    for number, block in enumerate(vector.split(ROWS * COLUMNS), start=1):
        filled = torch.nn.functional.pad(block.double(), (0, -len(block) % COLUMNS))
        rows = filled.reshape(-1, COLUMNS) @ columns
        total += (rows * _signs(number, ROWS)[:, : len(rows)].T).sum(dim=0)
    return total


@cache
def _signs(seed: int, length: int) -> Any:
    """Draw what every process draws, from a generator of our own."""
    import torch

    generator = torch.Generator("cpu").manual_seed(seed)
    size = {"size": (SUMS, length), "device": "cpu", "dtype": torch.float64}
    return torch.randint(0, 2, generator=generator, **size) * 2 - 1


ROUNDINGS: Final = 2
"""How often an optimizer rounds a number in a step, in units of the last place."""

HOW_NOT_HOW_FAR: Final = frozenset(
    {"params", "foreach", "fused", "capturable", "differentiable", "initial_lr"}
)
"""Options of an optimizer that change no number that it makes."""


def record_steps(
    subject: Subject, *, simulated: bool = False
) -> tuple[TrainingRecord, object]:
    """Run the first steps of *subject*: return what they train, and the last result.

    A *simulated* GPU computes on the CPU, which multiplies with all the bits that numbers
    have.
    """
    recorder = Recorder(simulated=simulated)
    result: object = None
    for _ in range(TRAINED_STEPS):
        result = recorder.run(subject)
    return recorder.record(), result


@contextmanager
def recording_program(
    unseen: Unseen | None = None,
) -> Iterator[Callable[[], TrainingRecord]]:
    """Record the first steps of what runs inside on a simulated GPU, and end it after them.

    A step ends with that of the optimizer that was the first to make one. With *unseen*,
    inside of which nothing is counted, the program runs on, and later steps are recorded as
    the values that they leave.
    """
    from torch.optim.optimizer import register_optimizer_step_post_hook

    recorder = Recorder(simulated=True, unseen=unseen or nullcontext)
    first: list[object] = []

    def stepped(optimizer: Any, *_: object) -> None:
        first[:] = first or [optimizer]
        if optimizer is not first[0]:
            return
        if recorder.steps < TRAINED_STEPS:
            end()
        elif unseen is not None:
            recorder.end_later_step(optimizer, updates)
            updates.clear()
        if recorder.steps == TRAINED_STEPS and unseen is None:
            raise SystemExit(0)

    def end() -> None:
        recorder.end_step(None, updates)
        updates.clear()

    def found() -> TrainingRecord:
        if not recorder.steps:
            end()
        return recorder.record()

    with recorder.watching(), updates_in({}, recorder.kept) as updates:
        hook = register_optimizer_step_post_hook(recorder.hidden(stepped))
        try:
            yield found
        finally:
            hook.remove()


F = TypeVar("F", bound=Callable[..., Any])

SIXTEEN: Final = 16
"""Steps of which each has its values recorded, and then each of so many. All have losses."""

MOST_LATER_NUMBERS: Final = 10**8
"""Values that are recorded of later steps."""


class Recorder:
    """Keeps steps as they end, in few numbers."""

    def __init__(
        self, *, simulated: bool = False, unseen: Unseen = nullcontext
    ) -> None:
        self._simulated = simulated
        self._unseen = unseen
        self._modules: list[weakref.ref[Any]] = []
        self._later_numbers = 0
        self._steps: list[TrainedStep] = []
        self._losses: list[Sketch] = []
        self._moving: list[_Moving] = []
        self._dtypes: set[str] = set()
        self._names: dict[int, str] = {}

    def record(self) -> TrainingRecord:
        """Return what was recorded."""
        coarse = [name for name in reversed(EQUAL_WITHIN) if name in self._dtypes]
        eighths = [name for name in self._dtypes if name.startswith("float8")]
        precision = [*eighths, *coarse, "float32"][0]
        return TrainingRecord(steps=tuple(self._steps), precision=precision)

    @property
    def steps(self) -> int:
        """How many steps have ended."""
        return len(self._steps)

    def run(self, subject: Subject) -> object:
        """Run one step of *subject*, keep what it trains, and return its result.

        These are the parameters with a gradient of each optimizer of torch.optim that
        makes a step. Where none does, they are the tensors with a gradient that the step
        reaches.
        """
        reached = tensors_of(subject.step)
        names = {id(tensor): name for name, tensor in reached.items()}
        leaves = {n: t for n, t in reached.items() if t.requires_grad and t.is_leaf}
        with self._unseen():
            values = {name: numbers_of(tensor) for name, tensor in leaves.items()}
        with self.watching(), updates_in(names, self.hidden(self.keep)) as updates:
            result = subject.run_once()
        by_hand = (
            [] if any(updates) else [n for n in leaves if leaves[n].grad is not None]
        )
        with self._unseen():
            kept = [self.keep(name, leaves[name], values[name]) for name in by_hand]
            self.end_step(result, updates, kept)
        return result

    def end_step(
        self,
        result: object,
        updates: Sequence[Sequence[_Moving]],
        by_hand: Sequence[_Moving] = (),
    ) -> None:
        """Keep the step that has ended: what it returned, updated, and trained by hand."""
        returned = flat(result)
        trained = [*chain(*updates), *by_hand]
        self._steps.append(
            TrainedStep(
                returned=None if returned is None else of_numbers(returned),
                losses=tuple(self._losses),
                updates=len(updates),
                tensors=tuple(each.ended(first=not self._steps) for each in trained),
            )
        )
        self._losses.clear()

    def end_later_step(self, optimizer: Any, updates: Sequence[object]) -> None:
        """Keep the losses of a step, and the values that it has left, while these are few."""
        import torch

        number = self.steps + 1
        values: list[TrainedTensor] = []
        is_looked_at = number <= SIXTEEN or number % SIXTEEN == 0
        if is_looked_at and self._later_numbers < MOST_LATER_NUMBERS:
            values = [
                _left(name, value)
                for name, value in self._state(optimizer)
                if isinstance(value, (torch.Tensor, int, float))
            ]
        self._later_numbers += sum(each.gradient.size for each in values)
        losses = [number for loss in self._losses for number in loss.sums]
        returned = Sketch(shape=(len(losses),), norm=hypot(*losses), sums=tuple(losses))
        self._steps.append(
            TrainedStep(returned=returned, updates=len(updates), tensors=tuple(values))
        )
        self._losses.clear()

    def _state(self, optimizer: Any) -> Iterator[tuple[str, Any]]:
        """Yield parameters, buffers and what the optimizer keeps, with their names."""
        for group in optimizer.param_groups:
            for tensor in group["params"]:
                name = self._named("parameter", tensor)
                yield name, tensor
                kept = optimizer.state.get(tensor, {})
                yield from ((f"{key} of {name}", kept[key]) for key in kept)
        self._modules = self._modules or [*map(weakref.ref, _modules())]
        for module in filter(None, (find() for find in self._modules)):
            yield from vars(module)["_buffers"].items()

    def hidden(self, function: F) -> F:
        """Return *function* of which the simulated GPU counts nothing."""

        @wraps(function)
        def unseen(*arguments: Any, **options: Any) -> Any:
            with self._unseen():
                return function(*arguments, **options)

        return cast("F", unseen)

    def kept(self, *arguments: Any, **options: Any) -> _Moving | None:
        """Keep a tensor of one of the first steps, unseen."""
        if self.steps >= TRAINED_STEPS:
            return None
        return self.hidden(self.keep)(*arguments, **options)

    def keep(
        self, name: str, tensor: Any, value: Any = None, *, scale: Any = None
    ) -> _Moving:
        """Keep *tensor* before it moves: its *value*, if it had another one, and its
        gradient, which an optimizer divides by *scale*.
        """
        self._see(tensor)
        moving = _Moving(self._named(name, tensor), tensor, value, scale)
        self._moving.append(moving)
        return moving

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch optimizers and backwards inside of the context."""
        from torch.optim.optimizer import register_optimizer_step_post_hook

        moved = self.hidden(self._moved)
        with ExitStack() as undo:
            undo.callback(register_optimizer_step_post_hook(moved).remove)
            undo.enter_context(_each_backward(self.hidden(self._goes_back)))
            yield

    def _moved(self, optimizer: Any, *_: object) -> None:
        options = {
            id(tensor): _written(group)
            for group in optimizer.param_groups
            for tensor in group["params"]
        }
        for moving in self._moving:
            moving.move(options.get(id(moving.tensor), {}))
        self._moving.clear()

    def _goes_back(self, roots: Any) -> None:
        import torch

        roots = [roots] if isinstance(roots, torch.Tensor) else list(roots)
        for root in roots:
            self._see(root)
            self._losses.append(sketch_of(root))
        if self.steps < TRAINED_STEPS:
            self._dtypes.update(_computed_in(roots, simulated=self._simulated))

    def _see(self, tensor: Any) -> None:
        self._dtypes.add(str(tensor.dtype).removeprefix("torch."))

    def _named(self, name: str, tensor: Any) -> str:
        """Return the name in a module: by another one the sides may not be matched."""
        if id(tensor) not in self._names:
            self._names.update(_names_in_modules())
        return self._names.setdefault(id(tensor), name)


class _Moving:
    """A tensor in one update, until that has ended."""

    def __init__(self, name: str, tensor: Any, value: Any, scale: Any) -> None:
        self.tensor = tensor
        self._name = name
        self._gradient = numbers_of(tensor.grad)
        if scale is not None:
            self._gradient /= float(scale)
        self._start = numbers_of(tensor) if value is None else value
        self._movement: Sketch | None = None
        self._rounding = 0.0
        self._options: Mapping[str, str] = {}

    def move(self, options: Mapping[str, str]) -> None:
        """Note how far it has moved; a number without a gradient moves by rounding."""
        import torch

        moved = numbers_of(self.tensor) - self._start
        weight = self._gradient.abs()
        self._movement = of_numbers(moved * weight)
        unit = torch.finfo(self.tensor.dtype).eps
        self._rounding = ROUNDINGS * unit * of_numbers(self._start * weight).norm
        self._options = options

    def ended(self, *, first: bool) -> TrainedTensor:
        """Return it in few numbers."""
        shape = tuple(self.tensor.shape)
        return TrainedTensor(
            name=self._name,
            value=of_numbers(self._start, shape) if first else None,
            gradient=of_numbers(self._gradient, shape),
            movement=self._movement,
            rounding=self._rounding,
            options=self._options,
        )


@contextmanager
def updates_in(
    names: Mapping[int, str], keep: Callable[..., Any]
) -> Iterator[list[list[Any]]]:
    """Record what each optimizer sees that makes a step inside the context."""
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    updates: list[list[Any]] = []

    def kept(optimizer: Any, *_: object) -> None:
        groups = optimizer.param_groups
        tensors = [tensor for group in groups for tensor in group["params"]]
        # A fused optimizer under a GradScaler divides by the scale itself, so the
        # gradients are still scaled here.
        scale = getattr(optimizer, "grad_scale", None)
        updates.append(
            [
                keep(names.get(id(tensor), f"parameter {number}"), tensor, scale=scale)
                for number, tensor in enumerate(tensors, start=1)
                if tensor.grad is not None
            ]
        )

    handle = register_optimizer_step_pre_hook(kept)
    try:
        yield updates
    finally:
        handle.remove()


def _written(group: Mapping[str, Any]) -> dict[str, str]:
    """Write the options of a group of parameters: numbers to six digits."""
    return {
        name: _text(value)
        for name, value in group.items()
        if name not in HOW_NOT_HOW_FAR and _text(value)
    }


def _text(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return ", ".join(map(_text, value))
    if isinstance(value, (bool, str)) or value is None:
        return str(value)
    try:
        return f"{float(value):.6g}"
    except (TypeError, ValueError, RuntimeError):
        return ""


def _names_in_modules() -> dict[int, str]:
    """Return the longest name of each parameter of the modules there are."""

    names: dict[int, str] = {}
    for module in _modules():
        for name, tensor in module.named_parameters():
            known = name.replace("_orig_mod.", "")
            names[id(tensor)] = max(names.get(id(tensor), ""), known, key=len)
    return names


def _modules() -> Iterator[Any]:
    """Yield the modules there are."""
    import torch

    for thing in gc.get_objects():
        if issubclass(type(thing), torch.nn.Module):
            yield thing


def _left(name: str, value: Any) -> TrainedTensor:
    """Return the *value* that a step has left, as that at which a tensor begins."""
    import torch

    tensor = torch.as_tensor(value)
    found = sketch_of(tensor)
    return TrainedTensor(name=name, value=found, gradient=Sketch(shape=found.shape))


@contextmanager
def _each_backward(go_back: Any) -> Iterator[None]:
    """Call *go_back* with the roots of each backward, before it frees its graph."""
    import torch

    autograd: Any = torch.autograd
    backward = autograd.backward

    @wraps(backward)
    def noted(tensors: Any, *arguments: Any, **options: Any) -> None:
        __tracebackhide__ = True
        go_back(tensors)
        backward(tensors, *arguments, **options)

    autograd.backward = noted
    try:
        yield
    finally:
        autograd.backward = backward


def _computed_in(roots: list[Any], *, simulated: bool) -> set[str]:
    """Return the types of numbers that the graph behind *roots* has."""
    rounds = {n for n in ("cudnn", "cuda") if not simulated and _rounds(roots[0], n)}
    waiting = [root.grad_fn for root in roots if root.grad_fn is not None]
    seen = set(waiting)
    found: set[str] = set()
    for node in waiting:
        found.update(str(m.dtype)[6:] for m in getattr(node, "_input_metadata", ()))
        if "Convolution" in node.name() and "cudnn" in rounds:
            found.add("tensorfloat32")
        new = {n for n, _ in node.next_functions if n is not None} - seen
        seen |= new
        waiting.extend(new)
    return found | ({"tensorfloat32"} if "cuda" in rounds else set())


def _rounds(root: Any, library: str) -> bool:
    """Whether *library* may multiply with 10 bits where numbers have 23."""
    import torch

    backends: Any = torch.backends
    if root.device.type != "cuda":
        return False
    where = backends.cuda.matmul if library == "cuda" else backends.cudnn
    try:
        return bool(where.allow_tf32)
    except RuntimeError:  # it was set by its newer name
        return str(where.fp32_precision) == "tf32"


# What a program's loops leave in its variables: the proof of one that neither trains
# nor prints.

MOST_NUMBERS: Final = 10_000
"""Tensors and numbers of a variable: of more, only the first are compared."""


def results_of(program: Mapping[str, Any]) -> dict[str, Sketch]:
    """Sketch the numbers of each variable that a loop of the module *program* itself writes.

    What it only reads would be the same whatever the loop computes.
    """
    source = "".join(linecache.getlines(program.get("__file__") or ""))
    results: dict[str, Sketch] = {}
    for name in sorted(_written_by_loops(source) & program.keys()):
        # Some kinds of tensors have no plain numbers, and so has a list that holds itself.
        with suppress(RuntimeError, TypeError, ValueError, OverflowError):
            vector = flat([*islice(numbers_in(program[name]), MOST_NUMBERS)])
            if vector is not None:
                results[name] = of_numbers(vector)
    return results


def _written_by_loops(source: str) -> set[str]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):  # a program without its source
        return set()
    loops = [n for n in _own_nodes(tree) if isinstance(n, ast.For | ast.While)]
    bodies = (_own_nodes(part) for loop in loops for part in loop.body)
    return {name for body in bodies for node in body for name in _written_by(node)}


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield *node* and all nodes below it, but for functions and classes."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node
        for child in ast.iter_child_nodes(node):
            yield from _own_nodes(child)


def _written_by(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=name, ctx=ast.Store()):
            yield name
        case (
            ast.Subscript(value=inside, ctx=ast.Store())
            | ast.Expr(value=ast.Call(func=ast.Attribute(value=inside)))
        ):
            # As `losses.append(loss)` and `result[0].fill_(5)`.
            yield from (n.id for n in ast.walk(inside) if isinstance(n, ast.Name))
