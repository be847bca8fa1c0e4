"""What ``make demo`` runs: gate training loops, see two faults caught, refresh, predict memory.

It works on copies in a temporary folder, and says at its end what it has shown. The exit
status is 1 if a test failed that should have passed, or passed that should have failed.
"""

from __future__ import annotations

import difflib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET


COMPILED = shutil.ignore_patterns("__pycache__")

DEVICE = "cuda" if shutil.which("nvidia-smi") else "cpu"
RESULTS = "results.xml"
CHOSEN = 'pytest --gpuperf -k "keeps or with_its_loader"'
GATE = f"{CHOSEN} --gpuperf-device={DEVICE} --junit-xml={RESULTS}"
STORE = f"{CHOSEN} --gpuperf-device={DEVICE} --gpuperf-update=missing"

# The demo may refresh where CI is set; a gate may not.
IN_CI = {"GPUPERF_ALLOW_CI_UPDATE": "1"} if os.environ.get("CI") else {}


@dataclass(frozen=True)
class Fault:
    """A plausible change to an example, and what has to fail for it.

    A time proves nothing on a busy machine; a metric in ``or_for`` does on any.
    """

    test: str
    metric: str
    or_for: tuple[str, ...]
    file: str
    reason: str
    edit: tuple[str, str]


FAULTS = (
    Fault(
        test="test_loop_that_keeps_its_loss_on_the_device",
        metric="syncs",
        or_for=(),
        file="test_cifar_loop.py",
        reason="Somebody wants the loss as a number.",
        edit=("training.step().detach()", "training.step().item()"),
    ),
    Fault(
        test="test_loop_with_its_loader",
        metric="step_ms",
        or_for=("live_peak_bytes",),
        file="test_mnist_loop.py",
        reason="A bracket slips: for each image, all images are normalised.",
        edit=("normal(self.images[index])", "normal(self.images)[index]"),
    ),
)

MEANT = Fault(
    test="test_loop_with_its_loader",
    metric="",
    or_for=(),
    file="test_mnist_loop.py",
    reason="A change that is meant: a larger batch.",
    edit=("BATCH = 64", "BATCH = 96"),
)
REFRESH = f"gpuperf refresh --accept-drift --device={DEVICE} {MEANT.file}::{MEANT.test}"

PREDICT = "pytest -q --gpuperf --gpuperf-device=pretend"
RUNGS = ("real_size and (plain or two)", "real_size and recomputing")
"""Two halves of three rungs that take about as long, side by side on two cores."""
SHOWN_RUNGS = (0, 2, 4)

UNBROKEN = {"subsequent_indent": "    ", "break_on_hyphens": False}
"""How a command that is longer than a line is typed."""

PEAK = "predicted_peak_allocated_bytes"


class UnexpectedError(Exception):
    """Something happened that the demo says does not happen."""


def main():
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gpuperf-demo-") as name:
        folder = Path(name)
        copy_examples(folder)
        try:
            shown = list(show_everything(folder))
        except UnexpectedError as error:
            sys.exit(f"\ndemo: {error}")
    heading(f"All as it should be, after {time.monotonic() - started:.0f} s. Shown:")
    say("\n".join(f"{what:<11}{how}" for what, how in shown))


def copy_examples(folder):
    """Copy the training loops; steps on several ranks would have to share two cores."""
    here = Path(__file__).parent
    for source in here.glob("*/test_*_loop.py"):
        shutil.copy(source, folder)
    shutil.copytree(
        here / "models", folder / "models", dirs_exist_ok=True, ignore=COMPILED
    )
    settings = "[pytest]\naddopts = --no-header -p no:cacheprovider\n"
    (folder / "pytest.ini").write_text(settings, encoding="utf-8")


def show_everything(folder):
    """Run it all, and yield in two columns what was shown."""
    heading(f"Measure two training loops on {DEVICE}, and store that as the baseline")
    run(folder, STORE, env=IN_CI, allowed={0})
    yield "stored", f"time, memory and waits of two training loops, on {DEVICE}"

    heading("Plant two faults")
    for fault in FAULTS:
        plant(folder, fault)

    heading("The gate: exactly the two tests with a fault fail")
    results = gate_with_faults(folder)
    require(results, faults=FAULTS)
    yield from (("caught", results.told(fault)) for fault in FAULTS)

    heading("Both faults taken back, and a change that is meant: refresh, review")
    copy_examples(folder)
    plant(folder, MEANT)
    run(folder, REFRESH, env=IN_CI, allowed={0})
    yield "refreshed", "the test whose batch grew: one command, and what it changed"

    heading("The gate: green")
    require(gate(folder), faults=())
    yield "passed", "code with the same steps as that baseline"

    heading("GPT-2 large, 36 layers, batch 32: a ladder of memory, without a GPU")
    peaks = show_ladder(copied_ladder(folder))
    rungs = " -> ".join(f"{mib:.0f}" for mib in peaks)
    yield "predicted", f"the memory of GPT-2 large and two savings: {rungs} MiB"


def copied_ladder(folder):
    """Copy the ladder to a folder of its own: its ``conftest.py`` is not for the loops."""
    here, place = Path(__file__).parent, folder / "ladder"
    shutil.copytree(here / "models", place / "models", ignore=COMPILED)
    shutil.copy(here / "ladder" / "test_predicted_gpt2_large.py", place)
    for name in ("conftest.py", "claims.py", "claims.toml", "claims_table.py"):
        shutil.copy(here / name, place)
    return place


def show_ladder(place):
    """Predict three rungs, print what was published beside that, return what was found."""
    from claims import read_claims

    say(f"\n$ cd {place.name}")
    found = predicted(place)
    rungs = [read_claims().ladder[number] for number in SHOWN_RUNGS]
    if len(found) != len(rungs):
        msg = f"expected {len(rungs)} predictions, found {len(found)}"
        raise UnexpectedError(msg)
    say("\n" + "\n".join(ladder_lines(rungs, found)))
    return found


def predicted(place):
    """Return the predicted peaks in MiB, the highest one first."""
    runs = [
        start(
            place,
            f'{PREDICT} -k "{names}" --junit-xml={number}.xml',
            output=subprocess.PIPE,
        )
        for number, names in enumerate(RUNGS)
    ]
    for run in runs:
        printed, _ = run.communicate()
        say(f"\n{printed.rstrip()}")
        if run.returncode:
            msg = f"a prediction ended with exit status {run.returncode}"
            raise UnexpectedError(msg)
    return sorted(
        (
            verdict["now"] / 2**20
            for path in place.glob("*.xml")
            for case in ET.parse(path).iter("testcase")  # noqa: S314 - pytest's own
            for verdict in verdicts_in(case)
            if verdict["metric"] == PEAK
        ),
        reverse=True,
    )


def ladder_lines(rungs, found):
    """Lay out a heading and a line a rung, each with its change from the one above."""
    yield f"{'MiB':<26}{'published':>11}{'':<9}{'predicted':>11}"
    above = None
    for rung, mib in zip(rungs, found, strict=True):
        published = rung.published_mib
        steps = ("", "")
        if above:
            pairs = ((published, above[0]), (mib, above[1]))
            steps = tuple(f"{now / then - 1:+.0%}" for now, then in pairs)
        yield (
            f"{rung.name:<26}{published:>11.0f}{steps[0]:>7}{'':<2}{mib:>11.0f}"
            f"{steps[1]:>7}"
        ).rstrip()
        above = published, mib


def plant(folder, fault):
    """Edit the copy of an example and print what changed."""
    path = folder / fault.file
    before = path.read_text(encoding="utf-8")
    old, new = fault.edit
    if before.count(old) != 1:
        msg = f"{fault.file}: expected {old!r} once, found it {before.count(old)} times"
        raise UnexpectedError(msg)
    after = before.replace(old, new)
    path.write_text(after, encoding="utf-8")
    lines = difflib.unified_diff(
        before.splitlines(),
        after.splitlines(),
        fault.file,
        fault.file,
        n=1,
        lineterm="",
    )
    say("\n".join(["", fault.reason, *lines]))


RED = {"regressed", "over budget"}
WORDS = {"syncs": "wait", "step_ms": "time", "live_peak_bytes": "memory"}


@dataclass(frozen=True)
class Results:
    """Names of the tests that failed, and the outcomes of their metrics by test."""

    failed: set[str]
    outcomes: dict[str, dict[str, set[str]]]

    def told(self, fault):
        """Say what was caught, where, and by what."""
        metrics = (fault.metric, *fault.or_for)
        metric = next(m for m in metrics if self.outcomes[fault.test][m] & RED)
        return f"`{fault.edit[1]}` in {fault.file}, by its {WORDS[metric]}"

    def of(self, fault):
        return self.outcomes[fault.test].get(fault.metric, set())

    def caught(self, fault):
        """Whether its metric failed, or could not be decided and another one did."""
        metrics = [fault.metric]
        if "inconclusive" in self.of(fault):
            metrics += fault.or_for
        known = self.outcomes[fault.test]
        found = set().union(*(known.get(metric, set()) for metric in metrics))
        return bool(found & RED)


def gate(folder):
    run(folder, GATE, allowed={0, 1})
    cases = list(ET.parse(folder / RESULTS).iter("testcase"))  # noqa: S314 - pytest's own
    return Results(
        failed={c.get("name") for c in cases if c.find("failure") is not None},
        outcomes={c.get("name"): outcomes_in(c) for c in cases},
    )


def outcomes_in(case):
    """Outcomes by metric: a test's property ``gpuperf`` holds its verdicts."""
    found: dict[str, set[str]] = {}
    for verdict in verdicts_in(case):
        found.setdefault(verdict["metric"], set()).add(verdict["outcome"])
    return found


def verdicts_in(case):
    for part in case.iter("property"):
        if part.get("name") == "gpuperf":
            for call in json.loads(part.get("value")):
                yield from call["verdicts"]


def gate_with_faults(folder):
    """Judge, and once more where a fault could not be decided."""
    first = gate(folder)
    undecided = {f.test for f in FAULTS if "inconclusive" in first.of(f)}
    if not undecided:
        return first
    say(f"\nThe machine was too busy to decide on {named(undecided)}. Once more:")
    return gate(folder)


def require(results, *, faults):
    """Check that the tests of *faults* failed, for the right metric, and no other."""
    wanted = {fault.test for fault in faults}
    if results.failed != wanted:
        msg = f"expected {named(wanted)} to fail, found {named(results.failed)}"
        raise UnexpectedError(msg)
    for fault in faults:
        if not results.caught(fault):
            found = " and ".join(sorted(results.of(fault))) or "no verdict"
            msg = f"expected {fault.test} to fail for {fault.metric}, found {found}"
            raise UnexpectedError(msg)


def run(folder, command, *, allowed, env=None):
    """Print a command as it is typed, run it, and let it print."""
    code = start(folder, command, env=env).wait()
    if code not in allowed:
        msg = f"`{command}` ended with exit status {code}"
        raise UnexpectedError(msg)


def start(folder, command, *, env=None, output=None):
    """Print a command as it is typed, and start it; *output* is where it prints."""
    typed = " ".join(
        [*(f"{name}={value}" for name, value in (env or {}).items()), command]
    )
    say("\n" + " \\\n".join(textwrap.wrap(f"$ {typed}", 78, **UNBROKEN)))
    program, *arguments = shlex.split(command)
    module = {"pytest": "pytest", "gpuperf": "pytest_gpuperf"}[program]
    inherited = {k: v for k, v in os.environ.items() if k != "PYTEST_ADDOPTS"}
    return subprocess.Popen(  # noqa: S603 - the demo's own commands
        [sys.executable, "-m", module, *arguments],
        cwd=folder,
        env=inherited | {"COLUMNS": "80"} | (env or {}),
        stdout=output,
        text=True,
    )


def heading(text):
    say(f"\n{'-' * 80}\n{text}\n{'-' * 80}")


def named(tests):
    return " and ".join(sorted(tests)) or "no test"


def say(text):
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
