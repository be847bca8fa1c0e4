"""State that both sides use and one of them changes: then neither is seen by itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from typing import Final

from ..errors import StepError
from ..probes.subject import Subject
from .reach import tensors_of


MOST_BYTES: Final = 2**28
"""Above it autograd's counter of writes stands for the bytes of a tensor: it does not
see those through ``.data``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedTensor:
    """A tensor that both sides reach, and its bytes when the comparison began."""

    name: str
    tensor: Any
    content: Any

    @property
    def is_changed(self) -> bool:
        import torch

        return not torch.equal(self.content, _content(self.tensor))


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedState:
    """All of these tensors, before either side has run.

    Python objects are not among them, nor what ``reach`` does not find.
    """

    tensors: tuple[SharedTensor, ...]

    @classmethod
    def of(cls, before: Subject, after: Subject) -> SharedState:
        return cls(tensors=tuple(_shared(before, after)))

    def changed(self) -> str | None:
        """Name a tensor that differs now, if one does."""
        return next((t.name or "a tensor" for t in self.tensors if t.is_changed), None)

    def refuse_change_by(self, side: str) -> None:
        """Raise ``StepError`` if a tensor differs now that *side* has run."""
        changed = self.changed()
        if changed is None:
            return
        other = "before" if side == "after" else "after"
        msg = (
            f"gpuperf.compare(before, after): {side} changes {changed}, "
            f"which {other} uses as well, so that neither is measured by itself; give "
            "each side its own, and build model and optimizer twice"
        )
        raise StepError(msg)


def _shared(before: Subject, after: Subject) -> Iterator[SharedTensor]:
    keys = {_key(tensor) for tensor in tensors_of(before.step).values()}
    for name, tensor in tensors_of(after.step).items():
        key = _key(tensor)
        if key is not None and key in keys:
            yield SharedTensor(name=name, tensor=tensor, content=_content(tensor))


def _key(tensor: Any) -> object:
    """Tell tensors apart that share no memory; ``None`` where it cannot be told."""
    import torch

    if tensor.layout is not torch.strided or tensor.device.type == "meta":
        return None
    address = tensor.untyped_storage().data_ptr()
    return (str(tensor.device), address) if address else None


def _content(tensor: Any) -> Any:
    """Copy the bytes of *tensor*: NaN is like itself there, and any change shows."""
    import torch

    if tensor.nbytes > MOST_BYTES and not tensor.is_inference():
        return torch.tensor(tensor._version)  # noqa: SLF001, there is no other way
    copied = tensor.detach().to("cpu", copy=True).contiguous()
    return copied.reshape(-1).view(torch.uint8)
