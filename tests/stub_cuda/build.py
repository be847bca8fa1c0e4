"""Build stub libraries of CUDA for the torch of this interpreter.

    python tests/stub_cuda/build.py OUT

Writes ``OUT/libs``, which belongs in ``LD_LIBRARY_PATH`` when torch is imported.
The public headers come from the packages that torch itself depends on; no library of
NVIDIA is installed. Exit status: 0, or 3 with a sentence why it cannot be done here.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from imports import RUNTIME, Library, wanted
from stubs import deviceless_file, stub_file, written


SOURCES: Final = Path(__file__).parent / "src"

OWN: Final = {
    "libcudart": (
        "calls",
        "clock",
        "copies",
        "devices",
        "effects",
        "graphs",
        "kernels",
        "memory",
        "streams",
    ),
    "libcuda": ("cuda", "modules"),
    "libcupti": ("cupti",),
    "libnvidia-ml": ("nvml",),
    "libcublas": ("cublas",),
    "libcublasLt": ("cublaslt",),
    "libcudnn": ("cudnn", "cudnn_rnn"),
    "libnvrtc": ("nvrtc",),
    "libnccl": ("nccl",),
}
"""Sources of each library, next to its generated stubs; the others have those alone."""

LOADED_ALONE: Final = ("libnvidia-ml",)
"""Libraries that are not linked with the runtime."""

COMPILER: Final = [
    "gcc",
    "-shared",
    "-fPIC",
    "-O2",
    "-g1",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
    "-Wno-unused-parameter",
    "-Wno-stringop-truncation",
]

MIRROR: Final = "libgpuperf_mirror.so"
"""Computes the values of CUDA tensors, where a compiler of C++ is at hand."""

MIRROR_COMPILER: Final = [
    *("g++", "-shared", "-std=c++20", "-fPIC", "-O1", "-fvisibility=hidden"),
    *("-Wall", "-Wextra"),
    *("-Wno-unused-parameter", "-Wno-stringop-overflow"),
]

HEADER_PACKAGES: Final = re.compile(
    r"^Requires-Dist: (?:(cuda-toolkit)\[[^\]]*\]|(nvidia-cuda-(?:runtime|cupti)\S*?))"
    r"\s*\(?==([\w.]+)",
    re.MULTILINE,
)
HEADERS: Final = ("cuda_runtime_api.h", "cupti.h", "crt/host_defines.h")
"""One of each folder to include: the compiler's package has the last, before CUDA 13."""

TRITON: Final = re.compile(r"^Requires-Dist: triton\s*\(?([^;)\s]+)", re.MULTILINE)
CUDNN: Final = re.compile(r"nvidia-cudnn\S*?\s*\(?==(\d+)\.(\d+)\.(\d+)")
"""Older torch has what it requires in brackets: ``triton (==3.2.0)``."""
RECORD: Final = re.compile(
    r"^\} (CUpti_Activity(Kernel|Memcpy|Memset|Synchronization|CudaEvent)\d*);",
    re.MULTILINE,
)
CBID: Final = re.compile(r"CUPTI_RUNTIME_TRACE_CBID_(\w+?)(_v\d+)\s*=\s*(\d+)")
DRIVER_CBID: Final = re.compile(r"CUPTI_DRIVER_TRACE_CBID_(cu\w+)()\s*=\s*(\d+)")


class CannotBuildError(Exception):
    """Says in one sentence why the stubs cannot be built here."""


def package_folder(name: str) -> Path | None:
    """Find a package without importing it: it may lack its libraries."""
    spec = importlib.util.find_spec(name)
    return Path(spec.origin).parent if spec and spec.origin else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Torch:
    """An installed torch: its folder of libraries and what it says that it requires."""

    libraries: Path
    metadata: str

    @classmethod
    def of_this_interpreter(cls) -> Torch:
        folder = package_folder("torch")
        if folder is None:
            msg = "torch is not installed"
            raise CannotBuildError(msg)
        if not (folder / "lib" / "libtorch_cuda.so").is_file():
            msg = "the torch of this interpreter is no build for CUDA"
            raise CannotBuildError(msg)
        metadata = next(folder.parent.glob("torch-*.dist-info")) / "METADATA"
        return cls(
            libraries=folder / "lib", metadata=metadata.read_text(encoding="utf-8")
        )

    @property
    def version(self) -> str:
        found = re.search(r"^Version: (\S+)$", self.metadata, re.MULTILINE)
        return found[1] if found else ""

    def header_packages(self) -> list[str]:
        """Requirements that bring the headers of the runtime and of CUPTI."""
        found = []
        for toolkit, package, version in HEADER_PACKAGES.findall(self.metadata):
            name = "cuda-toolkit[cudart,cupti,crt]" if toolkit else package
            found.append(f"{name}=={version}")
            if "runtime" in package:
                release = version.rpartition(".")[0]
                compiler = package.replace("runtime", "nvcc")
                found.append(f"{compiler}=={release}.*")
        return found

    def triton(self) -> str:
        """The Triton that it requires; empty for none."""
        found = TRITON.search(self.metadata)
        return f"triton{found[1]}" if found else ""

    def cudnn(self) -> tuple[str, ...]:
        found = CUDNN.search(self.metadata)
        return found.groups() if found else ("9", "0", "0")


def require_tools() -> None:
    for tool in ("gcc", "nm", "readelf"):
        if shutil.which(tool) is None:
            msg = f"there is no {tool} on this machine"
            raise CannotBuildError(msg)


def fetch_headers(torch: Torch, out: Path) -> list[Path]:
    """Install the packages with headers into a folder of their own."""
    folder = out / f"headers-{torch.version}"
    if not folder.is_dir():
        pip = (sys.executable, "-m", "pip", "install", "--quiet", "--target")
        done = subprocess.run(
            [*pip, str(folder), *torch.header_packages()],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            shutil.rmtree(folder, ignore_errors=True)
            msg = "the packages with CUDA's headers cannot be fetched"
            raise CannotBuildError(msg)
    return sorted({found for name in HEADERS for found in having(folder, name)})


def having(folder: Path, name: str) -> Iterator[Path]:
    """Folders below *folder* from which *name* is included."""
    for header in folder.rglob(name):
        yield Path(str(header).removesuffix(name))


def header_text(include: list[Path], name: str) -> str:
    header = next(p for folder in include for p in folder.glob(name))
    return header.read_text(encoding="utf-8")


def table_of_names(table: str, functions: list[tuple[str, str, str]]) -> str:
    """A table in C of (name, version, number): names by CUPTI's numbers."""
    names = [
        f'  [{number}] = "{name}{version}",' for name, version, number in functions
    ]
    return "\n".join([f"static const char *const {table}[] = {{", *names, "};", ""])


def generate_headers(torch: Torch, include: list[Path], out: Path) -> None:
    """Write CUPTI's numbers of functions, its newest records and the version of cuDNN."""
    functions = CBID.findall(header_text(include, "cupti_runtime_cbid.h"))
    newest = {
        name: number
        for name, _, number in functions
        if not name.endswith(("_ptsz", "_ptds"))
    }
    (out / "cbid.h").write_text(
        "".join(f"#define CBID_{name} {newest[name]}\n" for name in newest)
    )
    of_driver = DRIVER_CBID.findall(header_text(include, "cupti_driver_cbid.h"))
    (out / "cbid_names.h").write_text(
        table_of_names("cbid_names", functions)
        + table_of_names("driver_cbid_names", of_driver)
    )
    records = RECORD.findall(header_text(include, "cupti_activity.h"))
    typedefs = [f"typedef {record} newest_{kind};\n" for record, kind in records]
    (out / "records.h").write_text("".join(["#include <cupti.h>\n", *typedefs]))
    parts = zip(("MAJOR", "MINOR", "PATCH"), torch.cudnn(), strict=True)
    (out / "versions.h").write_text(
        "".join(f"#define CUDNN_{part} {number}\n" for part, number in parts)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """Compiles libraries into *libs*, with generated files in *work*."""

    libs: Path
    work: Path
    include: list[Path]
    runtime: str
    is_deviceless: bool = False

    def sources(self, library: Library) -> list[Path]:
        if self.is_deviceless:
            return []
        return [SOURCES / f"{name}.c" for name in OWN.get(library.base, ())]

    def compile(self, library: Library) -> str:
        """Write, compile and replace one library; say how much of it is written."""
        own = self.sources(library)
        has = written(own)
        stubs = self.work / f"{library.base}.c"
        missing = library.symbols - has
        text = (
            deviceless_file(missing)
            if self.is_deviceless
            else stub_file(library.base, missing)
        )
        stubs.write_text(text, encoding="utf-8")
        made = self.work / library.soname
        command = [*COMPILER, "-o", str(made), *self.options(library)]
        done = subprocess.run(
            [*command, str(stubs), *map(str, own), *self.linked(library)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            msg = f"{library.soname} cannot be compiled:\n{done.stderr}"
            raise CannotBuildError(msg)
        # Whoever runs from the old library keeps it: the linker would write into it.
        made.replace(self.libs / library.soname)
        return f"{library.soname}: {len(has)} written, {len(missing)} generated"

    def options(self, library: Library) -> Iterator[str]:
        for folder in (*self.include, self.work, SOURCES):
            yield f"-I{folder}"
        yield f"-Wl,-soname,{library.soname}"
        if library.node:
            script = self.work / f"{library.base}.map"
            script.write_text(f"{library.node} {{ global: *; }};\n", encoding="utf-8")
            yield f"-Wl,--version-script,{script}"

    def linked(self, library: Library) -> list[str]:
        apart = self.is_deviceless or library.base in (RUNTIME, *LOADED_ALONE)
        with_runtime = [] if apart else [f"-L{self.libs}", f"-l:{self.runtime}"]
        return [*with_runtime, "-ldl", "-lpthread", "-lrt"]


def compile_clock(libs: Path) -> str:
    """Compile what makes the virtual clock that of a whole process."""
    made = libs / "libgpuperf_clock.so"
    source = SOURCES / "preload" / "process_clock.c"
    subprocess.run([*COMPILER, "-o", str(made), str(source), "-ldl"], check=True)
    return f"{made.name}: to be preloaded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirror:
    """Compiles the mirror of values, which is written against torch's own headers."""

    torch: Torch
    include: list[Path]
    libs: Path
    work: Path

    def compile(self) -> str:
        """Compile and link it; say so, or why there is none."""
        if shutil.which("g++") is None:
            return f"{MIRROR}: not built, there is no g++ on this machine"
        made = self.work / MIRROR
        command = [*MIRROR_COMPILER, *self.options(), str(self.whole()), *self.linked()]
        done = subprocess.run(
            [*command, "-o", str(made)], stderr=subprocess.PIPE, text=True, check=False
        )
        print(done.stderr, file=sys.stderr, end="")  # noqa: T201, for who builds
        if done.returncode:
            return f"{MIRROR}: not built, it does not fit torch {self.torch.version}"
        made.replace(self.libs / MIRROR)
        return f"{MIRROR}: values, where GPUPERF_STUB_VALUES=mirror asks for them"

    def whole(self) -> Path:
        """All sources as one: to read torch's headers takes longer than all else."""
        sources = sorted((SOURCES / "mirror").glob("*.cpp"))
        whole = self.work / "mirror.cpp"
        whole.write_text("".join(f'#include "{path}"\n' for path in sources), "utf-8")
        return whole

    def options(self) -> Iterator[str]:
        headers = self.torch.libraries.parent / "include"
        for folder in (headers, headers / "torch/csrc/api/include", *self.include):
            yield f"-I{folder}"
        # Before 2.7, torch has the strings of an older C++.
        has_new_strings = (
            b"B5cxx11" in (self.torch.libraries / "libc10.so").read_bytes()
        )
        yield f"-D_GLIBCXX_USE_CXX11_ABI={int(has_new_strings)}"

    def linked(self) -> list[str]:
        runtime = next(self.libs.glob("libcudart.so.*"))
        torch = [f"-L{self.torch.libraries}", "-ltorch_cpu", "-lc10", "-lc10_cuda"]
        return [*torch, f"-L{self.libs}", f"-l:{runtime.name}"]


def build(out: Path) -> list[str]:
    """Build all libraries into ``out/libs``; return a line about each."""
    require_tools()
    torch = Torch.of_this_interpreter()
    out.mkdir(parents=True, exist_ok=True)
    include = fetch_headers(torch, out)
    libs, work = out / "libs", out / "generated"
    libs.mkdir(exist_ok=True)
    work.mkdir(exist_ok=True)
    generate_headers(torch, include, work)
    runtime, *others = wanted(torch.libraries, package_folder("triton"))
    making = Build(libs=libs, work=work, include=include, runtime=runtime.soname)
    lines = [making.compile(runtime)]  # the others are linked with it
    with ThreadPoolExecutor() as pool:
        lines += pool.map(making.compile, others)
    mirror = Mirror(torch=torch, include=include, libs=libs, work=work)
    return [*lines, compile_clock(libs), mirror.compile()]


def build_deviceless(out: Path) -> None:
    """Build into ``out/libs`` what any torch for CUDA is imported with, without a GPU.

    The stubs of ``build`` are written against the headers of one CUDA; this needs none.
    """
    require_tools()
    libs, work = out / "libs", out / "generated"
    libs.mkdir(parents=True, exist_ok=True)
    work.mkdir(exist_ok=True)
    making = Build(libs=libs, work=work, include=[], runtime="", is_deviceless=True)
    torch = Torch.of_this_interpreter()
    linked = [w for w in wanted(torch.libraries, None) if w.base not in LOADED_ALONE]
    with ThreadPoolExecutor() as pool:
        list(pool.map(making.compile, linked))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="folder to write into")
    options = parser.parse_args()
    try:
        print(*build(options.out.resolve()), sep="\n")  # noqa: T201, for who builds
    except CannotBuildError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
