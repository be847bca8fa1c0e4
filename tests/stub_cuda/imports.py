"""What torch's libraries want of CUDA's: each symbol, its library and its version node."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final


FAMILIES: Final = {
    "nccl": "libnccl",
    "cuFile": "libcufile",
    "cusparseLt": "libcusparseLt",
    "nvrtc": "libnvrtc",
    "nvshmem": "libnvshmem_host",
}
"""The library of a symbol that has no version, by the beginning of its name."""

DRIVER: Final = "libcuda.so.1"
NVML: Final = "libnvidia-ml.so.1"
RUNTIME: Final = "libcudart"

OF_CUDA: Final = re.compile(
    r"(cuda|__cuda|cu[A-Z]|cu(blas|dnn|sparse|solver|fft|rand|pti)|nccl|nvrtc|nvshmem)"
)
NEEDED: Final = re.compile(r"\(NEEDED\).*\[(lib(?:cu|nccl|nvrtc|nvshmem)[^\]]*)\]")

DRIVER_NAMES: Final = rb"(?<=\0)cu[A-Z][a-z]+[A-Z]\w+(?=\0)"
NVML_NAMES: Final = rb"(?<=\0)nvml[A-Z]\w+(?=\0)"
"""torch looks these up by name, so they are among its strings."""

TRITON_NAMES: Final = rb"\bcu[A-Z][a-z]+[A-Z][A-Za-z0-9]+\b(?=[(),])"
"""What Triton calls and looks up: its part next to the driver comes as C source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """A library to build: its *symbols*, in a version *node* or in none."""

    soname: str
    node: str | None
    symbols: frozenset[str]

    @property
    def base(self) -> str:
        """``libcudart`` of ``libcudart.so.13``."""
        return self.soname.split(".so")[0]


def printed(*command: str) -> list[str]:
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


def sonames(libraries: list[Path]) -> set[str]:
    """CUDA's libraries that *libraries* are linked with, and two that are looked for."""
    lines = (line for lib in libraries for line in printed("readelf", "-dW", str(lib)))
    needed = {found[1] for line in lines if (found := NEEDED.search(line))}
    return needed | {DRIVER, NVML}


def imported(libraries: list[Path]) -> Iterator[tuple[str, str]]:
    """Each undefined symbol of CUDA's and its version, which may be empty."""
    for lib in libraries:
        listing = printed(
            "nm", "-D", "--undefined-only", "--with-symbol-versions", str(lib)
        )
        for line in listing:
            name, _, version = line.split()[-1].partition("@")
            if OF_CUDA.match(name):
                yield name, version


def home_of(name: str, version: str, known: set[str]) -> str:
    """The library among *known* that is to have the symbol."""
    if version.startswith("lib"):
        return version
    family = next((FAMILIES[f] for f in FAMILIES if name.startswith(f)), "libcuda")
    return next(
        (soname for soname in sorted(known) if soname.split(".so")[0] == family), DRIVER
    )


def looked_up(library: Path, pattern: bytes) -> set[str]:
    if not library.is_file():
        return set()
    return {name.decode() for name in re.findall(pattern, library.read_bytes())}


def wanted(folder: Path, triton: Path | None = None) -> list[Library]:
    """All libraries that torch's *folder* of libraries needs, the runtime first.

    Of the driver, what the package *triton* needs is in them too.
    """
    libraries = sorted(folder.glob("lib*.so"))
    known = sonames(libraries)
    symbols: dict[str, set[str]] = {soname: set() for soname in known}
    nodes: dict[str, str] = {}
    for name, version in imported(libraries):
        home = home_of(name, version, known)
        symbols.setdefault(home, set()).add(name)
        if version:
            nodes[home] = version
    symbols[DRIVER] |= looked_up(folder / "libc10_cuda.so", DRIVER_NAMES)
    if triton:
        source = triton / "backends" / "nvidia" / "driver.c"
        symbols[DRIVER] |= looked_up(source, TRITON_NAMES)
    for lib in ("libc10_cuda.so", "libtorch_cuda.so"):
        symbols[NVML] |= looked_up(folder / lib, NVML_NAMES)
    found = [
        Library(soname=soname, node=nodes.get(soname), symbols=frozenset(names))
        for soname, names in symbols.items()
    ]
    return sorted(found, key=lambda lib: (lib.base != RUNTIME, lib.soname))
