"""The simulated GPU as a context: entered once per process, recorded by each who asks."""

from __future__ import annotations

import copy
import functools
import importlib
import math
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

import torch
from torch._C import DispatchKey
from torch._ops import HigherOrderOperator
from torch.utils import _device
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

from ..audit_record import StepAudit
from ..operations import eager
from ..source_lines import torch_path
from .attention import attention, attention_patches, fused_kernels
from .autocast import autocast_kernels, autocast_patches, clear_cache
from .backward_rules import numbering_patches
from .cuda_api import query_patches
from .device_names import LAZY, device_patches
from .errors import traceback_patches, without_own_frames
from .factories import (
    FACTORY_KERNELS,
    FACTORY_NAMES,
    FROM_HOST_NAMES,
    LIKE,
    creation_patches,
    generator_patches,
)
from .memory import SIMULATED_MEMORY
from .modules import (
    COMPOSED_FOR_CUDA,
    late_dynamo,
    process_group_patches,
    skipped_kernels,
    uninitialized_patches,
)
from .patches import Patch, patched
from .recorder import WATCH, AuditRecorder
from .recurrent import DROPOUT_STATES, RECURRENT_LAYERS
from .recurrent_steps import FLATTENING, cudnn_modes, flattening_patches
from .tensor import GpuTensor, dispatch_patches, exchange_patches, is_gpu_tensor
from .tensor_api import (
    UNPATCHED_NAMES as MATHEMATICS,
    loading_patches,
    mathematics_patches,
    method_patches,
)
from .tensor_values import inside_values


# Code that the simulated GPU runs in a simpler form, which is reported.


def unchecked_patches() -> Iterator[Patch]:
    """Compilers, scripts and replicas."""
    yield Patch(torch, "compile", compile_)
    for name in ("script", "trace", "trace_module"):
        script = _unchecked(
            getattr(torch.jit, name), f"torch.jit.{name}", "what a script fuses"
        )
        yield Patch(torch.jit, name, script)
    traced = ("torch.func.linearize", "the memory that the traced graph keeps")
    yield Patch(torch.func, "linearize", _unchecked(torch.func.linearize, *traced))
    for name in {"export", "draft_export"} & vars(torch.export).keys():
        yield Patch(torch.export, name, _of_host(getattr(torch.export, name)))
    program = torch.export.ExportedProgram
    decompose = _with_state_of_host(program.run_decompositions)
    yield Patch(program, "run_decompositions", decompose)
    yield Patch(torch.nn.DataParallel, "forward", _on_one_device)


def higher_order_patches() -> Iterator[Patch]:
    """Operators that take functions, such as ``torch.cond`` and ``flex_attention``."""
    dispatch = HigherOrderOperator.dispatch
    yield Patch(HigherOrderOperator, "dispatch", _by_operations(dispatch))


READ_IN_BACKWARD: Final = {"cond": 1, "flex_attention": 2}
"""How often the backward reads again what decides, or copies the numbers that mask."""


def _read_in_backward(name: str, results: list[Any]) -> None:
    def wait(_: object) -> None:
        for _each in range(READ_IN_BACKWARD.get(name, 0)):
            WATCH.sync(
                name, "its backward reads or copies a number, as its forward does"
            )

    torch.autograd.graph.register_multi_grad_hook(results, wait, mode="any")


def _by_operations(dispatch: Callable[..., Any]) -> Callable[..., Any]:
    """Run an operator on simulated tensors as its own operations, in eager code."""

    def dispatched(operator: Any, key: Any, /, *args: Any, **options: Any) -> Any:
        __tracebackhide__ = True
        kernel = operator.py_kernels.get(DispatchKey.CompositeExplicitAutograd)
        if kernel is None or not any(map(is_gpu_tensor, tree_leaves((args, options)))):
            return dispatch(operator, key, *args, **options)
        found = kernel(*args, **options)
        trained = [
            leaf for leaf in tree_leaves(found) if getattr(leaf, "requires_grad", False)
        ]
        if trained:
            WATCH.take_as_eager(operator.name(), "its backward is its operations'")
            if is_gpu_tensor(args[0]):
                _read_in_backward(operator.name(), trained)
        return found

    return dispatched


UNFUSED: Final = frozenset({"eager", "aot_eager"})
"""Backends that run the operations as they are, with the memory of eager code."""


def compile_(model: Any = None, **options: Any) -> Any:
    """``torch.compile``: the function as it is, or a module around the module."""
    if model is None:
        return lambda later: compile_(later, **options)
    WATCH.take_as_eager("torch.compile", "judged as eager code")
    if options.get("backend", "inductor") not in UNFUSED:
        SIMULATED_MEMORY.is_compiled = True
    if not isinstance(model, torch.nn.Module):
        return model
    # At the first compiled module: the import of dynamo takes seconds.
    compiler = importlib.import_module("torch._dynamo.eval_frame")
    return compiler.OptimizedModule(model, _as_it_is)


def _as_it_is(call: Callable[..., Any]) -> Callable[..., Any]:
    return call


def _unchecked(
    compile_script: Callable[..., Any], name: str, unknown: str
) -> Callable[..., Any]:
    """Wrap a function called *name*, which stays; what is *unknown* of its result is said."""

    @functools.wraps(compile_script)
    def compiled(*args: Any, **options: Any) -> Any:
        # Scripts of torch itself, such as those of the optimizers, are known: only the
        # caller's file tells them apart.
        if torch_path(sys._getframe(1)) is None:  # noqa: SLF001
            WATCH.leave_unchecked(name, f"judged without {unknown}")
        # Names in a class are looked up in the frame of the caller: this one is between.
        if name == "torch.jit.script" and len(args) < 2:  # noqa: PLR2004
            options["_frames_up"] = options.get("_frames_up", 0) + 1
        return compile_script(*args, **options)

    return compiled


def _of_host(export: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap *export*: torch makes fake tensors of tensors on the CPU alone."""

    @functools.wraps(export)
    def exported(module: Any, args: Any, kwargs: Any = None, **options: Any) -> Any:
        WATCH.leave_unchecked("torch.export", "it is traced on the CPU")
        own = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        of_host = copy.deepcopy(module, {id(t): _host_twin(t) for t in own.values()})
        args, kwargs = tree_map(_host_twin, (args, kwargs))
        program = export(of_host, args, kwargs, **options)
        program.state_dict.update({n: own[n] for n in program.state_dict if n in own})
        for node in program.graph.nodes:
            if "device" in node.kwargs:
                node.update_kwarg("device", LAZY)
        program.graph_module.recompile()
        return program

    return exported


def _with_state_of_host(decompose: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap *decompose*, which traces an exported program once more."""

    @functools.wraps(decompose)
    def decomposed(program: Any, *args: Any, **options: Any) -> Any:
        own = dict(program.state_dict)
        program.state_dict.update({name: _host_twin(own[name]) for name in own})
        try:
            found = decompose(program, *args, **options)
        finally:
            program.state_dict.update(own)
        found.state_dict.update(own)
        return found

    return decomposed


def _host_twin(value: Any) -> Any:
    """Return *value*, or the tensor inside if it is a simulated one."""
    if not is_gpu_tensor(value):
        return value
    if isinstance(value, torch.nn.Parameter):
        return torch.nn.Parameter(value.inside, value.requires_grad)
    return value.inside.detach().requires_grad_(value.requires_grad)


def _on_one_device(parallel: Any, *args: Any, **options: Any) -> Any:
    WATCH.leave_unchecked(
        "torch.nn.DataParallel", "the copies to and from its replicas are not made"
    )
    move = functools.partial(torch.Tensor.to, device="cuda", non_blocking=True)
    args, options = tree_map_only(torch.Tensor, move, (args, options))
    return parallel.module(*args, **options)


class SimulatedGpu:
    """What is recorded inside one ``simulated_gpu()``, step by step."""

    def __init__(self, recorder: AuditRecorder) -> None:
        self._recorder = recorder

    def begin_step(self) -> None:
        """Forget what was recorded so far."""
        self._recorder.clear()

    @property
    def recorder(self) -> AuditRecorder:
        """What records."""
        return self._recorder

    def so_far(self) -> StepAudit:
        """Return what was recorded since the step began, which goes on."""
        return self._recorder.audit()

    def end_step(self, *, locate_work: bool = False) -> StepAudit:
        """Return what was recorded since the step began, and begin another.

        In that one, the lines that run its operations are recorded if asked for.
        """
        audit = self._recorder.audit()
        self._recorder.clear()
        self._recorder.locates_work = locate_work
        return audit


class _Pretence:
    """The patches of this process, and the number of contexts that need them."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._contexts = 0
        self._undo = ExitStack()

    def begin(self) -> None:
        """Patch, if nobody did."""
        with self._lock:
            if self._contexts == 0:
                with ExitStack() as undo:
                    undo.enter_context(_patched_torch())
                    # Only once all patches have succeeded: a failure undoes those
                    # before it.
                    self._undo = undo.pop_all()
            self._contexts += 1

    def end(self) -> None:
        """Undo the patches, if nobody needs them any more."""
        with self._lock:
            self._contexts -= 1
            if self._contexts == 0:
                self._undo.close()


_PRETENCE = _Pretence()


@contextmanager
def entered(
    root: str | None,
    *,
    values: bool,
) -> Iterator[SimulatedGpu]:
    """Simulated and record; see ``simulated_gpu``."""
    # With a separator at the end, so that ``src`` is no prefix of ``src2``.
    recorder = AuditRecorder(f"{Path(root or os.curdir).resolve()}{os.sep}")
    is_inner = bool(WATCH.recorders)
    _PRETENCE.begin()
    WATCH.recorders.append(recorder)
    try:
        # An inner context that asks for nothing leaves the choice of the outer one.
        with nullcontext() if is_inner and values else inside_values(values=values):
            yield SimulatedGpu(recorder)
    # Everything that leaves, a skip and an interrupt as well: users see its traceback.
    except BaseException as error:
        without_own_frames(error)
        raise
    finally:
        WATCH.recorders.remove(recorder)
        _PRETENCE.end()


@contextmanager
def _patched_torch() -> Iterator[None]:
    _load_what_must_not_see_patches()
    with ExitStack() as undo:
        undo.enter_context(_kernels())
        undo.enter_context(eager())
        suspended = undo.enter_context(patched(_patches()))
        undo.enter_context(late_dynamo(suspended))
        undo.enter_context(skipped_kernels())
        undo.enter_context(cudnn_modes())
        # After the patches: it looks up the replacements.
        undo.enter_context(_scriptable())
        undo.enter_context(_foreach_types())
        undo.callback(clear_cache)
        undo.callback(SIMULATED_MEMORY.reset)
        undo.callback(DROPOUT_STATES.reset)
        yield


def _load_what_must_not_see_patches() -> None:
    """Import what asks torch.cuda or collects torch's functions when it is loaded."""
    for name in ("torch.optim.optimizer", "torch.utils.checkpoint"):
        importlib.import_module(name)
    # It caches the functions of torch for ever on its first call, so that must come
    # before they are replaced.
    _device._device_constructors()  # noqa: SLF001


def _patches() -> Iterator[Patch]:
    yield from dispatch_patches()
    yield from device_patches()
    yield from query_patches()
    yield from creation_patches()
    yield from method_patches()
    yield from generator_patches()
    yield from loading_patches()
    yield from exchange_patches()
    yield from mathematics_patches()
    yield from process_group_patches()
    yield from attention_patches()
    yield from autocast_patches()
    yield from numbering_patches()
    yield from uninitialized_patches()
    yield from flattening_patches()
    yield from unchecked_patches()
    yield from higher_order_patches()
    yield from traceback_patches()


@contextmanager
def _kernels() -> Iterator[None]:
    """Register kernels for the GPU tensors' device, for every thread of the process."""
    libraries = {
        "Lazy": (*FACTORY_KERNELS, *fused_kernels()),
        # What scripts and torch's core make by a device's name.
        "CUDA": tuple(FACTORY_KERNELS),
        "AutocastCUDA": tuple(autocast_kernels()),
        "AutogradLazy": (
            ("scaled_dot_product_attention", attention),
            *COMPOSED_FOR_CUDA.items(),
            *RECURRENT_LAYERS.items(),
            *FLATTENING.items(),
        ),
    }
    with ExitStack() as undo, warnings.catch_warnings():
        # torch warns of each kernel that replaces one of its own, which is intended
        # here.
        warnings.simplefilter("ignore")
        for key, kernels in libraries.items():
            library = torch.library.Library("aten", "IMPL")
            undo.callback(library._destroy)  # noqa: SLF001, the public way is a test's helper
            for name, kernel in kernels:
                library.impl(name, kernel, key)
        registered = undo.pop_all()
    with registered:
        yield


@contextmanager
def _scriptable() -> Iterator[None]:
    """Make torch's script compiler take our replacements for the originals."""
    # The table is private and keyed by ``id``; entries that were added are removed
    # again.
    table = torch.jit._builtins._get_builtin_table()  # noqa: SLF001, there is no public one
    names = (*FACTORY_NAMES, *FROM_HOST_NAMES, *LIKE)
    added = {
        id(getattr(torch, name)): f"aten::{name}"
        for name in names
        if id(getattr(torch, name)) not in table
    }
    for name in MATHEMATICS:
        stand_in: Any = getattr(math, name)
        if id(stand_in.__wrapped__) in table:
            added[id(stand_in)] = table[id(stand_in.__wrapped__)]
    table.update(added)
    try:
        yield
    finally:
        for key in added:
            del table[key]


@contextmanager
def _foreach_types() -> Iterator[None]:
    """Let foreach and fused optimizers take GPU tensors, as they would CUDA tensors."""
    places: list[list[Any]] = []
    for name in ("torch.optim.optimizer", "torch.utils._foreach_utils"):
        types = vars(importlib.import_module(name)).get("_foreach_supported_types")
        if types is not None and GpuTensor not in types:
            types.append(GpuTensor)
            places.append(types)
    try:
        yield
    finally:
        for types in places:
            types.remove(GpuTensor)
