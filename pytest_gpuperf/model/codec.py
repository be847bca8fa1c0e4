"""Values to JSON and back, by the types of their fields."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cache, partial
from pathlib import Path
from typing import (
    Any,
    Final,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)


T = TypeVar("T")
Reader = Callable[[Any], Any]

ALWAYS: Final = {"written": "always"}
"""Metadata of a field that ``encode_briefly`` writes at its default too."""

RARELY: Final = {"written": "rarely"}
"""Metadata of a field that ``encode`` does not write at its default either."""


def encode(value: object) -> Any:
    """Convert *value* for ``json.dumps``: frozen dataclasses, enums, paths, maps, tuples."""
    if is_dataclass(value):
        return {
            f.name: encode(getattr(value, f.name))
            for f in fields(value)
            if f.metadata != RARELY or getattr(value, f.name) != f.default
        }
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {key: encode(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [encode(item) for item in value]
    return value


def encode_briefly(value: object) -> Any:
    """Convert *value* as ``encode`` does, without fields at their defaults."""
    if is_dataclass(value):
        return {
            f.name: encode_briefly(item)
            for f in fields(value)
            if (item := getattr(value, f.name)) != _default(f) or f.metadata == ALWAYS
        }
    if isinstance(value, Mapping):
        return {key: encode_briefly(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [encode_briefly(item) for item in value]
    return encode(value)


def _default(of: Field[Any]) -> object:
    return of.default if of.default_factory is MISSING else of.default_factory()


def decode(kind: type[T], raw: Any) -> T:
    """Read a *kind* from what ``encode`` made of one.

    Raises ``TypeError``, ``ValueError`` or ``KeyError`` where *raw* has another shape.
    """
    decoded: T = _reader(cast("Any", kind))(raw)
    return decoded


@cache
def _reader(kind: Any) -> Reader:
    """Return the reader of a *kind*; cached, as inspecting a type is slow."""
    origin, args = get_origin(kind), get_args(kind)
    if is_dataclass(kind):
        return partial(_decode_dataclass, kind)
    if origin in {Union, types.UnionType}:
        only = next(arg for arg in args if arg is not type(None))
        reader = _reader(only)
        return partial(_decode_optional, reader) if type(None) in args else reader
    if origin is tuple:
        return partial(_decode_tuple, args)
    if origin is not None and issubclass(origin, Mapping):
        return partial(_decode_map, _reader(args[1]))
    if isinstance(kind, type) and issubclass(kind, (Enum, Path)):
        return kind
    return partial(_decode_plain, kind)


def _decode_dataclass(kind: Any, raw: Any) -> Any:
    _require(raw, Mapping, f"an object for {kind.__name__}")
    readers = _readers(kind)
    if not raw.keys() <= readers.keys():
        msg = (
            f"{kind.__name__} has no field {', '.join(sorted(set(raw) - set(readers)))}"
        )
        raise KeyError(msg)
    return kind(**{name: readers[name](item) for name, item in raw.items()})


@cache
def _readers(kind: Any) -> dict[str, Reader]:
    """Return what reads each field of *kind*."""
    return {name: _reader(hint) for name, hint in get_type_hints(kind).items()}


def _decode_optional(reader: Reader, raw: Any) -> Any:
    return None if raw is None else reader(raw)


def _decode_map(reader: Reader, raw: Any) -> dict[str, Any]:
    _require(raw, Mapping, "an object")
    return {key: reader(item) for key, item in raw.items()}


def _decode_tuple(args: tuple[Any, ...], raw: Any) -> tuple[Any, ...]:
    _require(raw, (list, tuple), "a list")
    # The names of all tests come here, a hundred thousand of them.
    if args == (str, Ellipsis) and set(map(type, raw)) <= {str}:  # many, quickly
        return tuple(raw)
    if args[-1] is Ellipsis:
        return tuple(map(_reader(args[0]), raw))
    readers = map(_reader, args)
    return tuple(reader(item) for reader, item in zip(readers, raw, strict=True))


def _decode_plain(kind: Any, raw: Any) -> Any:
    if kind in {Any, object}:
        return raw
    # JSON writes a float without a fraction as a whole number.
    if kind is float and type(raw) is int:
        return _float(raw)
    # Not isinstance: a bool is an int there.
    if type(raw) is not kind:
        msg = f"expected {kind.__name__}, found {raw!r}"
        raise TypeError(msg)
    return raw


def _float(raw: int) -> float:
    try:
        return float(raw)
    except OverflowError:
        msg = "a whole number is too large for a float"
        raise ValueError(msg) from None


def _require(raw: Any, kinds: type | tuple[type, ...], wanted: str) -> None:
    if not isinstance(raw, kinds):
        msg = f"expected {wanted}, found {raw!r}"
        raise TypeError(msg)
