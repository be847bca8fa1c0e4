"""The parts of a run on a GPU: what each asks, what it may take, and what it runs."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final


HERE: Final = Path(__file__).resolve().parent

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
            name="waits",
            asks="does the simulated GPU wait where CUDA does, and torch's debug mode?",
            limit_s=150,
            commands=(
                python(
                    "agreement.py",
                    *("--answers", self.folder / "waits", "--out"),
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
