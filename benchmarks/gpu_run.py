"""What only a GPU can answer, in parts; ``benchmarks/gpu.sh`` starts it.

Each part has a time limit and writes what it finds as it ends; all is packed anew after
each, so a run that is ended from outside loses no more than the part it was in. In the
folder of results lie two files in the end: ``status.json`` and ``results.tar.gz``. A part
begins if half of its limit is left. ``benchmarks/gpu_page.py`` makes a page of them.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import io
import json
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Final


HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parent
RESULTS: Final = "GPUPERF_RESULTS"
"""Environment variable that names the folder to the tests of a part."""

PLUGIN: Final = "pytest_gpuperf.plugin"

ENDED: Final = 124
"""Exit status of what its time limit ended, as timeout(1) has it."""
NOT_STARTED: Final = 127

GRACE_S: Final = 8.0
"""An interrupted pytest needs some seconds to say what had failed until then."""

LAST_LINES: Final = 6


# The parts: what each asks, what it may take, and what it runs.

CLOCK: Final = "CLOCK"
"""Environment variable with settings for pytest alone, such as a virtual clock's."""

GATED: Final = ("examples/no_hidden_sync", "examples/host_to_device")
"""Examples that are stored and gated: what a training loop waits for and copies."""

JOBS: Final = max(1, min(6, (os.cpu_count() or 1) // 2))
"""Programs at a time on each side of the comparison of bytes."""

Command = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A question to the GPU: commands that may take ``limit_s`` together.

    Parts with the same ``beside`` run beside each other, as none of them reads times.
    """

    name: str
    asks: str
    limit_s: float
    commands: tuple[Command, ...]
    beside: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where parts write what they find, and whether they are to be as small as can be."""

    folder: Path
    small: bool = False

    def parts(self) -> tuple[Part, ...]:
        """All parts, most valuable first."""
        return (*self._first(), *self._then())

    def _first(self) -> Iterator[Part]:
        yield Part(
            name="machine",
            asks="does NVML tell identity, clocks, throttling and memory?",
            limit_s=60,
            commands=(
                *((("nvidia-smi", "-q"),) if shutil.which("nvidia-smi") else ()),
                self._probe("machine"),
                (sys.executable, "-m", "pytest_gpuperf", "doctor"),
            ),
        )
        yield Part(
            name="truth",
            asks="is step_ms the time of a step? beside events, wall time, torch's Timer",
            limit_s=110,
            commands=(self._truth(),),
        )
        yield Part(
            name="syncs",
            asks="does the simulated GPU wait where CUDA does?",
            limit_s=150,
            commands=(
                python(
                    "agreement.py",
                    *("--answers", self.folder / "syncs", "--out"),
                    *(self.folder, *(("--only", "item") if self.small else ())),
                ),
            ),
            beside="bytes",
        )
        yield Part(
            name="bytes",
            asks="are predicted bytes, allocated and reserved, those of the allocator?",
            limit_s=150,
            commands=(
                python(
                    "agreement_bytes.py",
                    *("--answers", self.folder / "bytes", "--out", self.folder),
                    *("--jobs", str(JOBS)),
                    *(("--only", "T5") if self.small else ()),
                ),
            ),
            beside="bytes",
        )
        yield Part(
            name="unchanged",
            asks="is unchanged code blamed, and are +2, +5 and +10 % found?",
            limit_s=170,
            commands=(self._probe("unchanged"),),
        )

    def _then(self) -> Iterator[Part]:
        yield Part(
            name="ladder",
            asks="GPT-2 large at its real size: published, predicted and real memory",
            limit_s=80,
            commands=(self._probe("ladder"),),
        )
        speed = "examples/ladder/test_speed_ladder.py"
        claims = "--gpuperf-claims"
        only = ("-k", "larger_batch") if self.small else ("-m", "slow or not slow")
        yield Part(
            name="speed",
            asks="the ladder of speed, 7.68 -> 0.48 s: each rung faster, and by how much",
            limit_s=120,
            commands=(self._gate(speed, claims, *only),),
        )
        gpu_tests = ("-k", "doctor") if self.small else ()
        yield Part(
            name="tests-gpu",
            asks="tests/gpu: each is an assumption of evidence/assumptions.md",
            limit_s=150,
            commands=(
                pytest(
                    *("tests/gpu", "-m", "gpu", "--tb=short", *gpu_tests),
                    f"--junit-xml={self.folder / 'tests-gpu.xml'}",
                ),
            ),
        )
        gated = ("examples/no_hidden_sync/test_item.py",) if self.small else GATED
        yield Part(
            name="examples",
            asks="examples stored, then gated unchanged: nobody is blamed",
            limit_s=200,
            commands=(
                self._gate(*gated, "--gpuperf-update=all"),
                self._gate(*gated),
            ),
        )
        rounds = ("--rounds", "1", "--tests", "4") if self.small else ("--rounds", "2")
        yield Part(
            name="commands",
            asks="two workers share the GPU, a commit beside itself, watch and its cost",
            limit_s=100,
            commands=(
                self._truth("-n2", "-k", "item"),
                self._probe("ab"),
                python("overhead.py", "watch", *rounds),
            ),
        )

    def _probe(self, name: str) -> Command:
        size = ("--small",) if self.small else ()
        return python("gpu_probes.py", name, "--out", self.folder, *size)

    def _gate(self, *arguments: str) -> Command:
        stored = f"--override-ini=gpuperf_baselines={self.folder / 'baselines'}"
        return pytest(*arguments, "--gpuperf", "--gpuperf-device=cuda", stored)

    def _truth(self, *arguments: str) -> Command:
        few = () if arguments or not self.small else ("-k", "training")
        return self._gate(str(HERE / "gpu_step_time.py"), *arguments, *few)


def python(script: str, *arguments: str | Path) -> Command:
    return (sys.executable, "-W", "ignore", str(HERE / script), *map(str, arguments))


def pytest(*arguments: str) -> Command:
    """Return a command of pytest, which alone follows another clock if one is asked for."""
    clock = shlex.split(os.environ.get(CLOCK, ""))
    program = (*(("env", *clock) if clock else ()), sys.executable, "-m", "pytest")
    quiet = ("-p", "no:cacheprovider", "-q", "-ra", "--color=no", "--durations=5")
    return (*program, *quiet, *arguments)


# Running them.


@dataclass(frozen=True, slots=True, kw_only=True)
class PartStatus:
    """What became of a part; ``exit_status`` is ``None`` where no time was left for it."""

    part: str
    exit_status: int | None
    seconds: float = 0.0
    last_lines: str = ""


def main() -> int:
    options = parsed()
    if options.list:
        for part in Place(folder=Path("FOLDER")).parts():
            print(f"{part.name:<10} {part.limit_s:4.0f} s  {part.asks}")
        return 0
    prepare_environment()
    key = hardware_key()
    if key is None:
        return 4
    out = (options.out or ROOT / "docs" / "evidence" / key).resolve()
    out.mkdir(parents=True, exist_ok=True)
    end_s = time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory(prefix="gpuperf-gpu-") as name:
        folder = Path(name) / "results"
        folder.mkdir()
        return run(chosen(options, folder), folder, out, end_s)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gpu.sh", description=__doc__)
    parser.add_argument("--minutes", type=float, default=9.0, help="default: 9")
    names = [part.name for part in Place(folder=Path()).parts()]
    parser.add_argument(
        "--part",
        action="append",
        choices=names,
        metavar="NAME",
        help=f"one of {', '.join(names)}; again for more (default: all)",
    )
    parser.add_argument(
        "--out", type=Path, help="default: docs/evidence/<hardware key>"
    )
    parser.add_argument(
        "--limit", type=float, metavar="S", help="seconds of each part: not its own"
    )
    parser.add_argument(
        "--small", action="store_true", help="the least of each part, to rehearse"
    )
    parser.add_argument(
        "--list", action="store_true", help="print the parts and their limits"
    )
    return parser.parse_args()


def prepare_environment() -> None:
    """Use the plugin of this checkout where none is installed; write as it is printed."""
    os.environ.pop("CI", None)  # where it is set, no baseline is written
    os.environ["PYTHONUNBUFFERED"] = "1"
    inherited = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), inherited)))
    try:
        importlib.metadata.version("pytest-gpuperf")
    except importlib.metadata.PackageNotFoundError:
        os.environ["PYTEST_PLUGINS"] = PLUGIN


def hardware_key() -> str | None:
    """Return the name of this GPU's folder; without one, say why there is none."""
    asked = python("gpu_probes.py", "key")
    done = subprocess.run(asked, stdout=subprocess.PIPE, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def chosen(options: argparse.Namespace, folder: Path) -> list[Part]:
    """Return the parts that are asked for, most valuable first."""
    parts = Place(folder=folder, small=options.small).parts()
    asked = [part for part in parts if not options.part or part.name in options.part]
    if options.limit is None:
        return asked
    return [replace(part, limit_s=options.limit) for part in asked]


def run(parts: Sequence[Part], folder: Path, out: Path, end_s: float) -> int:
    """Run *parts*, which write into *folder*, until *end_s*; keep all in *out*.

    Returns 0 if every one passed.
    """
    os.environ[RESULTS] = str(folder)
    found: list[PartStatus] = []
    for group in beside_each_other(parts):
        found += run_together(group, folder, end_s, alone=len(parts) == 1)
        keep(out, folder, found)
    return int(any(status.exit_status != 0 for status in found))


def beside_each_other(parts: Sequence[Part]) -> Iterator[list[Part]]:
    for _, group in groupby(parts, key=lambda part: part.beside or part.name):
        yield list(group)


def run_together(
    parts: Sequence[Part], folder: Path, end_s: float, *, alone: bool
) -> list[PartStatus]:
    """Run *parts* beside each other; one that is *alone* has all the time there is."""
    left_s = end_s - time.monotonic() - GRACE_S
    if not alone and left_s < max(part.limit_s for part in parts) / 2:
        return [PartStatus(part=part.name, exit_status=None) for part in parts]
    with ThreadPoolExecutor(len(parts)) as pool:
        limits_s = [left_s if alone else min(p.limit_s, left_s) for p in parts]
        found = list(pool.map(lambda p, s: run_part(p, folder, s), parts, limits_s))
    for status in found:
        head = f"== {status.part}: exit {status.exit_status}, {status.seconds} s"
        print(head, status.last_lines, sep="\n", flush=True)
    return found


def run_part(part: Part, folder: Path, limit_s: float) -> PartStatus:
    """Run its commands until one outlasts the limit; the worst exit status counts."""
    start_s = time.monotonic()
    output = folder / f"{part.name}.txt"
    worst = 0
    for command in part.commands:
        left_s = limit_s - (time.monotonic() - start_s)
        code = run_command(command, output, max(1.0, left_s))
        worst = worst or code
        if code == ENDED:
            break
    text = without_places(output.read_text(encoding="utf-8", errors="replace"))
    return PartStatus(
        part=part.name,
        exit_status=worst,
        seconds=round(time.monotonic() - start_s, 1),
        last_lines="\n".join(text.splitlines()[-LAST_LINES:]),
    )


def run_command(command: Command, output: Path, limit_s: float) -> int:
    """Append what it prints to *output*; interrupt it after *limit_s*, then end it."""
    with output.open("a", encoding="utf-8") as file:
        file.write(f"$ {' '.join(command)}\n")
        file.flush()
        try:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            file.write(f"not started: {error}\n")
            return NOT_STARTED
        try:
            return process.wait(limit_s)
        except subprocess.TimeoutExpired:
            end(process)
            return ENDED


def end(process: subprocess.Popen[bytes]) -> None:
    """Interrupt *process* and all that it started; kill what is left of it."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def keep(out: Path, folder: Path, found: Sequence[PartStatus]) -> None:
    """Write what is known so far."""
    left_out = pack(folder, out / "results.tar.gz")
    status = {"parts": [asdict(each) for each in found], "left_out": left_out}
    (out / "status.json").write_text(json.dumps(status, indent=1), encoding="utf-8")


# Results in one archive that is small enough to be carried, without names of the machine.

MOST_BYTES: Final = 16 * 2**20
"""Of the archive: what a machine that is lent gives back of one file."""


def pack(folder: Path, archive: Path, most_bytes: int = MOST_BYTES) -> list[str]:
    """Replace *archive* by one of all files in *folder*; return the names left out.

    The largest are left out until the archive is small enough.
    """
    files = sorted(
        (path for path in folder.rglob("*") if path.is_file()),
        key=lambda path: path.stat().st_size,
    )
    made = archive.with_name("results.part")
    left_out: list[str] = []
    write(folder, files, made)
    while made.stat().st_size > most_bytes and files:
        left_out.append(str(files.pop().relative_to(folder)))
        write(folder, files, made)
    made.replace(archive)
    return left_out


def write(folder: Path, files: Sequence[Path], archive: Path) -> None:
    with tarfile.open(archive, "w:gz") as opened:
        for path in sorted(files):
            content = cleaned(path.read_bytes())
            member = tarfile.TarInfo(str(Path("results", path.relative_to(folder))))
            member.size = len(content)
            opened.addfile(member, io.BytesIO(content))


def cleaned(content: bytes) -> bytes:
    """Return text without this machine's places; what is no text stays as it is."""
    try:
        return without_places(content.decode("utf-8")).encode("utf-8")
    except UnicodeDecodeError:
        return content


def without_places(text: str) -> str:
    """Return *text* without the folders and the name of this machine."""
    for place, shown in places():
        text = text.replace(place, shown)
    return re.sub(rf"\b{re.escape(platform.node())}\b", "HOST", text)


def places() -> tuple[tuple[str, str], ...]:
    """Folders, longest names first, and what stands for them."""
    home = str(Path.home())
    return (
        (f"{ROOT}{os.sep}", ""),
        (str(ROOT), "."),
        (f"{tempfile.gettempdir()}{os.sep}", "TMP/"),
        *(((f"{home}{os.sep}", "~/"),) if home != os.sep else ()),
    )


if __name__ == "__main__":
    sys.exit(main())
