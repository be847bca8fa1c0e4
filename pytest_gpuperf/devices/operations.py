"""Watches the operations of a step, and counts them by module, line and name."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from types import FrameType
from typing import Any, Final

import torch
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.utils._python_dispatch import TorchDispatchMode

from ..model.finding import CALLED, LineWork, Location
from .base import Step
from .memory_owners import current_node, number_of, tensors_in
from .own_code import OWN
from .source_lines import (
    USERS,
    SourceOwner,
    is_backward,
    location_of,
    outwards,
    room_of,
)
from .step_thread import STEPS


@contextmanager
def eager() -> Iterator[None]:
    """Run compiled functions as eager ones for the time a dispatch mode is active.

    One call of a compiled function under a dispatch mode makes it eager for ever
    after (pytorch#190286); under this stance it is left alone. If dynamo was never
    loaded, nothing is compiled and dynamo stays unloaded.
    """
    # The import of dynamo takes seconds, so ``sys.modules`` is asked instead.
    if "torch._dynamo" not in sys.modules:
        yield
        return
    import torch

    with torch.compiler.set_stance("force_eager"):
        yield


def redispatch(
    mode: Any, op: Any, args: Sequence[object], kwargs: Mapping[str, object]
) -> Any:
    """Run *op* below *mode*.

    Inference tensors have no autograd keys, so composite operations reach a mode in one
    piece. They are decomposed under it, or their parts would go unseen.
    """
    if not _is_composite(op):
        return op(*args, **kwargs)
    # torch takes the mode off while its ``__torch_dispatch__`` runs: it is entered
    # again for the parts.
    with mode:
        return op.decompose(*args, **kwargs)


@cache
def _is_composite(op: Any) -> bool:
    import torch

    return bool(
        torch._C._dispatch_has_kernel_for_dispatch_key(  # noqa: SLF001, decompose() asks the same
            op.name(), "CompositeImplicitAutograd"
        )
    )


# A dispatch mode that sees each operation of a program and changes none.


class Watching(TorchDispatchMode):  # type: ignore[misc]  # torch is untyped here
    """Calls ``saw`` after each operation."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keep torch from loading dynamo, for seconds, to keep this mode out of it."""
        return False

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = redispatch(self, func, args, kwargs or {})
        self.saw(func, args, result)
        return result

    def saw(self, op: Any, args: Sequence[Any], result: Any) -> None:
        """Take notice of *op*, which got *args* and returned *result*."""


Place = tuple[str, tuple[Location, ...], Location | None]
"""A module, the user's own lines at work, innermost first, and that of a package."""

WRITES_TO_VIEW: Final = "torch::autograd::CopySlices"

NO_WORK: Final = (
    *(f"aten::{name}" for name in ("_local_scalar_dense", "detach", "is_same_size")),
    *(f"aten::{name}" for name in ("empty", "new_empty", "resize_", "set_")),
    "profiler::",
)
"""How the names of operations begin that compute nothing."""

MOST_FORWARDS: Final = 100_000
"""Operations of a forward: the line of each is remembered until its backward."""

IN_BACKWARD: Final = " (backward)"
"""Behind the name of an operation that a backward runs."""


class OperationLog:
    """What was run so far by whoever calls ``saw``, with the lines of code below *root*."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._counts: dict[tuple[Place, str], list[int]] = {}
        self._forward: OrderedDict[int, Place] = OrderedDict()
        self._modules: list[str] = []
        self._names: dict[int, str] = {}

    @contextmanager
    def following_modules(self) -> Iterator[None]:
        """Know which module runs; outside of this, no module pays for it."""
        enter = register_module_forward_pre_hook(self._enter)
        leave = register_module_forward_hook(self._leave, always_call=True)
        try:
            yield
        finally:
            enter.remove()
            leave.remove()

    def saw(self, op: str, result: object, *, computes: bool = True) -> None:
        """Count *op*, which the code that runs now called and which gave *result*.

        A view that *computes* nothing is not counted; its backward may compute.
        """
        node = current_node()
        # The number by which torch's own profiler links forward and backward. What gets no
        # node meets that of the node before it.
        newest = torch._C._autograd._get_sequence_nr() - 1  # noqa: SLF001
        if not computes and (node is not None or newest in self._forward):
            return
        place = self._place(node)
        if node is None:
            self._forward.setdefault(newest, place)
            # Numbers of forwards that never get a backward would pile up in a program.
            if len(self._forward) > MOST_FORWARDS:
                self._forward.popitem(last=False)
        if not computes:
            return
        name = op if node is None else f"{op}{IN_BACKWARD}"
        tally = self._counts.setdefault((place, name), [0, 0])
        tally[0] += 1
        tally[1] += sum(t.numel() * t.element_size() for t in tensors_in((result,)))

    def lines(self) -> Iterator[LineWork]:
        """Yield what was seen, an operation at a time, and what each line called."""
        for ((module, own, inner), op), (count, nbytes) in self._counts.items():
            first = own[0] if own else inner
            tally = count, nbytes
            yield LineWork(
                module=module,
                location=first,
                innermost=inner if own else None,
                ops={op: tally},
            )
            for caller in own[1:]:
                yield LineWork(module=CALLED, location=caller, ops={CALLED: tally})

    def _place(self, node: Any) -> Place:
        users, outer = self._users(node)
        # A write to a view has a node around that of the write, numbered next.
        of_view = node is not None and node.name() == WRITES_TO_VIEW
        number = -1 if node is None else number_of(node) - of_view
        forward = self._forward.get(number)
        if node is not None and not users:
            return forward or (f"backward of {node.name()}", self._own(outer)[:1], None)
        own = self._own(users)
        inner = location_of(users[0]) if users else None
        module = self._modules[-1] if self._modules else ""
        # What a backward runs again was called where its forward was.
        called = (*own, *(forward[1] if forward else ()))
        return module, tuple(dict.fromkeys(called)), None if inner in own[:1] else inner

    def _own(self, frames: Sequence[FrameType]) -> tuple[Location, ...]:
        own = (f for f in frames if self._room(f) is SourceOwner.PROJECT)
        return tuple(map(location_of, own))

    def _users(self, node: Any) -> tuple[list[FrameType], list[FrameType]]:
        """Return the frames outside of torch, from the start of the step on.

        Those that began the backward in which *node* runs come apart.
        """
        users: list[FrameType] = []
        outer: list[FrameType] = []
        found = users
        for frame in outwards(sys._getframe(2)):  # noqa: SLF001, inspect.stack() reads sources
            if self._room(frame) in USERS:
                found.append(frame)
            elif found and frame.f_code.co_filename.startswith(OWN):
                break
            elif node is not None and is_backward(frame):
                found = outer
        return users, outer

    def _room(self, frame: FrameType) -> SourceOwner:
        return room_of(frame.f_code.co_filename, self._root)

    def _enter(self, module: torch.nn.Module, _: object) -> None:
        if id(module) not in self._names:
            for path, inside in module.named_modules(prefix=type(module).__name__):
                # Wrappers of compilers, checkpoints and shards are no part of the name.
                parts = (part for part in path.split(".") if part[:1] != "_")
                self._names.setdefault(id(inside), ".".join(parts))
        self._modules.append(self._names[id(module)])

    def _leave(self, *_: object) -> None:
        if self._modules:
            self._modules.pop()


# One step of a device that runs operations itself.


def operations_of_step(
    step: Step, arguments: Sequence[object], root: str
) -> tuple[LineWork, ...]:
    """Run *step* once and count; a compiled step is counted as an eager one."""
    log = OperationLog(root)
    with eager(), log.following_modules(), STEPS.inside(_Counting(log)):
        step(*arguments)
    return tuple(log.lines())


class _Counting(Watching):
    def __init__(self, log: OperationLog) -> None:
        super().__init__()
        self._log = log

    def saw(self, op: Any, args: Sequence[Any], result: Any) -> None:  # noqa: ARG002
        name = op.name().partition(".")[0]
        self._log.saw(name, result, computes=_computes(op, name))


@cache
def _computes(op: Any, name: str) -> bool:
    """Whether *op* is neither a view nor only takes memory."""
    returned = getattr(getattr(op, "_schema", None), "returns", ())
    is_view = any(
        r.alias_info is not None and not r.alias_info.is_write for r in returned
    )
    return not is_view and not name.startswith(NO_WORK)
