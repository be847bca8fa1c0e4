"""What a tensor that is not simply strided looks like to torch's core."""

from __future__ import annotations

from typing import Any
from typing import Final

import torch

from .recorder import WATCH


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
    if inner.is_nested:
        WATCH.leave_unjudged("nested tensors", NO_RULES)
        return inner.to_padded_tensor(0.0).shape, torch.strided
    if inner.layout is torch.sparse_coo:
        return inner.shape, torch.sparse_coo
    WATCH.leave_unjudged(str(inner.layout), NO_RULES)
    return inner.shape, torch.strided
