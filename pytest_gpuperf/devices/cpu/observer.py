"""A dispatch mode that sees each operation of a program and changes none."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from ..dispatch import redispatch


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
