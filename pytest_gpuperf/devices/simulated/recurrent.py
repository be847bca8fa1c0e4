"""Recurrent layers as CUDA runs them: each is one operation of cuDNN, and one backward.

On the host torch's own layer computes it, inside of one operation, and once more in the
backward: nothing of its many steps passes the GPU tensors' dispatch. Without cuDNN there are
those of ``recurrent_steps``.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Final

import torch

from .allocator import MIB
from .kernels import HALVES
from .memory import SIMULATED_MEMORY, seen, taken
from .operation import OpCall, copies_of, nbytes_of
from .recorder import WATCH
from .recurrent_steps import MODES, OwnLayer, buffer_of, flat_layout, views_of


_aten = torch.ops.aten

LSTM: Final = MODES.index("lstm")

BIASED: Final = 4
"""A layer has so many parameters in each direction if it has biases, or one more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """What a recurrent layer is, without its tensors; lengths of a padded one are empty."""

    mode: int
    is_biased: bool
    layers: int
    batch_first: bool
    dropout: float
    train: bool
    both_ways: bool
    lengths: Sequence[int]

    def run(self, tensor: Any, states: Sequence[Any], weights: Sequence[Any]) -> Any:
        """Return the output and the last states, as torch computes them on the host."""
        hidden = states if self.mode == LSTM else states[0]
        layer = getattr(_aten, MODES[self.mode])
        options = (
            weights,
            self.is_biased,
            self.layers,
            self.dropout,
            self.train,
            self.both_ways,
        )
        if self.lengths:
            return layer.data(tensor, torch.tensor(self.lengths), hidden, *options)
        return layer.input(tensor, hidden, *options, self.batch_first)

    @property
    def is_random(self) -> bool:
        """Whether it drops some of what one layer hands to the next."""
        return self.train and self.dropout > 0 and self.layers > 1


def layer_of(call: OpCall) -> Layer:
    """Return the layer that cuDNN is asked to run, forward or backward."""
    return Layer(
        mode=call["mode"],
        is_biased=call["weight_stride0"] >= BIASED,
        layers=call["num_layers"],
        batch_first=call["batch_first"],
        dropout=call["dropout"],
        train=call["train"],
        both_ways=call["bidirectional"],
        lengths=call["batch_sizes"],
    )


# What cuDNN's two operations give, on the host.


def cudnn_rnn(*args: Any) -> tuple[Any, ...]:
    """What ``aten::_cudnn_rnn`` gives: output, states, a reserve, the weights in one piece.

    The reserve, which backward is given, has the seed of what was dropped.
    """
    call = _call(_aten._cudnn_rnn.default, args)  # noqa: SLF001, what CUDA calls
    tensor, layer = call["input"], layer_of(call)
    states = [s for s in (call["hx"], call["cx"]) if s is not None]
    _check_contiguous(call)
    reserve = tensor.new_zeros(_kept_bytes(call), dtype=torch.uint8)
    with _seeded(_draw_seed(reserve)) if layer.is_random else nullcontext():
        found = _run_widely(layer, tensor, states, call["weight"])
    output, *last = (each.to(tensor.dtype) for each in found)
    results = [_by_step(output, layer), *last]
    buffer = call["weight_buf"]
    if buffer is None:
        _, total = flat_layout(call["weight"], call["weight_stride0"])
        buffer = tensor.new_zeros(total)
    RecurrentMemory(call).forward(results, buffer, reserve)
    nothing = [tensor.new_empty(0)] * (STATES - len(last))
    return *results, *nothing, reserve, buffer


STATES: Final = 2
"""Of an LSTM; other layers return nothing in place of the second."""

SEED_BYTES: Final = 8


def _kept_bytes(call: OpCall) -> int:
    """Bytes of the reserve, in which there is room for the seed of what is dropped."""
    return max(SEED_BYTES, reserve_bytes(call)) if call["train"] else 0


def _check_contiguous(call: OpCall) -> None:
    for name in ("hx", "cx"):
        if call[name] is not None and not call[name].is_contiguous():
            msg = f"rnn: {name} is not contiguous"
            raise RuntimeError(msg)


def _by_step(tensor: Any, layer: Layer) -> Any:
    """Let a padded *tensor* have the steps before the rows in memory, as cuDNN writes."""
    if not layer.batch_first or layer.lengths:
        return tensor.contiguous()
    return tensor.transpose(0, 1).contiguous().transpose(0, 1)


def cudnn_rnn_backward(*args: Any) -> tuple[Any, ...]:
    """What ``aten::_cudnn_rnn_backward`` gives: gradients of input, states and weights.

    Those of input and states are made, whether they are asked for or not.
    """
    call = _call(_aten._cudnn_rnn_backward.default, args)  # noqa: SLF001, what CUDA calls
    layer = layer_of(call)
    if not layer.train:
        msg = "cudnn RNN backward can only be called in training mode"
        raise RuntimeError(msg)
    tensors = [call["input"], call["hx"], call["cx"]]
    wanted, *of_states, of_weights = call["output_mask"]
    asked = [wanted, *of_states, *[of_weights] * len(call["weight"])]
    seed = _seed_in(call["reserve"]) if layer.is_random else None
    with _with_autograd(), nullcontext() if seed is None else _seeded(seed):
        leaves = [_leaf(each) for each in (*tensors, *call["weight"])]
        states = [state for state in leaves[1:3] if state is not None]
        outputs = _run_widely(layer, leaves[0], states, leaves[3:])
        found = _gradients(call, outputs, leaves, asked)
    made = [_made(*pair) for pair in zip(found, tensors, strict=False)]
    made[0] = _by_step(made[0], layer)
    weights = _in_one_piece(call, found[3:]) if of_weights else []
    RecurrentMemory(call).backward(made, weights)
    return *made, weights


def _made(gradient: Any, like: Any) -> Any:
    if gradient is None:
        return None if like is None else torch.empty_like(like)
    return gradient.contiguous()


def _in_one_piece(call: OpCall, gradients: Sequence[Any]) -> list[Any]:
    """Let *gradients* be parts of one tensor, as the weights are; those with biases."""
    places, total = flat_layout(gradients, call["weight_stride0"])
    if total != sum(int(gradient.numel()) for gradient in gradients):
        return [each.contiguous() for each in gradients]
    parts = views_of(gradients[0].new_zeros(total), places, gradients)
    for part, gradient in zip(parts, gradients, strict=True):
        part.copy_(gradient)
    return parts


def _gradients(
    call: OpCall, outputs: Sequence[Any], leaves: Sequence[Any], asked: Sequence[bool]
) -> list[Any]:
    """Return the gradient of each of *leaves* that is *asked* for, and ``None`` else."""
    grads = [call["grad_output"], call["grad_hy"], call["grad_cy"]]
    # Those grads are the derivatives of this number: given any, torch imports sympy.
    total = sum(
        (output * grad.to(output.dtype)).sum()
        for output, grad in zip(outputs, grads, strict=False)
        if grad is not None
    )
    places = [n for n, leaf in enumerate(leaves) if asked[n] and leaf is not None]
    computed = torch.autograd.grad(
        total,
        [leaves[place] for place in places],
        allow_unused=True,
        materialize_grads=True,
    )
    by_place = dict(zip(places, computed, strict=True))
    return [by_place.get(place) for place in range(len(leaves))]


def _call(func: Any, args: Sequence[Any]) -> OpCall:
    return OpCall(func._schema, args, {}, lambda _: False)  # noqa: SLF001, as ``schema_of``


def _leaf(tensor: Any) -> Any:
    return None if tensor is None else tensor.detach().requires_grad_()


def _run_widely(
    layer: Layer, tensor: Any, states: Sequence[Any], weights: Sequence[Any]
) -> Any:
    """Run *layer*, halves in float32: of some the host has no layer."""
    if tensor.dtype in HALVES:
        tensor = tensor.float()
        states, weights = [s.float() for s in states], [w.float() for w in weights]
    with warnings.catch_warnings():
        # Of oneDNN, which takes no projections and which no GPU uses.
        warnings.filterwarnings("ignore", message=NO_PROJECTIONS)
        return layer.run(tensor, states, weights)


NO_PROJECTIONS: Final = "LSTM with projections is not supported with oneDNN"


def _draw_seed(reserve: Any) -> int:
    """Draw a seed and keep it in *reserve*, which has no values where GPU tensors have none."""
    seed = int(torch.randint(2**31, ()))
    reserve[:SEED_BYTES].view(torch.int64).fill_(seed)
    return seed


def _seed_in(reserve: Any) -> int:
    return 0 if reserve.is_meta else int(reserve[:SEED_BYTES].view(torch.int64))


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Draw from *seed* on inside the context, and as before it after."""
    with torch.random.fork_rng(devices=()):
        torch.default_generator.manual_seed(seed)
        yield


@contextmanager
def _with_autograd() -> Iterator[None]:
    """Record gradients, as nothing does inside of an operation."""
    keys = torch._C  # noqa: SLF001, there is no public way
    excluded = keys._dispatch_tls_local_exclude_set()  # noqa: SLF001
    for name in BELOW_AUTOGRAD:
        excluded = excluded.remove(getattr(keys.DispatchKey, name))
    included = keys._dispatch_tls_local_include_set()  # noqa: SLF001
    guard = keys._ForceDispatchKeyGuard(included, excluded)  # noqa: SLF001
    with guard, torch.enable_grad():
        yield


BELOW_AUTOGRAD: Final = ("AutogradFunctionality", "AutogradOther", "ADInplaceOrView")
"""Dispatch keys that an operation is past."""

CUDNN_KERNELS: Final[Mapping[str, Callable[..., Any]]] = {
    "_cudnn_rnn": cudnn_rnn,
    "_cudnn_rnn_backward": cudnn_rnn_backward,
}
"""What to run on the host in place of a kernel that only CUDA has."""


# Floating point operations, those of the products that torch's own layer is made of.


def _forward_flops(*args: Any, out_val: Any = None) -> int:
    del out_val
    call = _call(_aten._cudnn_rnn.default, args)  # noqa: SLF001
    return _rows(call) * sum(map(_of_row, call["weight"]))


def _backward_flops(*args: Any, out_val: Any = None) -> int:
    """Count a product for each weight's gradient, and one for what is multiplied by it.

    The first states, and the input, have a gradient only if they ask for it.
    """
    del out_val
    call = _call(_aten._cudnn_rnn_backward.default, args)  # noqa: SLF001
    wants_input, wants_state, _, wants_weights = call["output_mask"]
    rows, weights, stride = _rows(call), call["weight"], call["weight_stride0"]
    ways = 1 + call["bidirectional"]
    flops = rows * sum(map(_of_row, weights)) if wants_weights else 0
    for place, weight in enumerate(weights):
        layer, kind = place // stride // ways, place % stride
        first = 0 if wants_state else _first_rows(call, place // stride % ways)
        asked = {0: rows if layer or wants_input else 0, 1: rows - first}
        flops += asked.get(kind, rows) * _of_row(weight)
    return flops


def _of_row(weight: Any) -> int:
    """Count a multiplication and an addition for each element; a bias has none."""
    return 2 * int(weight.numel()) if weight.dim() > 1 else 0


def _rows(call: OpCall) -> int:
    shape = call["input"].shape
    return sum(call["batch_sizes"]) or math.prod(shape[:-1])


def _first_rows(call: OpCall, way: int) -> int:
    """Return the rows of the first step in this *way*, the second being backward."""
    lengths = call["batch_sizes"]
    return int(lengths[-way] if lengths else call["hx"].size(1))


CUDNN_FLOPS: Final[Mapping[str, Callable[..., int]]] = {
    "_cudnn_rnn": _forward_flops,
    "_cudnn_rnn_backward": _backward_flops,
}
"""Formulas that torch's own counter lacks."""


# torch's layers, which ask cuDNN if it is there and takes them (RNN.cpp).

REASON: Final = (
    "cuDNN keeps memory of its own for it, which only a GPU can show; what backward "
    "cannot do without is assumed"
)


TAKEN_BY_CUDNN: Final = {*HALVES, torch.float32, torch.float64}


def _padded(mode: int) -> Callable[..., Any]:
    def kernel(tensor: Any, hidden: Any, weights: Sequence[Any], *options: Any) -> Any:
        __tracebackhide__ = True
        states = _states(hidden)
        _check_devices(tensor, states, weights)
        if _is_of_cudnn(tensor):
            return _by_cudnn(mode, tensor, states, weights, options, ())
        return OwnLayer(MODES[mode], (), *options).run(tensor, states, weights)

    return kernel


def _packed(mode: int) -> Callable[..., Any]:
    def kernel(
        tensor: Any, sizes: Any, hidden: Any, weights: Sequence[Any], *options: Any
    ) -> Any:
        __tracebackhide__ = True
        states, given = _states(hidden), (*options, False)
        _check_devices(tensor, states, weights)
        if _is_of_cudnn(tensor):
            return _by_cudnn(mode, tensor, states, weights, given, sizes.tolist())
        layer = OwnLayer(MODES[mode], sizes.tolist(), *given)
        return layer.run(tensor, states, weights)

    return kernel


def _states(hidden: Any) -> Sequence[Any]:
    return (hidden,) if isinstance(hidden, torch.Tensor) else hidden


def _check_devices(tensor: Any, states: Sequence[Any], weights: Sequence[Any]) -> None:
    """``check_attributes``, with torch's words."""
    for name, others in (("hidden", states), ("parameter", weights)):
        for other in others:
            if other.device != tensor.device:
                msg = (
                    f"Input and {name} tensors are not at the same device, found input "
                    f"tensor at {tensor.device} and {name} tensor at {other.device}"
                )
                raise RuntimeError(msg)


def _is_of_cudnn(tensor: Any) -> bool:
    """``use_cudnn``, which asks the input alone."""
    return (
        torch._C._get_cudnn_enabled()  # noqa: SLF001, where torch.backends keeps it
        and tensor.dtype in TAKEN_BY_CUDNN
        and tensor.numel() > 0
    )


def _by_cudnn(  # noqa: PLR0913, PLR0917, torch's
    mode: int,
    tensor: Any,
    states: Sequence[Any],
    weights: Sequence[Any],
    options: Sequence[Any],
    lengths: Sequence[int],
) -> tuple[Any, ...]:
    """``_cudnn_impl``, with the options that torch's layers take."""
    __tracebackhide__ = True
    SIMULATED_MEMORY.leave_unchecked(f"aten::{MODES[mode]}", REASON)
    is_biased, layers, dropout, train, both_ways, batch_first = options
    if train and dropout > 0:
        DROPOUT_STATES.make(tensor)
    state, memory = states if mode == LSTM else (states[0], None)
    hidden_size = (state if memory is None else memory).size(2)
    projected = 0 if state.size(2) == hidden_size else state.size(2)
    parameters = (BIASED if is_biased else BIASED // 2) + (projected > 0)
    found: tuple[Any, ...] = _aten._cudnn_rnn.default(  # noqa: SLF001, what CUDA calls
        tensor,
        weights,
        parameters,
        buffer_of(weights, parameters),
        state,
        memory,
        mode,
        hidden_size,
        projected,
        layers,
        batch_first,
        dropout,
        train,
        both_ways,
        lengths,
        None,
    )
    return found[: 1 + len(states)]


class DropoutStates:
    """What cuDNN draws with, for all layers of the device (``get_dropout_state``)."""

    def __init__(self) -> None:
        self.states: Any = None
        self._is_seeded = False

    def make(self, like: Any) -> None:
        """Make them on the device of *like*, unless they are there and seeded."""
        if self._is_seeded:
            return
        reason = (
            "cuDNN's dropout reads its seed from the device, at first and when seeded"
        )
        WATCH.sync("aten::_cudnn_init_dropout_state", reason)
        self.states = like.new_empty(DROPOUT_STATES_BYTES, dtype=torch.uint8)
        self._is_seeded = True

    def seed(self) -> None:
        """Let the next use make them anew, as after each seed of the device."""
        self._is_seeded = False

    def reset(self) -> None:
        """Give them back."""
        self.states, self._is_seeded = None, False


DROPOUT_STATES: Final = DropoutStates()

DROPOUT_STATES_BYTES: Final = 4 * MIB
"""cuDNN alone knows how many a GPU needs; assumed, as what it keeps for backward is."""

RECURRENT_LAYERS: Final[Mapping[str, Callable[..., Any]]] = {
    f"{name}.{variant}": kernel(mode)
    for mode, name in enumerate(MODES)
    for variant, kernel in (("input", _padded), ("data", _packed))
}
"""Kernels for the GPU tensors' device, by overload."""


# What cuDNN's recurrent layers take, in the order of ``cudnn/RNN.cpp``.
#
# torch asks cuDNN how much that needs for itself, and NVIDIA publishes no formula. What
# backward cannot do without is assumed: in training the gates and the state of each step
# are kept, and while a kernel runs there are the states once more.

GATES: Final = (1, 1, 4, 3)
"""By cuDNN's number of the layer."""


def states_bytes(call: OpCall) -> int:
    """Bytes of the states of each row, step and layer; a packed one counts as padded."""
    tensor, lengths = call["input"], call["batch_sizes"]
    steps = len(lengths) * lengths[0] if lengths else tensor.shape[:-1].numel()
    layers = call["num_layers"] * (1 + call["bidirectional"])
    return int(steps * layers * call["hidden_size"] * tensor.element_size())


def reserve_bytes(call: OpCall) -> int:
    """Bytes that are kept for backward."""
    return (GATES[call["mode"]] + 1) * states_bytes(call) if call["train"] else 0


@dataclass(frozen=True, slots=True)
class RecurrentMemory:
    """What one of the two operations takes, from its arguments."""

    call: OpCall

    def forward(self, results: Sequence[Any], buffer: Any, reserve: Any) -> None:
        """Let outputs, states, weights in one piece and what is kept for backward be born."""
        with taken(*copies_of(self._by_step("input"))):
            seen(*results, buffer)
            with taken(states_bytes(self.call)):
                seen(reserve)

    def backward(self, gradients: Sequence[Any], of_weights: Sequence[Any]) -> None:
        """Let the gradients be born, those of the weights after the others."""
        call = self.call
        with taken(*self._missing()):
            given = [call["grad_hy"], call["grad_cy"]]
            tensors = [self._by_step("input"), self._by_step("grad_output")]
            with taken(*copies_of(*tensors)):
                seen(gradients[0])
                with taken(*copies_of(*given)):
                    seen(*gradients[1:])
                    with taken(states_bytes(call)):
                        pass
            if of_weights:
                self._weights(of_weights)

    def _weights(self, gradients: Sequence[Any]) -> None:
        call = self.call
        flat = 0 if _share_memory(gradients) else nbytes_of(call["weight_buf"])
        with taken(*copies_of(self._by_step("input"))), taken(flat):
            seen(None if flat else gradients[0])
            with taken(states_bytes(call)):
                seen(*gradients)

    def _missing(self) -> Iterator[int]:
        """Zeros in place of gradients that nobody gave."""
        for grad, like in (
            ("grad_output", "output"),
            ("grad_hy", "hx"),
            ("grad_cy", "cx"),
        ):
            if self.call[grad] is None and self.call[like] is not None:
                yield nbytes_of(self.call[like])

    def _by_step(self, name: str) -> Any:
        """Return the tensor *name* with the steps before the rows."""
        tensor, call = self.call[name], self.call
        if tensor is None or not call["batch_first"] or call["batch_sizes"]:
            return tensor
        return tensor.transpose(0, 1)


def _share_memory(tensors: Sequence[Any]) -> bool:
    first = tensors[0].untyped_storage()._cdata  # noqa: SLF001, as in ``memory``
    return all(t.untyped_storage()._cdata == first for t in tensors)  # noqa: SLF001
