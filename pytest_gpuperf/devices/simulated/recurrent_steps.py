"""Recurrent layers as torch runs them on CUDA without cuDNN: step by step (RNN.cpp).

Each step of an LSTM or a GRU is two products and one kernel. For GPU tensors torch would choose
what it does on the CPU, which multiplies the inputs of all steps at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final

import torch

from .patches import Patch, patched, when_loaded


_aten = torch.ops.aten

State = tuple[Any, ...]
"""What a step hands to the next: of an LSTM two tensors, else one."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Those of one layer in one direction."""

    of_input: Any
    of_state: Any
    bias: Any = None
    state_bias: Any = None
    projection: Any = None


def weights_of(tensors: Sequence[Any], *, biased: bool, ways: int) -> list[Weights]:
    """Sort the *tensors* of a layer's parameters into those of *ways* directions."""
    each = len(tensors) // ways
    return [
        Weights(*given)
        if biased
        else Weights(given[0], given[1], None, None, *given[2:])
        for given in (tensors[n * each : (n + 1) * each] for n in range(ways))
    ]


# One step.


def _lstm(tensor: Any, state: State, weights: Weights) -> State:
    gates = torch.matmul(tensor, weights.of_input.t())
    of_state = torch.matmul(state[0], weights.of_state.t())
    fused = _aten._thnn_fused_lstm_cell.default  # noqa: SLF001, what CUDA calls
    biases = (weights.bias, weights.state_bias)
    output, memory, _ = fused(gates, of_state, state[1], *biases)
    if weights.projection is not None:
        output = torch.matmul(output, weights.projection.t())
    return output, memory


def _gru(tensor: Any, state: State, weights: Weights) -> State:
    gates = torch.matmul(tensor, weights.of_input.t())
    of_state = torch.matmul(state[0], weights.of_state.t())
    fused = _aten._thnn_fused_gru_cell.default  # noqa: SLF001, what CUDA calls
    biases = (weights.bias, weights.state_bias)
    return (fused(gates, of_state, state[0], *biases)[0],)


def _plain(activation: Callable[[Any], Any]) -> Callable[..., State]:
    linear = torch.nn.functional.linear

    def step(tensor: Any, state: State, weights: Weights) -> State:
        found = linear(state[0], weights.of_state, weights.state_bias)
        found.add_(linear(tensor, weights.of_input, weights.bias))
        return (activation(found),)

    return step


CELLS: Final[Mapping[str, Callable[..., State]]] = {
    "gru": _gru,
    "lstm": _lstm,
    "rnn_relu": _plain(torch.relu),
    "rnn_tanh": _plain(torch.tanh),
}


# One direction of one layer.


@dataclass(frozen=True, slots=True)
class Way:
    """The kind of its steps, and how many rows each has; of a padded one they are empty."""

    step: Callable[..., State]
    lengths: Sequence[int] = ()

    def run(
        self, given: Any, state: State, weights: Weights, *, back: bool
    ) -> tuple[Any, State]:
        """Return the outputs of all steps, and the last state; *back* from the end.

        What is *given* is a tensor of each step, or one of all if it is packed.
        """
        if not self.lengths:
            return self._padded(given, state, weights, back=back)
        if back:
            return self._packed_back(given, state, weights)
        return self._packed(given, state, weights)

    def _padded(
        self, steps: Sequence[Any], state: State, weights: Weights, *, back: bool
    ) -> tuple[Any, State]:
        outputs = []
        for each in reversed(steps) if back else steps:
            state = self.step(each, state, weights)
            outputs.append(state[0])
        return torch.stack(outputs[::-1] if back else outputs), state

    def _packed(self, tensor: Any, state: State, weights: Weights) -> tuple[Any, State]:
        """Rows that are at their end leave the state, the last ones first."""
        outputs, ended = [], []
        rows, first = self.lengths[0], 0
        for count in self.lengths:
            given = tensor.narrow(0, first, count)
            first += count
            if count < rows:
                ended.append(_rows(state, count, rows))
                state = _rows(state, 0, count)
            rows = count
            state = self.step(given, state, weights)
            outputs.append(state[0])
        ended.append(state)
        return torch.cat(outputs), _joined(ended[::-1])

    def _packed_back(
        self, tensor: Any, state: State, weights: Weights
    ) -> tuple[Any, State]:
        """Rows join the state where they have their end."""
        outputs = []
        begun, rows, last = state, self.lengths[-1], tensor.size(0)
        state = _rows(begun, 0, rows)
        for count in reversed(self.lengths):
            if count > rows:
                state = _joined([state, _rows(begun, rows, count)])
            given = tensor.narrow(0, last - count, count)
            last, rows = last - count, count
            state = self.step(given, state, weights)
            outputs.append(state[0])
        return torch.cat(outputs[::-1]), state


def _rows(state: State, first: int, last: int) -> State:
    return tuple(each.narrow(0, first, last - first) for each in state)


def _joined(states: Sequence[State]) -> State:
    return tuple(torch.cat(parts) for parts in zip(*states, strict=True))


# All layers.


@dataclass(frozen=True, slots=True)
class OwnLayer:
    """What torch's layer is, without its tensors; lengths of a padded one are empty."""

    name: str
    lengths: Sequence[int]
    is_biased: bool
    layers: int
    dropout: float
    train: bool
    both_ways: bool
    batch_first: bool

    def run(
        self, tensor: Any, states: Sequence[Any], weights: Sequence[Any]
    ) -> tuple[Any, ...]:
        """Return the outputs and the last states, as torch's layer on CUDA."""
        __tracebackhide__ = True
        if self.batch_first:
            tensor = tensor.transpose(0, 1)
        states = [*zip(*(each.unbind(0) for each in states), strict=True)]
        each = len(weights) // self.layers
        last: list[State] = []
        for layer, begun in enumerate(_groups(states, 1 + self.both_ways)):
            given = weights[layer * each : (layer + 1) * each]
            tensor, ended = self._layer(tensor, begun, given)
            last += ended
            if self.dropout and self.train and layer < self.layers - 1:
                tensor = torch.dropout(tensor, self.dropout, True)  # noqa: FBT003, C++
        if self.batch_first:
            tensor = tensor.transpose(0, 1)
        return tensor, *(torch.stack(parts) for parts in zip(*last, strict=True))

    def _layer(
        self, tensor: Any, states: Sequence[State], weights: Sequence[Any]
    ) -> tuple[Any, Sequence[State]]:
        way = Way(CELLS[self.name], self.lengths)
        ways = weights_of(weights, biased=self.is_biased, ways=len(states))
        steps = tensor if self.lengths else tensor.unbind(0)
        found = [
            way.run(steps, state, given, back=bool(place))
            for place, (state, given) in enumerate(zip(states, ways, strict=True))
        ]
        outputs = [output for output, _ in found]
        joined = torch.cat(outputs, -1) if self.both_ways else outputs[0]
        return joined, [state for _, state in found]


def _groups(values: Iterable[Any], size: int) -> Iterator[tuple[Any, ...]]:
    return zip(*[iter(values)] * size, strict=True)


# Weights of recurrent layers in one piece of memory, as cuDNN reads them
# (cudnn/RNN.cpp).


def flat_layout(weights: Sequence[Any], per_layer: int) -> tuple[list[int], int]:
    """Return how many numbers lie before each weight, and how many there are in all.

    All matrices come layer by layer, and behind them the biases, also where there are none.
    There are *per_layer* weights in each direction of a layer.
    """
    places, total = [0] * len(weights), 0
    biases = [n for n, weight in enumerate(weights) if weight.dim() == 1]
    matrices = [n for n, weight in enumerate(weights) if weight.dim() > 1]
    for place in (*matrices, *biases):
        places[place] = total
        total += weights[place].numel()
    if not biases:
        total += sum(2 * weight.size(0) for weight in weights[::per_layer])
    return places, total


def views_of(buffer: Any, places: Sequence[int], weights: Sequence[Any]) -> list[Any]:
    """Return the parts of *buffer*, as tensors of their own for autograd."""
    storage = buffer.untyped_storage()
    return [
        buffer.new_empty(0).set_(storage, place, weight.shape, _dense(weight.shape))
        for place, weight in zip(places, weights, strict=True)
    ]


def _dense(shape: Sequence[int]) -> tuple[int, ...]:
    return (*shape[1:], 1)  # of one or two dimensions


def copied(
    weights: Sequence[Any], per_layer: int, dtype: torch.dtype
) -> tuple[Any, list[Any]]:
    """Return a new piece with a copy of *weights*, and its parts."""
    places, total = flat_layout(weights, per_layer)
    buffer = torch.zeros(total, dtype=dtype, device=weights[0].device)
    parts = views_of(buffer, places, weights)
    for part, weight in zip(parts, weights, strict=True):
        part.copy_(weight)
    return buffer, parts


def flatten(weights: Sequence[Any], per_layer: int, *_: object) -> Any:
    """``aten::_cudnn_rnn_flatten_weight``: put *weights* into one piece."""
    __tracebackhide__ = True
    buffer, parts = copied(weights, per_layer, weights[0].dtype)
    for weight, part in zip(weights, parts, strict=True):
        weight.set_(part)
    return buffer


def buffer_of(weights: Sequence[Any], per_layer: int) -> Any:
    """Return the piece in which *weights* lie, ``None`` if they do not (``try_get_weight_buf``)."""
    places, total = flat_layout(weights, per_layer)
    insides = [weight.inside for weight in weights]
    first = insides[0].untyped_storage()
    for place, inside in zip(places, insides, strict=True):
        storage = inside.untyped_storage()._cdata  # noqa: SLF001, as in ``memory``
        if storage != first._cdata or inside.storage_offset() != place:  # noqa: SLF001
            return None
    if first.nbytes() < total * insides[0].element_size():
        return None
    storage = weights[0].untyped_storage()
    return weights[0].new_empty(0).set_(storage, 0, (total,), (1,))


FLATTENING: Final[Mapping[str, Callable[..., Any]]] = {
    "_cudnn_rnn_flatten_weight": flatten,
}
"""Kernels for the GPU tensors' device."""


def flattening_patches() -> Iterator[Patch]:
    """Let ``flatten_parameters`` take GPU tensors as it takes tensors of CUDA."""
    yield Patch(torch.backends.cudnn, "is_acceptable", is_acceptable)
    yield Patch(torch, "_use_cudnn_rnn_flatten_weight", lambda: True)


@contextmanager
def cudnn_modes() -> Iterator[None]:
    """Let ``flatten_parameters`` know cuDNN's numbers of layers, which a build for CPUs lacks.

    In torch 2.9 and 2.10 ``torch.backends.cudnn.rnn`` holds settings until a layer imports
    the module of that name, so the module is not imported before.
    """
    with ExitStack() as undo:

        def number_layers(module: Any) -> None:
            patch = Patch(module, "get_cudnn_mode", cudnn_mode)
            undo.enter_context(patched([patch]))

        undo.enter_context(when_loaded("torch.backends.cudnn.rnn", number_layers))
        yield


MODES: Final = ("rnn_relu", "rnn_tanh", "lstm", "gru")
"""Layers by cuDNN's number for them."""


def cudnn_mode(name: str) -> int:
    """Return the number of the layer that ``torch.nn`` calls *name*."""
    return MODES.index(name.lower())


def is_acceptable(tensor: Any) -> bool:
    """``torch.backends.cudnn.is_acceptable``."""
    return (
        tensor.is_cuda
        and torch._C._get_cudnn_enabled()  # noqa: SLF001, where torch.backends keeps it
        and tensor.dtype in torch.backends.cudnn.CUDNN_TENSOR_DTYPES
    )
