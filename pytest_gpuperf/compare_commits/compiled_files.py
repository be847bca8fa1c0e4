"""Finds compiled modules that are only in the working tree because git does not
track them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import PurePosixPath
from typing import Final

from ..runner.git import run_git


NO_MODULE: Final = re.compile(r"No module named '([\w.]+)'")
NO_NAME: Final = re.compile(
    r"cannot import name '(\w+)' from (?:partially initialized module )?'([\w.]+)'"
)
NO_FILE: Final = re.compile(r"[\w./-]+\.(?:so|pyd|dylib)\b")

SUFFIXES: Final = (*EXTENSION_SUFFIXES, ".so", ".pyd", ".dylib")


def unbuilt(error: str, top: str) -> str:
    """Say which compiled file of the repository at *top* a side lacks, if *error* does.

    Nothing if it is about something else, or git knows of no such file there.
    """
    path = next((p for p in _untracked(top) if _is_meant(p, error)), None)
    if path is None:
        return ""
    return (
        f"; the working tree has {path}, which git does not track, so no other version "
        "has it: build it on import, as torch.utils.cpp_extension.load does, or install "
        "it as a separate package"
    )


def _untracked(top: str) -> Iterator[PurePosixPath]:
    """Name the compiled files that git does not track or ignores."""
    listed = run_git(top, "ls-files", "--others", "-z").stdout.split("\0")
    return (PurePosixPath(name) for name in listed if name.endswith(SUFFIXES))


def _is_meant(path: PurePosixPath, error: str) -> bool:
    """Whether *error* misses the module, or the file, that is at *path*."""
    if any(PurePosixPath(f).name == path.name for f in NO_FILE.findall(error)):
        return True
    # ``pkg/_C.cpython-311-x86_64.so`` is imported as ``pkg._C``, maybe from a folder
    # above.
    module = (*path.parent.parts, path.name.partition(".")[0])
    return any(module[-len(name) :] == name for name in _missing_modules(error))


def _missing_modules(error: str) -> Iterator[tuple[str, ...]]:
    for name in NO_MODULE.findall(error):
        yield tuple(name.split("."))
    for name, package in NO_NAME.findall(error):
        yield (*package.split("."), name)
