"""What cuDNN's recurrent layers take, in the order of ``cudnn/RNN.cpp``.

torch asks cuDNN how much that needs for itself, and NVIDIA publishes no formula. What backward
cannot do without is assumed: in training the gates and the state of each step are kept, and
while a kernel runs there are the states once more.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from typing import Final

from .memory import seen
from .memory import taken
from .operation import OpCall
from .operation import copies_of
from .operation import nbytes_of


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
