"""What a tensor that is not simply strided looks like to torch's core."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from typing import Final

import torch

from .recorder import WATCH


KNOWN: Final = (torch.strided, torch.sparse_coo)
NO_RULES: Final = "no rules are known for this layout"


class Shown:
    """Whether any such tensor has been made in this process; most make none."""

    any = False


SHOWN: Final = Shown()


def shown_as(inner: Any) -> tuple[Any, Any]:
    """Shape and layout of the wrapper around *inner*, of which only some are judged.

    A compressed sparse tensor is shown as dense: a wrapper of its own layout would end
    the process, as autograd asks it for what it lacks. A nested one, which has no shape,
    is shown as if it were padded.
    """
    SHOWN.any = True
    leave_unknown_layouts([inner])
    if inner.is_nested:
        return inner.to_padded_tensor(0.0).shape, torch.strided
    is_known = inner.layout in KNOWN
    return inner.shape, inner.layout if is_known else torch.strided


def leave_unknown_layouts(tensors: Iterable[Any]) -> None:
    """Leave unjudged what makes or takes tensors of a layout without rules."""
    for tensor in tensors:
        if tensor.is_nested:
            WATCH.leave_unjudged("nested tensors", NO_RULES)
        elif tensor.layout not in KNOWN:
            WATCH.leave_unjudged(str(tensor.layout), NO_RULES)
