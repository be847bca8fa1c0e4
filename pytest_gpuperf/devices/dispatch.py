"""The base of our dispatch modes: none of them changes the program that it observes."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


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
