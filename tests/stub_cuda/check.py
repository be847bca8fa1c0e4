"""Run what needs CUDA on real torch over stub CUDA; `make cuda` is this.

    python tests/stub_cuda/check.py OUT
    python tests/stub_cuda/check.py --agreement OUT
    python tests/stub_cuda/check.py --examples OUT
    python tests/stub_cuda/check.py --each-torch OUT
    python tests/stub_cuda/check.py --syncs OUT

Installs the CUDA build of torch and its Triton next to this interpreter where they can be
had, builds the stubs into OUT, and runs ``tests/laws``, examples (``cuda_examples.py``) and
``benchmarks/gpu.sh`` with them, each part with a time-out and all tests on the virtual
clock, which a busy machine does not disturb; the results are in ``OUT/results``. With
``--agreement``, which is `make agreement`, it asks the simulated GPU and torch about each
operation of torch instead, and writes the answer to ``benchmarks/evidence``; with ``--examples``
it runs each folder of the examples instead, in half an hour. With ``--each-torch``, which
is a part of `make matrix`, it runs a slice of the tests without a GPU on each minor version
of torch. With ``--syncs`` it asks each of them which operations wait (``benchmarks/syncs.py``),
for minutes each. TORCH in the environment asks for another version than that of
constraints.txt, or for some of all, with commas between them. Exit status: 1 if a part failed that must pass, else 0, also
where the torch, a compiler or the headers cannot be had, with a sentence.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import cuda_examples
from build import CannotBuildError, build_deviceless
from torches import (
    MINOR_TORCHES,
    NEWEST_TORCHES,
    install_torch,
    pinned_torch,
    prepare,
    wanted_torch,
)

from pytest_gpuperf.devices.process_time import patience_for
from pytest_gpuperf.sharing.processes import PASSIVE, kill_group


ROOT: Final = Path(__file__).parents[2]

PART_SECONDS: Final = 1000
FOLDER_SECONDS: Final = 3000
"""For a folder of examples where all of them are run."""

GPU_SCRIPT_SECONDS: Final = 3000
"""The script of a GPU is ended by the wall clock, as a GPU is had by the minute."""

SHOWN_LINES: Final = 5

MOST_MEMORY: Final = 8 * 2**30
"""Bytes of data of one process: a size that a kernel did not compute must not take the machine."""

EVIDENCE: Final = ROOT / "benchmarks" / "evidence"
OPERATIONS: Final = "benchmarks/agreement_operations.py"
SYNCS: Final = "benchmarks/syncs.py"

LAWS: Final = "laws"
RUN_EXAMPLES: Final = "examples"
PARTS: Final = ("tests-gpu", "syncs", "bytes")
"""What is run of ``benchmarks/gpu.sh``: the others read times, or repeat these."""


SLICE: Final = (
    "tests/plugin/test_warnings_as_errors.py",
    "tests/unit/simulated/test_autocast.py",
    "tests/unit/simulated/test_recurrent_layers.py",
    "tests/unit/measure/test_syncs.py",
)
GATED_SLICE: Final = (
    *("examples/no_hidden_sync", "--gpuperf", "--gpuperf-device=simulated"),
    "--gpuperf-seconds=20",
)
"""Warnings are errors in all of them, as in the whole project."""


def run_each_torch(out: Path) -> int:
    """Run the slice on each minor version; say which of them could not be had."""
    wanted = os.environ.get("TORCH")
    found, missing = {}, []
    for version in wanted.split(",") if wanted else MINOR_TORCHES:
        try:
            install_torch(version)
            build_deviceless(out)
        except CannotBuildError as error:
            missing.append(str(error))
            continue
        for part, options in {"tests": SLICE, "gate": GATED_SLICE}.items():
            name = f"torch-{version}-{part}"
            found[name] = run_pytest(name, out, options, is_virtual=False)
    print(*(f"not run: {why}" for why in missing), sep="\n")  # noqa: T201
    return show(found, out / "results", f"run on {len(found) // 2} versions of torch:")


def ask_what_waits(out: Path) -> int:
    """Ask each minor version which operations wait; say which of them could not be had."""
    wanted = os.environ.get("TORCH")
    found, missing = {}, []
    for version in (wanted,) if wanted else NEWEST_TORCHES:
        folder = out / f"torch-{version}"
        try:
            prepare(version, folder)
        except CannotBuildError as error:
            missing.append(str(error))
            continue
        found[f"torch-{version}"] = subprocess.run(
            [sys.executable, "-W", "ignore", SYNCS],
            cwd=ROOT,
            env=environment(folder) | ANSWERING,
            check=False,
        ).returncode
    print(*(f"not run: {why}" for why in missing), sep="\n")  # noqa: T201
    return show(found, out)


ANSWERING: Final = {"GPUPERF_STUB_CLOCK": "off", "GPUPERF_STUB_VALUES": "mirror"}
"""No kernel need take time, and what is read back decides how often a program waits."""


def environment(out: Path) -> dict[str, str]:
    return {
        **os.environ,
        "CLOCK": " ".join(virtual_clock(out)),
        # Kernels are computed on the CPU, next to others.
        **PASSIVE,
        "LD_LIBRARY_PATH": str(out / "libs"),
        "PYTEST_ADDOPTS": "--numprocesses 2",  # a crash ends one test and not all
        "PYTHON": sys.executable,
    }


def virtual_clock(out: Path) -> list[str]:
    """Settings of a process whose clocks are all the virtual one."""
    library = out / "libs" / "libgpuperf_clock.so"
    return ["GPUPERF_STUB_CLOCK=virtual", f"LD_PRELOAD={library}"]


def run_laws(out: Path) -> int:
    # One process: what it measures of a law serves all tests of that law.
    return run_pytest(LAWS, out, ["--numprocesses=1", "tests/laws"], {})


def run_examples(out: Path) -> int:
    return run_pytest(
        RUN_EXAMPLES,
        out,
        ["--numprocesses=0", *cuda_examples.options(out)],
        cuda_examples.SETTINGS,
    )


def run_all_examples(out: Path) -> int:
    """Run folder after folder, and say of each what became of it."""
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
    found = {
        f"{RUN_EXAMPLES}-{folder}": run_pytest(
            f"{RUN_EXAMPLES}-{folder}",
            out,
            ["--numprocesses=0", *cuda_examples.options(out, [folder])],
            cuda_examples.settings_of(folder),
            seconds=FOLDER_SECONDS,
        )
        for folder in cuda_examples.ALL_FOLDERS
    }
    printed = {
        folder: (out / "results" / f"{RUN_EXAMPLES}-{folder}.txt").read_text("utf-8")
        for folder in cuda_examples.ALL_FOLDERS
    }
    recorded = out / "results" / "examples-stub-cuda.txt"
    recorded.write_text(cuda_examples.record(printed), encoding="utf-8")
    return show(found, out / "results")


def run_pytest(
    name: str,
    out: Path,
    options: Sequence[str],
    settings: Mapping[str, str] | None = None,
    seconds: int = PART_SECONDS,
    *,
    is_virtual: bool = True,
) -> int:
    """Run it, on the virtual clock where *is_virtual*; keep and show what it prints, and return its status.

    It is ended after so many *seconds* of its own time, and what it took of the CPU is shown.
    """
    program = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-ra"]
    before = cpu_seconds()
    clock = virtual_clock(out) if is_virtual else []
    virtual = [shutil.which("env") or "env", "-u", "CI", *clock]
    printed = out / "results" / f"{name}.txt"
    printed.parent.mkdir(exist_ok=True)
    with printed.open("wb") as output:
        process = subprocess.Popen(
            [*virtual, *program, "--color=no", *options],
            cwd=ROOT,
            env=environment(out) | (settings or {}),
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        if used := patience_for(seconds).outlasted_by(process):
            kill_group(process.pid)
            print(f"{name}: ended, it {used}")  # noqa: T201
        code = process.wait()
    lines = printed.read_text(encoding="utf-8", errors="replace").splitlines()
    head = f"== {name}: {cpu_seconds() - before:.0f} s of CPU time"
    print(head, *lines[-SHOWN_LINES:], sep="\n")  # noqa: T201
    return code


def cpu_seconds() -> float:
    """Return what processes that were started here and have ended took of the CPU."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime


def run_parts(out: Path) -> int:
    """Run the script and the other parts, of one process each, next to each other."""
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
    with ThreadPoolExecutor(1) as beside:
        script = beside.submit(run_gpu_script, out)
        own = {LAWS: run_laws(out), RUN_EXAMPLES: run_examples(out)}
        return show(script.result() | own, out / "results")


def run_gpu_script(out: Path) -> dict[str, int]:
    """Run its parts, unpack what they leave, and return their exit status by name."""
    results = out / "results"
    named = [word for part in PARTS for word in ("--part", part)]
    limits = ["--minutes", str(len(PARTS) * GPU_SCRIPT_SECONDS / 60)]
    script = [shutil.which("bash") or "bash", str(ROOT / "benchmarks" / "gpu.sh")]
    subprocess.run(
        [
            *script,
            *named,
            *limits,
            f"--limit={GPU_SCRIPT_SECONDS}",
            "--out",
            str(results),
        ],
        env=environment(out),
        check=False,
    )
    if not (results / "results.tar.gz").exists():
        return dict.fromkeys(PARTS, 1)
    with tarfile.open(results / "results.tar.gz") as archive:
        archive.extractall(out, filter="data")
    status = json.loads((results / "status.json").read_text(encoding="utf-8"))
    # What had no time has no exit status, and has not passed.
    ended = ((each["part"], each["exit_status"]) for each in status["parts"])
    return {part: 1 if code is None else code for part, code in ended}


OVER_STUB_CUDA: Final = "run on real torch over stub CUDA:"


def show(found: Mapping[str, int], results: Path, head: str = OVER_STUB_CUDA) -> int:
    """Say what became of each part, and return whether one of them failed."""
    print(head)  # noqa: T201, for who runs it
    for name, status in found.items():
        became = f"exit status {status}" if status else "passed"
        print(f"  {name}: {became}{inconclusive_in(results / f'{name}.txt')}")  # noqa: T201
    return int(any(found.values()))


def inconclusive_in(printed: Path) -> str:
    """Say how many tests of a part are inconclusive, which pytest counts as passed."""
    text = printed.read_text(encoding="utf-8") if printed.exists() else ""
    count = cuda_examples.inconclusive(text)
    return f", {count} inconclusive" if count else ""


def agreement_file() -> Path:
    """The table of this torch: the one of the pinned torch has no version in its name."""
    wanted = wanted_torch()
    named = "operations" if wanted == pinned_torch() else f"torch-{wanted}"
    return EVIDENCE / f"agreement-{named}.md"


def compare_operations(out: Path) -> int:
    """Ask both about each operation; no kernel need take time for that."""
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
    answers = out / "agreement.json"
    files = ["--out", str(agreement_file()), "--answers", str(answers)]
    return subprocess.run(
        [sys.executable, "-W", "ignore", OPERATIONS, *files],
        cwd=ROOT,
        env=environment(out) | {"GPUPERF_STUB_CLOCK": "off"},
        check=False,
    ).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="folder to write into")
    parser.add_argument(
        "--agreement", action="store_true", help="compare operations, and nothing else"
    )
    parser.add_argument(
        "--examples",
        action="store_true",
        help="all folders of examples, and nothing else",
    )
    parser.add_argument(
        "--each-torch",
        action="store_true",
        help="a slice on each minor version of torch, and nothing else",
    )
    parser.add_argument(
        "--syncs",
        action="store_true",
        help="which operations wait, by version of torch, and nothing else",
    )
    options = parser.parse_args()
    out = options.out.resolve()
    if options.each_torch:
        return run_each_torch(out)
    if options.syncs:
        return ask_what_waits(out)
    try:
        prepare(wanted_torch(), out)
    except CannotBuildError as error:
        print(f"not run on real torch over stub CUDA: {error}")  # noqa: T201
        return 0
    if options.agreement:
        return compare_operations(out)
    return run_all_examples(out) if options.examples else run_parts(out)


if __name__ == "__main__":
    sys.exit(main())
