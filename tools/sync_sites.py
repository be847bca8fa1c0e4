"""Where an installed torch wheel waits for the device, against the table of rules.

    python tools/sync_sites.py [folder of the wheel's libraries]

A CUDA build of torch is needed, but no GPU: the machine code is read with objdump, which
takes a minute or two. Listed are the functions that call a CUDA synchronisation, or one of
torch's operations that do. Operations are known by the names of their kernels
(``wrapper_<key>_<overload>_<op>``, ``<op>_cuda``) that reach such a call over direct
calls. What goes over a dispatch stub, a virtual call or another library is not seen, and
a sync that is reached only in an error or for some arguments is: each difference from
the table is a question, not an answer.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final


LIBRARY: Final = "libtorch_cuda.so"
LIBRARIES: Final = (LIBRARY, "libc10_cuda.so")
USAGE_ERROR: Final = 4

FUNCTION: Final = re.compile(r"^[0-9a-f]+ <(?P<name>.+)>:$")
CALL: Final = re.compile(
    r"\s(?:call|jmp|bl|b)q?\s+(?:0x)?[0-9a-f]+ <(?P<name>[^>+]+)>$"
)
"""Of x86-64 and of arm64; a jump to the begin of a function is a call at its end."""

WAIT: Final = re.compile(
    r"cuda(?:Stream|Device|Event)Synchronize|warn_or_error_on_sync|cudaMemcpy(?:@|$)"
    r"|_ZNK2at6Tensor4item|_ZN2at4_ops\d+(?:item|_local_scalar_dense|nonzero|equal"
    r"|is_nonzero|_linalg_check_errors|masked_select|_unique2?|allclose)4call"
)
"""Mangled names of what waits: the runtime's functions and torch's operations."""

WRAPPER: Final = re.compile(r"\bwrapper_[A-Za-z]*CUDA_(?P<name>\w+)")
KERNEL: Final = re.compile(
    r"\bat::native::(?:\(anonymous namespace\)::)?(?P<op>_{0,2}[a-z]\w*?)"
    r"(?:_out)?_cuda(?:_out)?(?:_template)?_?(?:<|\()"
)

Calls = Mapping[str, frozenset[str]]


def calls_of(lines: Iterable[str]) -> Calls:
    """What each function in the output of ``objdump -d`` calls by name."""
    found: dict[str, set[str]] = defaultdict(set)
    function = ""
    for line in lines:
        if line.endswith(">:\n") and (begin := FUNCTION.match(line)):
            function = begin["name"]
        elif line.endswith(">\n") and (call := CALL.search(line)):
            found[function].add(call["name"])
    return {name: frozenset(called - {name}) for name, called in found.items()}


def direct_sites(calls: Calls) -> Mapping[str, tuple[str, ...]]:
    """Return the functions that wait themselves, each with the calls that do."""
    waits = {
        n: sorted(c for c in called if WAIT.search(c)) for n, called in calls.items()
    }
    return {name: tuple(called) for name, called in waits.items() if called}


def reaching(calls: Calls, sites: Iterable[str]) -> frozenset[str]:
    """Return the functions from which direct calls lead to one of *sites*."""
    callers: dict[str, set[str]] = defaultdict(set)
    for name, called in calls.items():
        for callee in called:
            callers[callee.removesuffix("@plt")].add(name)
    found = set(sites)
    pending = list(found)
    while pending:
        new = callers[pending.pop()] - found
        found |= new
        pending += new
    return frozenset(found)


def operations(
    demangled: Iterable[str], registered: Mapping[str, str]
) -> frozenset[str]:
    """Names of the operations whose kernels are among functions.

    *registered* are all operations there are, by ``<overload>_<op>``.
    """
    known = {op.strip("_"): op for op in registered.values()}
    found = set()
    for name in demangled:
        if wrapper := WRAPPER.search(name):
            found.add(registered.get(wrapper["name"]))
        elif kernel := KERNEL.search(name):
            found.add(known.get(kernel["op"].strip("_")))
    return frozenset(op for op in found if op is not None)


def differences(
    binary: Iterable[str], table: Iterable[str]
) -> tuple[list[str], list[str]]:
    """Return the operations only the binary waits in, and those only the table names.

    An operation in place or with an output is the operation.
    """
    here = {name.strip("_"): name for name in binary}
    there = {name.strip("_"): name for name in table}
    return (
        sorted(here[key] for key in here.keys() - there.keys()),
        sorted(there[key] for key in there.keys() - here.keys()),
    )


def report(
    calls: Calls,
    names: Mapping[str, str],
    registered: Mapping[str, str],
    table: Iterable[str],
) -> Iterator[str]:
    """Lines of the report; *names* are the demangled names of functions."""
    sites = direct_sites(calls)
    yield f"{len(sites)} functions call what waits:"
    for name, waits in sorted(sites.items(), key=lambda site: names[site[0]]):
        yield f"  {names[name]}: {', '.join(names.get(w, w) for w in waits)}"
    reached = (names[name] for name in reaching(calls, sites))
    found = operations(reached, registered)
    new, unseen = differences(found, table)
    yield f"{len(new)} operations reach a sync and have no rule: {', '.join(new)}"
    yield f"{len(unseen)} have a rule and reach none by name: {', '.join(unseen)}"


def disassembled(library: Path) -> Iterator[str]:
    command = ["objdump", "-d", "--no-show-raw-insn", "-j", ".text", str(library)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as objdump:
        assert objdump.stdout is not None
        yield from objdump.stdout


def demangled(names: Sequence[str]) -> Mapping[str, str]:
    plain = subprocess.run(
        ["c++filt"],
        input="\n".join(names),
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    return dict(zip(names, plain, strict=True))


def table_operations() -> frozenset[str]:
    from pytest_gpuperf.devices.simulated.sync_rules import rules_by_op

    return frozenset(rules_by_op())


def registered_operations() -> Mapping[str, str]:
    import torch

    return {
        f"{schema.overload_name}_{name}": name
        for schema in torch._C._jit_get_all_schemas()  # noqa: SLF001, there is no public list
        if (name := schema.name.removeprefix("aten::"))
    }


def installed_libraries() -> Path | None:
    spec = find_spec("torch")
    return Path(spec.origin).parent / "lib" if spec and spec.origin else None


def objection(folder: Path | None) -> str | None:
    """Why *folder* cannot be read, if it cannot."""
    if folder is None:
        return "torch is not installed here; expected a CUDA build of it"
    if not (folder / LIBRARY).exists():
        return (
            f"{folder} holds no {LIBRARY}: this is no CUDA build of torch; name the "
            "folder torch/lib of one, unpacked from its wheel (no GPU is needed)"
        )
    missing = [tool for tool in ("objdump", "c++filt") if shutil.which(tool) is None]
    return f"{' and '.join(missing)} not found: install binutils" if missing else None


def main(arguments: Sequence[str]) -> int:
    folder = Path(arguments[0]) if arguments else installed_libraries()
    complaint = objection(folder)
    if complaint is not None or folder is None:
        sys.stderr.write(f"sync_sites: {complaint}\n")
        return USAGE_ERROR
    calls: dict[str, frozenset[str]] = {}
    for library in LIBRARIES:
        calls |= calls_of(disassembled(folder / library))
    sites = direct_sites(calls)
    called = [wait for waits in sites.values() for wait in waits]
    names = demangled(sorted({*reaching(calls, sites), *called}))
    for line in report(calls, names, registered_operations(), table_operations()):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
