"""What ``make demo`` runs: all that needs no clock, on the simulated GPU.

It works on copies in a temporary folder. The exit status is 1, with a sentence, if anything
is not as this file says. ``--all`` predicts all rungs of the ladder of memory, and
``--time`` measures time, which needs a quiet machine.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path

from claims import read_claims


HERE = Path(__file__).parent
PAGE = Path(".gpuperf", "demo.html")

COPIED = {
    "train.py": "first_minute/train.py",
    "test_steps.py": "gate/test_steps.py",
    "gpt2_large.py": "gpt2_large.py",
    "models/gpt2.py": "models/gpt2.py",
}
SETTINGS = "[pytest]\naddopts = -q --no-header -p no:cacheprovider\n"


class UnexpectedError(Exception):
    """Something happened that the demo says does not happen."""


# What is shown, as data.


@dataclass(frozen=True)
class Edit:
    """A change of a file, and why somebody makes it."""

    why: str
    file: str
    swaps: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Fault:
    """A plausible change of a test, what it is called when it is found, and its line."""

    test: str
    headline: str
    line: str
    edit: Edit


AUDIT = "gpuperf audit train.py"
CLEAN = "gpuperf audit --max-syncs-per-step=0 train.py"
WAITS = ("images.to(device)", "total += loss.item()", "correct += (output.argmax(1)")

FIXED = Edit(
    why="What the three fixes say, in the script:",
    file="train.py",
    swaps=(
        (
            "        images, labels = images.to(device), labels.to(device)\n",
            "        images = images.to(device, non_blocking=True)\n"
            "        labels = labels.to(device, non_blocking=True)\n",
        ),
        ("total += loss.item()", "total += loss.detach()"),
        ("== labels).sum().item()", "== labels).sum().detach()"),
        (
            "return total / len(loader), correct / len(loader.dataset)",
            "return total.item() / len(loader), correct.item() / len(loader.dataset)",
        ),
        (
            "    loader = DataLoader(data, batch_size=options.batch_size, shuffle=True)\n",
            "    loader = DataLoader(\n"
            "        data, batch_size=options.batch_size, shuffle=True, pin_memory=True\n"
            "    )\n",
        ),
    ),
)

STORE = "pytest --gpuperf --gpuperf-device=pretend --gpuperf-update=missing"
GATE = "pytest --gpuperf --gpuperf-device=pretend"

FAULTS = (
    Fault(
        test="test_the_loss_stays_on_the_gpu",
        headline="NEW WAIT",
        line="total.add_(loss.item())",
        edit=Edit(
            "1. A wait: somebody wants the loss as a number.",
            "test_steps.py",
            (("total.add_(loss.detach())", "total.add_(loss.item())"),),
        ),
    ),
    Fault(
        test="test_images_are_copied_from_pinned_memory",
        headline="NEW UNPINNED COPY",
        line="copied = images.to(gpuperf.device, non_blocking=True)",
        edit=Edit(
            "2. A pageable copy: an argument is lost.",
            "test_steps.py",
            ((', pin_memory=gpuperf.device == "cuda"', ""),),
        ),
    ),
    Fault(
        test="test_old_losses_keep_no_graph",
        headline="GRAPH KEPT",
        line="loss = F.cross_entropy(model(images), labels)",
        edit=Edit(
            "3. Memory that grows: each loss in the list keeps its graph alive.",
            "test_steps.py",
            (("losses.append(loss.detach())", "losses.append(loss)"),),
        ),
    ),
    Fault(
        test="test_all_images_are_scaled_at_once",
        headline="MORE OPERATIONS",
        line="return model(torch.stack([row / row.amax() for row in images]))",
        edit=Edit(
            "4. A loop in place of one batched operation.",
            "test_steps.py",
            (
                (
                    "return model(images / images.amax(1, keepdim=True))",
                    "return model(torch.stack([row / row.amax() for row in images]))",
                ),
            ),
        ),
    ),
)

MEANT = Fault(
    test="test_sgd_needs_no_state",
    headline="MORE OPERATIONS",
    line="",
    edit=Edit(
        "And a change that is meant: momentum, which costs some operations more.",
        "test_steps.py",
        (("model.parameters(), lr=0.1)", "model.parameters(), lr=0.1, momentum=0.9)"),),
    ),
)
ACCEPT = f"gpuperf accept --accept-drift --only=test_steps.py::{MEANT.test} .gpuperf"
REVIEW = "git diff --unified=0 baselines/pretend-cuda.json | cut -c -80"

MEMORY = "gpuperf memory --no-values --no-savings --steps=2 gpt2_large.py -- --rung={}"
CHEAP_RUNGS = (0, 1)
ALL_RUNGS = (0, 1, 2, 3)

AB = "gpuperf ab --device=pretend --patch={} -- test_steps.py::test_sgd_needs_no_state"
REFACTORED = Edit(
    why="A refactoring: the loss by a module, and the scores with a name.",
    file="test_steps.py",
    swaps=(
        (
            "    loss = F.cross_entropy(model(images), labels)\n",
            "    scores = model(images)\n"
            "    loss = nn.CrossEntropyLoss()(scores, labels)\n",
        ),
    ),
)
CHECKED = Edit(
    why="A check for NaN, which reads the loss in each step.",
    file="test_steps.py",
    swaps=(
        (
            "    optimizer.zero_grad()\n",
            "    if loss.isnan():\n"
            '        raise ValueError("the loss is NaN")\n'
            "    optimizer.zero_grad()\n",
        ),
    ),
)

REPORT = "gpuperf report"


# The acts.


def show_audit(place):
    heading("a", "Which lines of a script wait for the GPU? No GPU, no change of code.")
    first = place.start(AUDIT)
    before = place.read(FIXED.file)
    place.finish(first, 0, "4 waits per step on 3 lines", *WAITS)
    say(f"\n{FIXED.why}\n{place.plant(FIXED)}")
    place.run(CLEAN, 0, "0 waits per step")
    place.write(FIXED.file, before)


def show_gate(place):
    heading(
        "b", "A gate for training steps: no baseline, then green, then four faults."
    )
    place.run(STORE, 0, "5 passed")
    place.git("add", "baselines")
    for fault in (*FAULTS, MEANT):
        say(f"\n{fault.edit.why}\n{place.plant(fault.edit)}")
    printed = place.run(GATE, 1, "5 failed")
    require_red(printed, place.read("test_steps.py"), (*FAULTS, MEANT))
    say("\nThe last one was meant. One command accepts it, and a reviewer reads:")
    place.run(ACCEPT, 0, "1 accepted")
    place.run(REVIEW, 0, '"ops": 17')
    place.git("checkout", "--quiet", "test_steps.py")


def require_red(printed, source, faults):
    """Raise unless exactly the tests of *faults* failed, each at its line, with its fix."""
    red = set(re.findall(r"^FAILED \S+::(\w+)", printed, re.MULTILINE))
    if red != {fault.test for fault in faults}:
        raise UnexpectedError(f"expected other failures than of {named(red)}")
    for fault in faults:
        section = section_of(printed, fault.test)
        require(section, fault.headline, of=fault.test)
        if fault.line:
            number = line_number(source, fault.line)
            require(section, f"{number} | {fault.line}", "\n  fix ", of=fault.test)


def section_of(printed, test):
    """Return what is printed about the failure of *test*."""
    _, found, rest = printed.partition(f" {test} __")
    return re.split(r"\n_{5,} test_|\n={5,}", rest)[0] if found else ""


def line_number(source, line):
    stripped = [each.strip() for each in source.splitlines()]
    return stripped.index(line) + 1


def show_memory(place, numbers):
    heading("c", "Does GPT-2 large fit? 36 layers, batch 32, on no GPU at all.")
    rungs = read_claims().ladder
    typed = [MEMORY.format(number) for number in numbers]
    printed = place.run_all([(command, 0, "needs") for command in typed])
    found = [needed_mib(text) for text in printed]
    shown = [rungs[number] for number in numbers]
    say("\n" + "\n".join(ladder_lines(shown, found)))
    for rung, mib in zip(shown, found, strict=True):
        require_near(rung, mib)


def needed_mib(printed):
    """Return the peak that ``gpuperf memory`` printed."""
    found = re.search(r"needs ([\d.]+) GiB at its peak", printed)
    if not found:
        raise UnexpectedError("gpuperf memory named no peak in GiB")
    return float(found.group(1)) * 1024


def require_near(rung, mib):
    if abs(mib / rung.predicted_mib - 1) > 0.01:
        expected = f"expected {rung.predicted_mib:.0f} MiB within 1 %"
        raise UnexpectedError(f"{rung.name}: {expected}, found {mib:.0f}")


def ladder_lines(rungs, found):
    """Lay out a heading and a line a rung, each with its change from the one above."""
    yield f"{'MiB':<26}{'published':>11}{'':<9}{'predicted':>11}"
    above = None
    for rung, mib in zip(rungs, found, strict=True):
        steps = ("", "")
        if above:
            pairs = ((rung.published_mib, above[0]), (mib, above[1]))
            steps = tuple(f"{now / then - 1:+.0%}" for now, then in pairs)
        published = f"{rung.name:<26}{rung.published_mib:>11.0f}{steps[0]:>7}"
        yield f"{published}{'':<2}{mib:>11.0f}{steps[1]:>7}".rstrip()
        above = rung.published_mib, mib


def show_ab(place):
    heading("d", "Does a patch train the same, and what did it add?")
    for name, edit in (("refactored.patch", REFACTORED), ("checked.patch", CHECKED)):
        say(f"\n{edit.why} {name}:\n{place.patch(name, edit)}")
    line = CHECKED.swaps[0][1].splitlines()[0].strip()
    place.run_all(
        [
            (AB.format("refactored.patch"), 0, "same training: 1 of 1"),
            (AB.format("checked.patch"), 1, "same training: 1 of 1", line, "1 worse"),
        ]
    )


def show_page(place):
    heading("e", "The run with the four faults as a page")
    place.run(REPORT, 0, "report.html")
    page = place.folder / ".gpuperf" / "report.html"
    require(page.read_text(encoding="utf-8"), *(f.test for f in FAULTS), of=REPORT)
    kept = HERE.parent / PAGE
    kept.parent.mkdir(exist_ok=True)
    shutil.copy(page, kept)
    say(f"\nIt is kept in {PAGE}")


SHOWN = (
    ("lines that wait, with their fixes", AUDIT),
    ("CI fails when a wait is added", CLEAN),
    ("baselines stored", STORE),
    ("four planted faults caught", GATE),
    ("a meant change accepted", ACCEPT),
    ("the peak memory of a script", MEMORY.format(0)),
    ("a patch that trains the same", AB.format("refactored.patch")),
    ("a patch that adds a wait", AB.format("checked.patch")),
    ("the run as a page", REPORT),
)


def table(rows):
    """Lay out what was shown, and below each the command."""
    for what, command in rows:
        yield f"{what:<36}{command}" if len(command) <= 44 else what
        if len(command) > 44:
            yield from typed_lines(command, "    ")


# How commands are typed, run and checked.


class Place:
    """A folder with copies of the examples, under git, in which commands run."""

    def __init__(self, folder):
        self.folder = folder
        for name, source in COPIED.items():
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copy(HERE / source, folder / name)
        (folder / "pytest.ini").write_text(SETTINGS, encoding="utf-8")
        self.git("init", "--quiet")
        self.git("add", ".")
        self.git("commit", "--quiet", "--message=The code as it is")

    def read(self, name):
        return (self.folder / name).read_text(encoding="utf-8")

    def write(self, name, text):
        (self.folder / name).write_text(text, encoding="utf-8")

    def plant(self, edit):
        """Make an edit and return it as a diff."""
        before = self.read(edit.file)
        self.write(edit.file, edited(before, edit))
        return diff(before, edited(before, edit), edit.file)

    def patch(self, name, edit):
        """Write an edit to a file that ``git apply`` reads, and return it."""
        before = self.read(edit.file)
        lines = diff(before, edited(before, edit), edit.file)
        self.write(name, f"{lines}\n")
        return lines

    def git(self, *arguments):
        if not shutil.which("git"):
            raise UnexpectedError("git is not installed, which the demo needs")
        done = self.start(shlex.join(["git", *arguments]))
        self.finish(done, 0, shown=False)

    def run(self, command, code, *texts):
        """Run a command; return what it printed, which has to have all *texts* in it."""
        return self.finish(self.start(command), code, *texts)

    def run_all(self, commands):
        """Run two at a time, as they are independent, and print them in their order."""
        printed = []
        for pair in zip_pairs(commands):
            started = [self.start(command) for command, *_ in pair]
            for run, (_, *expected) in zip(started, pair, strict=True):
                printed.append(self.finish(run, *expected))
        return printed

    def start(self, command):
        program, *arguments = shlex.split(command.partition(" | cut")[0])
        module = {"pytest": "pytest", "gpuperf": "pytest_gpuperf"}.get(program)
        python = [sys.executable, "-m", module] if module else [program]
        process = subprocess.Popen(
            [*python, *arguments],
            cwd=self.folder,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        return command, process

    def finish(self, run, code, *texts, shown=True):
        command, process = run
        if shown:
            say("\n" + "\n".join(typed_lines(f"$ {command}")))
        printed, errors = waited(process)
        if shown:
            width = 80 if " | cut" in command else None
            say("\n".join(line[:width] for line in printed.rstrip().splitlines()))
        if process.returncode != code:
            say(errors.rstrip())
            found = f"exit status {process.returncode}, expected {code}"
            raise UnexpectedError(f"`{command}` ended with {found}")
        require(printed, *texts, of=f"`{command}`")
        return printed


def zip_pairs(commands):
    return [commands[first : first + 2] for first in range(0, len(commands), 2)]


def waited(process):
    """Return what a process printed; on a terminal a line says how long it takes."""
    started = time.monotonic()
    is_terminal = sys.stderr.isatty()
    while True:
        try:
            return process.communicate(timeout=1 if is_terminal else None)
        except subprocess.TimeoutExpired:
            sys.stderr.write(f"\r... {time.monotonic() - started:.0f} s\r")
            sys.stderr.flush()


NOT_PASSED_ON = {"PYTEST_ADDOPTS", "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "CI"}
FIXED_BY_US = {
    "COLUMNS": "80",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_PAGER": "cat",
    **{
        f"GIT_{who}_{what}": value
        for who in ("AUTHOR", "COMMITTER")
        for what, value in (
            ("NAME", "demo"),
            ("EMAIL", "demo@example.invalid"),
            ("DATE", "2026-01-01T00:00:00Z"),
        )
    },
}
"""The same on each machine, so that a commit has the same name on each."""


def environment():
    passed = {k: v for k, v in os.environ.items() if k not in NOT_PASSED_ON}
    return passed | FIXED_BY_US


def edited(text, edit):
    """Return the text with an edit, each place of which has to be there once."""
    for old, new in edit.swaps:
        if text.count(old) != 1:
            found = f"expected {old!r} once, found it {text.count(old)} times"
            raise UnexpectedError(f"{edit.file}: {found}")
        text = text.replace(old, new)
    return text


def diff(before, after, name):
    both = before.splitlines(), after.splitlines()
    names = f"a/{name}", f"b/{name}"
    return "\n".join(difflib.unified_diff(*both, *names, n=1, lineterm=""))


def require(printed, *texts, of):
    for text in texts:
        if text not in printed:
            raise UnexpectedError(f"{of}: expected {text.strip()!r} in what it says")


def typed_lines(command, indent=""):
    """Lay a command out as it is typed on lines of 80 columns."""
    unbroken = {"break_on_hyphens": False, "break_long_words": False}
    lines = textwrap.wrap(
        command,
        78,
        initial_indent=indent,
        subsequent_indent=f"{indent}    ",
        **unbroken,
    )
    return [*(f"{line} \\" for line in lines[:-1]), lines[-1]]


def heading(letter, text):
    say(f"\n{'=' * 80}\n({letter}) {text}\n{'=' * 80}")


def named(tests):
    return " and ".join(sorted(tests)) or "no test"


def say(text):
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="all rungs of the ladder")
    options = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gpuperf-demo-") as name:
        try:
            place = Place(Path(name))
            show_audit(place)
            show_gate(place)
            show_memory(place, ALL_RUNGS if options.all else CHEAP_RUNGS)
            show_ab(place)
            show_page(place)
        except UnexpectedError as error:
            sys.exit(f"\ndemo: {error}")
    say(f"\n{'=' * 80}\nShown, in {time.monotonic() - started:.0f} s:\n{'=' * 80}")
    say("\n".join(table(SHOWN)))


if __name__ == "__main__":
    main()
