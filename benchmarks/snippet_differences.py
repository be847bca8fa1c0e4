"""Snippets of the corpora in which the simulated GPU and CUDA are known to differ, and why.

The comparison ends red for one that is not here. Read with torch 2.13 over stub CUDA, with
the mirror's values; the files are those of torch's source.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final


_PRINTED: Final = (
    "a tensor is printed number by number, by its values (`_tensor_str.py`), which the "
    "simulated GPU counts as one wait, as whoever takes the line away takes all of them"
)
_VALUES: Final = "values decide how often, and random numbers are others on the stubs"
_WITHOUT_ELEMENTS: Final = (
    "what was coalesced has no elements on the stubs, which compute nothing sparse, and torch "
    "returns at once; asked of a tensor that is made with `is_coalesced=True`, both wait "
    "equally often"
)
DIFFERENCES: Final[Mapping[str, str]] = {
    "main: str(grid)": _PRINTED,
    "main: repr(number)": _PRINTED,
    "more: logging.getLogger('run').warning('loss %s', total)": _PRINTED,
    "more: str(net[0].weight)": _PRINTED,
    "rare: print(net[0].weight.grad.abs().mean())": _PRINTED,
    "rare: print({'loss': total})": _PRINTED,
    "rare: str([total, y[:2]])": _PRINTED,
    "rare: repr(dict(a=total))": _PRINTED,
    "more: sorted(y)": _VALUES,
    "idioms: while total > 0.1: total = total / 2": _VALUES,
    "more: torch.hspmm(coalesced, dense)": _WITHOUT_ELEMENTS,
    "more: torch.bmm(matrices, dense.expand(2, 5, 3))": _WITHOUT_ELEMENTS,
    "more: torch.sparse.softmax(coalesced, 1)": _WITHOUT_ELEMENTS,
    "more: torch.sparse.log_softmax(trainable, 1).to_dense().sum().backward()": (
        _WITHOUT_ELEMENTS
    ),
    "more: torch.sparse.sum(trainable, 0).to_dense().sum().backward()": (
        "what was coalesced has no elements on the stubs; of a tensor that is made with "
        "`is_coalesced=True` the simulated GPU says 6 and CUDA 5, as the sums, which are "
        "coalesced, have none either, and their backward has nothing to read"
    ),
    "main: torch.rand(3000, device='cuda').mode()": (
        "its sort is not computed on the stubs, and torch asserts that it was "
        "(TensorModeKernel.cu)"
    ),
    "more: with torch.no_grad(): encoder.eval()(seq, src_key_padding_mask=padding)": (
        "the encoder makes a nested tensor, which the simulated GPU does not judge"
    ),
    "rare: with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]): net(x)": (
        "a second profiler in the one that counts waits ends the process, in torch"
    ),
}
"""By snippet, with the corpus it is of: what makes the difference."""
