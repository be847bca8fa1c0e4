"""The torch for CUDA that the stubs stand under: which versions, and how one is installed."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from build import CannotBuildError, Torch, build, package_folder, require_tools


ROOT: Final = Path(__file__).parents[2]

FETCH_SECONDS: Final = 400
"""For the wheel, of about half a gigabyte."""

MINOR_TORCHES: Final = (
    *("2.6.0", "2.7.0", "2.8.0", "2.9.0", "2.10.0"),
    *("2.11.0", "2.12.0", "2.14.0", "2.15.0"),
)
"""Of each supported minor version the first: its users were warned first. All other tests
run on the pinned one."""

NEWEST_TORCHES: Final = (
    *("2.6.0", "2.7.1", "2.8.0", "2.9.1", "2.10.0"),
    *("2.11.0", "2.12.1", "2.13.0", "2.14.1", "2.15.0"),
)
"""Of each supported minor version the last: what a reader of a table of them has."""


def pinned_torch() -> str:
    pinned = re.search(
        r"^torch==(\S+)$", (ROOT / "constraints.txt").read_text("utf-8"), re.MULTILINE
    )
    return pinned[1] if pinned else ""


def wanted_torch() -> str:
    """The version that the environment asks for, or else the one that is pinned."""
    return os.environ.get("TORCH") or pinned_torch()


CAPPED: Final = "ResolutionImpossible"
"""What pip prints of one package without what it requires, if a constraint excludes it."""


def has_cuda_build(version: str) -> bool:
    importlib.invalidate_caches()
    try:
        return Torch.of_this_interpreter().version == version
    except CannotBuildError:
        return False


def install_torch(version: str) -> None:
    """Install the build of PyPI, which is for CUDA, and none of CUDA's libraries.

    ``===`` compares letters, so that no local version such as ``+cpu`` is taken.
    """
    if has_cuda_build(version):
        return
    said = pip_install("--force-reinstall", f"torch==={version}")
    if has_cuda_build(version):
        return
    if CAPPED in said:
        msg = (
            f"pip's configuration has a constraint that excludes torch {version}; lift it, "
            "or go past it with PIP_CONFIG_FILE=/dev/null in front of the command"
        )
        raise CannotBuildError(msg)
    msg = f"the CUDA build of torch {version} cannot be fetched"
    raise CannotBuildError(msg)


def install_triton() -> None:
    """Install the Triton that this torch requires; without it, its tests skip themselves."""
    required = Torch.of_this_interpreter().triton()
    if not required:
        return
    pip_install(required)
    importlib.invalidate_caches()
    if package_folder("triton") is None:
        print(f"{required} cannot be fetched: nothing is compiled for the GPU")  # noqa: T201


def pip_install(*what: str) -> str:
    """Run pip, show what it says and return that."""
    # To compile all of torch takes longer than to compile what is imported of it.
    flags = ("--quiet", "--no-deps", "--no-compile")
    pip = [sys.executable, "-m", "pip", "install", *flags]
    with suppress(subprocess.TimeoutExpired):
        done = subprocess.run(
            [*pip, *what],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=FETCH_SECONDS,
        )
        print(done.stdout, end="")  # noqa: T201
        return done.stdout
    return ""


def prepare(version: str, out: Path) -> None:
    """Install this torch and its Triton, and build the stubs for it."""
    require_tools()  # before half a gigabyte is fetched
    install_torch(version)
    install_triton()
    build(out)
