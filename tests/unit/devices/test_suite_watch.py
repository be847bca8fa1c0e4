"""The name of what keeps a tensor alive: an attribute, a key or an element."""

from __future__ import annotations

import sys
from collections.abc import Callable
from collections.abc import Iterator
from types import ModuleType
from types import SimpleNamespace

import pytest


torch = pytest.importorskip("torch")

from pytest_gpuperf.devices.suite_watch import keeper_of  # noqa: E402


class Kept:
    """Stands for a tensor: the collector knows it."""


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    kept = ModuleType("package")
    monkeypatch.setitem(sys.modules, "package", kept)
    yield kept
    vars(kept).clear()


@pytest.mark.parametrize(
    ("keep", "name"),
    [
        (lambda kept: kept, "package.CACHE"),
        (lambda kept: {"a": kept}, "package.CACHE['a']"),
        (lambda kept: {"a": [kept]}, "package.CACHE['a'][...]"),
        (lambda kept: SimpleNamespace(a=kept), "package.CACHE.a"),
    ],
)
def test_it_is_named_as_the_program_reaches_it(
    module: ModuleType, keep: Callable[[Kept], object], name: str
) -> None:
    thing = Kept()
    module.CACHE = keep(thing)

    assert keeper_of(thing) == name
