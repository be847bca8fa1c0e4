"""Values to JSON and back, by the types of their fields."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING
from dataclasses import Field
from dataclasses import fields
from dataclasses import is_dataclass
from enum import Enum
from functools import cache
from typing import Any
from typing import TypeVar
from typing import Union
from typing import get_args
from typing import get_origin
from typing import get_type_hints


T = TypeVar("T")


def encode(value: object) -> Any:
    """*value* as what ``json.dumps`` takes: frozen dataclasses, enums, maps, tuples."""
    if is_dataclass(value):
        return {f.name: encode(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {key: encode(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [encode(item) for item in value]
    return value


def encode_briefly(value: object) -> Any:
    """*value* as ``encode`` does, without the fields that are at their defaults."""
    if is_dataclass(value):
        return {
            f.name: encode_briefly(item)
            for f in fields(value)
            if (item := getattr(value, f.name)) != _default(f)
        }
    if isinstance(value, Mapping):
        return {key: encode_briefly(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [encode_briefly(item) for item in value]
    return encode(value)


def _default(field: Field[Any]) -> object:
    return (
        field.default if field.default_factory is MISSING else field.default_factory()
    )


def decode(kind: type[T], raw: Any) -> T:
    """A *kind* from what ``encode`` made of one.

    Raises ``TypeError``, ``ValueError`` or ``KeyError`` where *raw* has another shape.
    """
    decoded: T = _decode(kind, raw)
    return decoded


def _decode(kind: Any, raw: Any) -> Any:
    if is_dataclass(kind):
        return _decode_dataclass(kind, raw)
    origin = get_origin(kind)
    if origin in {Union, types.UnionType}:
        return _decode_optional(kind, raw)
    if origin is tuple:
        return _decode_tuple(get_args(kind), raw)
    if origin is not None and issubclass(origin, Mapping):
        return _decode_map(get_args(kind)[1], raw)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(raw)
    return _decode_plain(kind, raw)


def _decode_dataclass(kind: Any, raw: Any) -> Any:
    _require(raw, Mapping, f"an object for {kind.__name__}")
    hints = _hints(kind)
    unknown = sorted(set(raw) - set(hints))
    if unknown:
        msg = f"{kind.__name__} has no field {', '.join(unknown)}"
        raise KeyError(msg)
    return kind(**{name: _decode(hints[name], item) for name, item in raw.items()})


@cache
def _hints(kind: Any) -> dict[str, Any]:
    """Types of the fields of *kind*; to resolve them takes longer than to decode one."""
    return get_type_hints(kind)


def _decode_optional(kind: Any, raw: Any) -> Any:
    if raw is None and type(None) in get_args(kind):
        return None
    (only, *_) = [arg for arg in get_args(kind) if arg is not type(None)]
    return _decode(only, raw)


def _decode_map(kind: Any, raw: Any) -> dict[str, Any]:
    _require(raw, Mapping, "an object")
    return {key: _decode(kind, item) for key, item in raw.items()}


def _decode_tuple(args: tuple[Any, ...], raw: Any) -> tuple[Any, ...]:
    _require(raw, (list, tuple), "a list")
    if args == (str, Ellipsis) and set(map(type, raw)) <= {str}:  # many, quickly
        return tuple(raw)
    kinds = [args[0]] * len(raw) if args[-1] is Ellipsis else args
    return tuple(_decode(kind, item) for kind, item in zip(kinds, raw, strict=True))


def _decode_plain(kind: Any, raw: Any) -> Any:
    if kind in {Any, object}:
        return raw
    if kind is float and type(raw) is int:
        return float(raw)
    if type(raw) is not kind:
        msg = f"expected {kind.__name__}, found {raw!r}"
        raise TypeError(msg)
    return raw


def _require(raw: Any, kinds: type | tuple[type, ...], wanted: str) -> None:
    if not isinstance(raw, kinds):
        msg = f"expected {wanted}, found {raw!r}"
        raise TypeError(msg)
