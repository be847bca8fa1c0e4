"""The text of a stub for each symbol that no source has a body for."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final


HEAD: Final = """\
#include <stddef.h>
#include <stdlib.h>
#define EXPORT __attribute__((visibility("default"), weak))
"""

NOTED: Final = "void stub_unhandled(const char *);\n"
UNNOTED: Final = "static void stub_unhandled(const char *name) { (void)name; }\n"
"""NVML can be loaded where the runtime is not."""

PRODUCTS: Final = "int stub_cublas(const char *, void *, int, int, int);\n"

ANSWERS: Final = (
    (r"cusolverDn[SDCZ](potrf|getrf|geqrf)_bufferSize", (5,), "int", 1024),
    (r"cusolverDn[SDCZ](orgqr|ungqr)_bufferSize", (7,), "int", 1024),
    (r"cusolverDn[SDCZ](ormqr|unmqr)_bufferSize", (11,), "int", 1024),
    (r"cusolverDn[SDCZ](syev|heev)(d|j|jBatched)_bufferSize", (7,), "int", 1024),
    (r"cusolverDn[SDCZ]gesvd_bufferSize", (3,), "int", 1024),
    (r"cusolverDn[SDCZ]gesvdj_bufferSize", (12,), "int", 1024),
    (r"cusolverDn[SDCZ]gesvdjBatched_bufferSize", (11,), "int", 1024),
    (r"cusolverDn[SDCZ]gesvdaStridedBatched_bufferSize", (16,), "int", 1024),
    (r"cusolverDn[SDCZ]sytrf_bufferSize", (4,), "int", 1024),
    (r"cusolverDnXpotrf_bufferSize", (8, 9), "size_t", 1024),
    (r"cusolverDnXgeqrf_bufferSize", (10, 11), "size_t", 1024),
    (r"cusolverDnXsyev(d|Batched)_bufferSize", (11, 12), "size_t", 1024),
    (r"cusolverDnXsytrs_bufferSize", (11, 12), "size_t", 1024),
    (r"cusolverDnXgeev_bufferSize", (17, 18), "size_t", 1024),
    (r"cufftXtMakePlanMany", (12,), "size_t", 1024),
    (r"cusparseSpMV_bufferSize", (9,), "size_t", 1024),
    (r"cusparse(SpMM|SDDMM)_bufferSize", (10,), "size_t", 1024),
    (r"cusparseSpSV_bufferSize", (9,), "size_t", 1024),
    (r"cusparseSpSM_bufferSize", (10,), "size_t", 1024),
    (r"cusparseSpGEMM_(workEstimation|compute)", (11,), "size_t", 1024),
    (r"cublas[SDCZ]geqrfBatched", (6,), "int", 0),
    (r"cublas[SDCZ]gelsBatched", (9,), "int", 0),
)
"""Functions that answer through their arguments: which take the answer, its type, and it.

A workspace is a guess, in elements or bytes. An answer that nobody wrote would be asked of
torch's allocator, and end in an absurd error about memory.
"""

TEXT: Final = re.compile(r"(String|ErrorName)$")
MAKES: Final = re.compile(r"(Create|_create)")
MAKES_NOT: Final = ("cudaGraph", "cudnnBackend", "cuda", "cuMem", "cuGreen", "ncclMem")
PLAIN_CUBLAS: Final = re.compile(r"cublas(?!Lt|Set|Get|Create|Destroy)")


def answering(name: str) -> str | None:
    for pattern, places, kind, answer in ANSWERS:
        if re.fullmatch(pattern, name):
            arguments = ", ".join(f"size_t a{i}" for i in range(20))
            answers = " ".join(f"*({kind} *)a{i} = {answer};" for i in places)
            return f"EXPORT int {name}({arguments}) {{ {answers} return 0; }}"
    return None


def stub(name: str) -> str:
    """C code of a function that is noted and answers success."""
    answers = answering(name)
    if answers:
        return answers
    if PLAIN_CUBLAS.match(name):
        return (
            f"EXPORT int {name}(void *h, int a, int b, int m, int n, int k) "
            f'{{ (void)a; (void)b; return stub_cublas("stub_{name}", h, m, n, k); }}'
        )
    if TEXT.search(name) and not name.startswith(("cuGet", "cupti")):
        return f'EXPORT const char *{name}(void) {{ return "stub"; }}'
    noted = f'stub_unhandled("{name}");'
    if MAKES.search(name) and not name.startswith(MAKES_NOT):
        return (
            f"EXPORT int {name}(void **out) "
            f"{{ {noted} *out = calloc(1, 256); return 0; }}"
        )
    return f"EXPORT int {name}(void) {{ {noted} return 0; }}"


NO_DEVICE: Final = 100
"""``cudaErrorNoDevice`` and ``CUDA_ERROR_NO_DEVICE``."""


def deviceless_file(names: Iterable[str]) -> str:
    """A C file in which each of *names* answers that there is no GPU."""
    bodies = (f"EXPORT int {name}(void) {{ return {NO_DEVICE}; }}" for name in names)
    return "\n".join([HEAD, *bodies, ""])


def written(sources: Iterable[Path]) -> set[str]:
    """Names of the functions that *sources* have a body for."""
    found: set[str] = set()
    for source in sources:
        text = source.read_text(encoding="utf-8")
        found |= set(re.findall(r"^EXPORT [\w \*]*?\**(\w+)\s*\(", text, re.MULTILINE))
        found |= set(re.findall(r"^COMPUTES\((\w+)\)", text, re.MULTILINE))
        for what in re.findall(r"^CREATES\((\w+),", text, re.MULTILINE):
            found |= {f"cudnn{verb}{what}Descriptor" for verb in ("Create", "Destroy")}
    return found


def stub_file(base: str, names: Iterable[str]) -> str:
    """A C file with a stub for each of *names*, which a body elsewhere replaces."""
    noting = UNNOTED if base == "libnvidia-ml" else NOTED
    products = PRODUCTS if base == "libcublas" else ""
    return "\n".join([HEAD + noting + products, *map(stub, sorted(names)), ""])
