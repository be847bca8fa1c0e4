"""Owners of live tensors: modules, optimizers, autograd."""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from .memory_picture import StorageRole


# Tensors that are alive with the autograd graph they came from.


def graphs_alive() -> tuple[int, int]:
    """Count the tensors of this process that keep a graph, and the nodes of all graphs.

    The caller collects garbage. No ``__torch_function__`` of a tensor subclass runs.
    """
    # Reading ``requires_grad`` of a subclass would call its ``__torch_function__``,
    # which may count, log or fail: an observer must not run the user's code.
    with torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001, nobody is to see this
        tensors = [each for each in gc.get_objects() if _keeps_graph(each)]
        return len(tensors), len(_nodes_behind(tensors))


def oldest_graphs(is_old: Callable[[Any], bool]) -> list[Any]:
    """Return what *is_old* and in no longer graph of one, or else what has the oldest node.

    The graph of one step may have more nodes than what several steps added to another.
    """
    with torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001, nobody is to see this
        tensors = [each for each in gc.get_objects() if _keeps_graph(each)]
        graphs = [(t, _nodes_behind([t])) for t in tensors if is_old(t)]
        graphs.sort(key=lambda graph: -len(graph[1]))
        inner = {id(n) for t, nodes in graphs for n in nodes if n is not t.grad_fn}
        old = [tensor for tensor, _ in graphs if id(tensor.grad_fn) not in inner]
        return old or sorted(tensors, key=lambda t: _age(_nodes_behind([t])))[:1]


def _age(nodes: Collection[Any]) -> tuple[int, int]:
    return min(map(number_of, nodes)), -len(nodes)


def _nodes_behind(tensors: Iterable[Any]) -> Collection[Any]:
    """Return them: a sum over all steps is one tensor, and its graph has them all."""
    waiting = [tensor.grad_fn for tensor in tensors]
    seen: dict[int, Any] = {}
    while waiting:
        node = waiting.pop()
        if node is not None and id(node) not in seen:
            # Kept until the end: another node would get the number of one that is gone.
            seen[id(node)] = node
            waiting.extend(follower for follower, _ in node.next_functions)
    return seen.values()


def keeps_graph(tensor: torch.Tensor) -> bool:
    """Whether *tensor* came from others that need gradients."""
    return tensor.requires_grad and not tensor.is_leaf


def has_node(args: Sequence[object]) -> bool:
    """Whether an operation on *args* gets a node, where gradients are enabled at all."""
    for arg in args:  # noqa: SIM110, `any` of a generator takes three times as long
        if isinstance(arg, torch.Tensor) and arg.requires_grad:
            return True
    return False


def _keeps_graph(candidate: object) -> bool:
    # Not isinstance: it reads ``__class__``, which runs code in lazy proxies. The
    # collector lists every object of the process, so some of them are proxies.
    return issubclass(type(candidate), torch.Tensor) and keeps_graph(candidate)


# Private, because torch has no public way to ask which node runs. It returns ``None``
# outside of a backward pass.
current_node = torch._C._current_autograd_node  # noqa: SLF001

MADE_AS: Final = "pytest_gpuperf: made as"
"""Where a node keeps the number it was made with, if it has another one since."""


def number_of(node: Any) -> int:
    """Return the number that *node* was made with."""
    return int(node.metadata.get(MADE_AS, node._sequence_nr()))  # noqa: SLF001, its only name


# The memory behind tensors: views and aliases share one storage.

HOST_DEVICE: Final = torch.device("cpu")


def tensors_in(values: Iterable[Any]) -> Iterator[Any]:
    """Tensors among *values* and in their lists and tuples, as operations nest them."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_in(value)


def storages_of(tensor: Any, device: Any = HOST_DEVICE) -> tuple[Any, ...]:
    """Storages on *device* behind *tensor*; none for layouts that hide theirs.

    A wrapper has those of what it wraps: its own one is empty, and that of a DTensor
    has the size of all ranks' parts together. A tensor that a compiler only reasons with
    has none: it takes no memory, and its size may be a symbol.
    """
    if tensor.device != device:
        return ()
    if is_traceable_wrapper_subclass(tensor):
        return tuple(part for t in _wrapped(tensor) for part in storages_of(t, device))
    if tensor.layout is torch.strided:
        storage = tensor.untyped_storage()
        return (storage,) if storage.device == device else ()
    if tensor.layout is torch.sparse_coo:
        # Private, as the public ``indices()`` demands a coalesced tensor, and
        # coalescing would allocate what is being counted.
        parts = tensor._indices(), tensor._values()  # noqa: SLF001
        return tuple(part.untyped_storage() for part in parts)
    return ()


def _wrapped(tensor: Any) -> Iterator[Any]:
    """Yield the tensors that *tensor* wraps; an attribute it names may be ``None``."""
    names, _ = tensor.__tensor_flatten__()
    found = (getattr(tensor, name) for name in names)
    return (value for value in found if isinstance(value, torch.Tensor))


def key_of(storage: Any) -> int:
    """Address of the storage's implementation, unique while it lives."""
    # ``data_ptr()`` is the same for all empty storages, and changes with ``resize_``.
    key: int = storage._cdata  # noqa: SLF001
    return key


ORDER: Final = tuple(StorageRole)


def owned_tensors() -> Iterator[tuple[Any, StorageRole]]:
    """Yield tensors and the roles that their owners give them; one may come twice.

    Call it with ``__torch_function__`` disabled: subclasses must not see it.
    """
    # Owners are found through the collector, not through the user's objects: a step is
    # a closure, and the model in it has no name that is known here.
    for candidate in gc.get_objects():
        # Not isinstance: it would run ``__class__`` of proxies.
        kind = type(candidate)
        if issubclass(kind, torch.Tensor):
            yield from _of_autograd(candidate, kind)
        elif issubclass(kind, torch.optim.Optimizer):
            for state in candidate.state.values():
                yield from (
                    (tensor, StorageRole.OPTIMIZER_STATE) for tensor in _flat(state)
                )


def roles_of(claims: Iterable[tuple[int, StorageRole]]) -> Mapping[int, StorageRole]:
    """Give each storage, by its number, the first of its roles in ``StorageRole``."""
    roles: dict[int, StorageRole] = {}
    for number, role in claims:
        roles[number] = min(roles.get(number, role), role, key=ORDER.index)
    return roles


def _of_autograd(tensor: Any, kind: type[Any]) -> Iterator[tuple[Any, StorageRole]]:
    # A subclass of Tensor that was made a Parameter keeps its class; torch marks it
    # with this attribute instead.
    if issubclass(kind, torch.nn.Parameter) or tensor.__dict__.get("_is_param"):
        yield tensor, StorageRole.PARAMETERS
    if tensor.is_leaf and tensor.grad is not None:
        yield tensor.grad, StorageRole.GRADIENTS


def _flat(state: Any) -> Iterator[Any]:
    if isinstance(state, Mapping):
        state = list(state.values())
    if isinstance(state, (list, tuple)):
        for value in state:
            yield from _flat(value)
    elif isinstance(state, torch.Tensor):
        yield state
