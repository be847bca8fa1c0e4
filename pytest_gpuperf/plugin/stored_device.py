"""The device of a refresh that names tests and no device: that of their baselines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ..baselines.format import loads
from ..errors import BaselineError
from ..model.baseline import Baselines
from ..model.baseline import Refresh
from ..settings import Settings


def with_stored_device(config: pytest.Config, settings: Settings) -> Settings:
    """Choose the device that has baselines of the tests named, if one alone has.

    Nothing is chosen if a device is named, or if only missing baselines are wanted.
    """
    if settings.device or settings.update in {None, Refresh.MISSING}:
        return settings
    tests = [_node_id(config, argument) for argument in config.args]
    if not tests or not all(tests):
        return settings
    kinds = tuple(
        dict.fromkeys(
            stored.hardware.kind
            for stored in _all_in(settings.baselines)
            if any(_is_of(key, test) for key in stored.entries for test in tests)
        )
    )
    device = kinds[0] if len(kinds) == 1 else None
    return replace(settings, device=device, stored_on=kinds)


def _node_id(config: pytest.Config, argument: str) -> str:
    """Return the node id that *argument* names, from the rootdir on; else nothing."""
    file, of, name = argument.partition("::")
    path = (config.invocation_params.dir / file).resolve()
    root = config.rootpath.resolve()
    if not of or not path.is_relative_to(root):
        return ""
    return f"{path.relative_to(root).as_posix()}::{name}"


def _all_in(folder: Path) -> Iterator[Baselines]:
    """Yield the baselines that can be read; the run says what is wrong with its own."""
    return filter(None, map(_read, sorted(folder.glob("*.json"))))


def _read(path: Path) -> Baselines | None:
    try:
        return loads(path.read_text(encoding="utf-8"), str(path))
    except (BaselineError, OSError, UnicodeDecodeError):
        return None


def _is_of(key: str, test: str) -> bool:
    return key == test or key.startswith((f"{test}[", f"{test}::", f"{test}#"))
