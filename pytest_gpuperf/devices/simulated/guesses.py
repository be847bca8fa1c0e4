"""Guesses for values that the host reads from GPU tensors without values.

A guess that decides what runs makes the step unchecked.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import torch

from .recorder import WATCH


STEERS: Final = "no values are kept on the simulated GPU, so what was read is a guess, which decides what runs"
LEAVES: Final = (
    "no values are kept on the simulated GPU, so what was read is a guess, and nothing shows where "
    "it goes"
)
UNKNOWN_SIZE: Final = (
    "no values are kept on the simulated GPU, so the size of the result is a guess: the largest "
    "there can be"
)
SIZE_OF_ZEROS: Final = "no values are computed here, so the size of the result is a guess: the one for zeros"
SIZE_TAKEN_ONCE: Final = (
    "no values are kept on the simulated GPU, so the size of the result is a guess: each element "
    "once; give output_size"
)

UNKNOWN_LENGTHS: Final = "no values are kept on the simulated GPU, so the lengths are a guess: each as long as there can be"

SCALER: Final = "grad_scaler.py"
"""torch's scaler: it reads whether gradients are infinite; in a steady step none is."""


def leave_unchecked(op: str, reason: str) -> None:
    """Record that a guess of *op* turns every number into a guess."""
    WATCH.leave_unchecked(op, reason)


class Guess(float):
    """A number that was not read: harmless until something depends on it.

    What is computed with it is a guess in its turn, also by the functions of ``math``
    (see ``tensor_api``) and numpy's on numbers. Other code in C that reads it is not
    seen.
    """

    __slots__ = ()

    def __array_ufunc__(
        self, function: Any, method: str, *inputs: Any, **options: Any
    ) -> Any:
        """Compute with numpy."""
        # By ``float``'s own method: a conversion of a guess would be reported.
        plain = [float.__pos__(i) if type(i) is Guess else i for i in inputs]
        return concluded(getattr(function, method)(*plain, **options))


def concluded(result: Any) -> Any:
    """What was computed with a guess: a guess, or a decision."""
    if isinstance(result, float):
        return Guess(result)
    leave_unchecked("Tensor.item", STEERS)
    return result


def _steering(name: str) -> Callable[..., Any]:
    plain = getattr(float, name)

    def method(guess: Guess, *args: Any) -> Any:
        leave_unchecked("Tensor.item", STEERS)
        return plain(guess, *args)

    return method


def _spreading(name: str) -> Callable[..., Any]:
    plain = getattr(float, name)

    def method(guess: Guess, *args: Any) -> Any:
        result = plain(guess, *args)
        return Guess(result) if type(result) is float else result

    return method


COMPARING: Final = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__")
CONVERTING: Final = ("__bool__", "__int__", "__float__", "__hash__", "__round__")
COUNTING_METHODS: Final = ("__trunc__", "__floor__", "__ceil__", "is_integer")
ONE_SIDED: Final = ("__neg__", "__pos__", "__abs__")
TWO_SIDED: Final = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")

# Set after the class is made: some thirty methods differ by their name alone.
for _name in (*COMPARING, *CONVERTING, *COUNTING_METHODS):
    setattr(Guess, _name, _steering(_name))
for _name in ONE_SIDED:
    setattr(Guess, _name, _spreading(_name))
for _name in TWO_SIDED:
    setattr(Guess, f"__{_name}__", _spreading(f"__{_name}__"))
    setattr(Guess, f"__r{_name}__", _spreading(f"__r{_name}__"))


_followed: list[None] = []


@contextmanager
def followed() -> Iterator[None]:
    """Read numbers inside that are followed afterwards, so the read itself is fine."""
    _followed.append(None)
    try:
        yield
    finally:
        _followed.pop()


def item(tensor: Any) -> Any:
    """Guess the one element of *tensor*, as a number that reports its use."""
    caller = sys._getframe(2).f_code.co_filename  # noqa: SLF001, inspect.stack() reads sources
    if tensor.dtype.is_floating_point:
        return 0.0 if caller.endswith(SCALER) else Guess(1.0)
    leave_unchecked("Tensor.item", STEERS)
    return _number(tensor)


def _number(tensor: Any) -> Any:
    if tensor.dtype is torch.bool:
        return False
    if tensor.dtype.is_complex:
        return 1j
    return 1.0 if tensor.dtype.is_floating_point else 0


def local_scalar_dense(tensor: Any) -> Any:
    """A number that leaves for a place where it cannot be followed."""
    if not _followed:
        leave_unchecked("aten::_local_scalar_dense", LEAVES)
    return _number(tensor)


def guessed_on_host(op: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return a host tensor of unknown values: the target as it was, or zeros."""
    if not _followed:
        leave_unchecked(op, LEAVES)
    if op == "aten::copy_":
        return args[0]
    dtype = kwargs.get("dtype") or args[0].dtype
    return torch.zeros(args[0].shape, dtype=dtype)


def equal(*_: Any, **__: Any) -> bool:
    """Whether two tensors are equal, or nearly so."""
    leave_unchecked("aten::equal", STEERS)
    return True


def nonzero(tensor: Any) -> Any:
    """Every element might be."""
    leave_unchecked("aten::nonzero", UNKNOWN_SIZE)
    size = (tensor.numel(), tensor.dim())
    return torch.empty(size, dtype=torch.int64, device="meta")


def masked_select(tensor: Any, mask: Any) -> Any:
    """Every element might be selected."""
    leave_unchecked("aten::masked_select", UNKNOWN_SIZE)
    size = torch.broadcast_shapes(tensor.shape, mask.shape).numel()
    return torch.empty(size, dtype=tensor.dtype, device="meta")


def unique(tensor: Any, *_: Any, **__: Any) -> Any:
    """Every element might be a value of its own."""
    leave_unchecked("aten::_unique2", UNKNOWN_SIZE)
    flat = torch.empty(tensor.numel(), dtype=tensor.dtype, device="meta")
    inverse = torch.empty(tensor.shape, dtype=torch.int64, device="meta")
    return flat, inverse, torch.empty_like(flat, dtype=torch.int64)


def coalesced(tensor: Any) -> Any:
    """Every index of a sparse *tensor* might stand once."""
    leave_unchecked("aten::_coalesce", UNKNOWN_SIZE)
    rows = tensor._indices(), tensor._values()  # noqa: SLF001, the public ones ask for a coalesced one
    return torch.sparse_coo_tensor(
        *rows, tensor.shape, is_coalesced=True, check_invariants=False
    )


def sparse_mask(tensor: Any, mask: Any) -> Any:
    """Return the elements of *tensor* at the indices of a sparse *mask*."""
    rows, kept = mask._indices(), mask._values()  # noqa: SLF001, of one that is coalesced or not
    values = torch.empty_like(kept, dtype=tensor.dtype)
    return torch.sparse_coo_tensor(rows, values, mask.shape, check_invariants=False)


def repeat_interleave(repeats: Any, *, output_size: int | None = None) -> Any:
    """Every element might be repeated any number of times."""
    if output_size is None:
        leave_unchecked("aten::repeat_interleave", SIZE_TAKEN_ONCE)
    size = repeats.numel() if output_size is None else output_size
    return torch.empty(size, dtype=repeats.dtype, device="meta")


def positions(mask: Any) -> list[Any]:
    """Indices in place of a boolean *mask*, as if all of it were true."""
    leave_unchecked("aten::index", UNKNOWN_SIZE)
    # One index per dimension of the mask, as torch's own expansion of masks gives.
    return [torch.empty(mask.numel(), dtype=torch.int64, device="meta")] * mask.dim()


_pack = torch.ops.aten._pack_padded_sequence.default  # noqa: SLF001, what torch.nn calls


def packed(tensor: Any, lengths: Any, batch_first: bool) -> Any:  # noqa: FBT001
    """Every sequence might be as long as there can be."""
    if not lengths.any():
        leave_unchecked("aten::_pack_padded_sequence", UNKNOWN_LENGTHS)
    return _pack(tensor, lengths_of(tensor, lengths, batch_first), batch_first)


def lengths_of(tensor: Any, lengths: Any, batch_first: bool) -> Any:  # noqa: FBT001
    """Return *lengths*, or the greatest of the sequences in *tensor*.

    What was read without values is all zeros, which no sequence may have for a length.
    """
    longest = tensor.size(int(batch_first))
    return lengths if lengths.any() else torch.full_like(lengths, longest)


GUESSED: Final[dict[str, Callable[..., Any]]] = {
    "_coalesce": coalesced,
    "_local_scalar_dense": local_scalar_dense,
    "_pack_padded_sequence": packed,
    "_unique2": unique,
    "allclose": equal,
    "equal": equal,
    "masked_select": masked_select,
    "nonzero": nonzero,
    "repeat_interleave": repeat_interleave,
    "sparse_mask": sparse_mask,
    "unique_consecutive": unique,
}
"""Operations with results that depend on values, and what they give without any."""
