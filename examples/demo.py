"""What ``make demo`` runs: all that needs no clock, on the simulated GPU.

It works on copies in a temporary folder. The exit status is 1, with a sentence, if anything
is not as this file says. ``--all`` predicts four rungs of the ladder of memory, not two.
What needs a clock is in ``demo_time.py``.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from claims import read_claims
from demo_commands import (
    CUT,
    HERE,
    Command,
    Edit,
    Place,
    UnexpectedError,
    fail,
    heading,
    require,
    say,
    typed_lines,
)


COPIED = {
    "train.py": "first_minute/train.py",
    "test_steps.py": "gate/test_steps.py",
    "gpt2_large.py": "gpt2_large.py",
    "models/gpt2.py": "models/gpt2.py",
}


# (a) The audit of a script.

AUDIT = Command(
    "gpuperf audit train.py",
    (
        "4 syncs per step on 3 lines",
        "31 | images, labels = images.to(device), labels.to(device)",
        "37 | total += loss.item()",
        "38 | correct += (output.argmax(1) == labels).sum().item()",
    ),
)
CLEAN = Command("gpuperf audit --max-syncs-per-step=0 train.py", ("0 syncs per step",))

FIXED = Edit(
    why="The three fixes, applied. What is added up is read once, after the last step:",
    file="train.py",
    swaps=(
        (
            "        images, labels = images.to(device), labels.to(device)\n",
            (
                "        images = images.to(device, non_blocking=True)\n"
                "        labels = labels.to(device, non_blocking=True)\n"
            ),
        ),
        ("total += loss.item()", "total += loss.detach()"),
        ("== labels).sum().item()", "== labels).sum().detach()"),
        (
            "return total / len(loader), correct / len(loader.dataset)",
            "return total.item() / len(loader), correct.item() / len(loader.dataset)",
        ),
        (
            "    loader = DataLoader(data, batch_size=options.batch_size, shuffle=True)\n",
            (
                "    loader = DataLoader(\n"
                "        data, batch_size=options.batch_size, shuffle=True, pin_memory=True\n"
                "    )\n"
            ),
        ),
    ),
)


def show_audit(place):
    heading("(a) Which lines of a script wait for the GPU?")
    place.run(AUDIT)
    say(f"\n{FIXED.why}\n{place.plant(FIXED)}")
    place.run(CLEAN)


# (b) The gate of five training steps.


@dataclass(frozen=True)
class Fault:
    """A plausible change of a test, what the gate calls it, and the line that it names."""

    test: str
    headline: str
    line: str
    edit: Edit


def in_tests(why, old, new):
    return Edit(why, "test_steps.py", ((old, new),))


FAULTS = (
    Fault(
        test="test_the_loss_stays_on_the_gpu",
        headline="NEW SYNC",
        line="total.add_(loss.item())",
        edit=in_tests(
            "1. A sync: somebody wants the loss as a number.",
            "total.add_(loss.detach())",
            "total.add_(loss.item())",
        ),
    ),
    Fault(
        test="test_images_are_copied_from_pinned_memory",
        headline="NEW UNPINNED COPY",
        line="copied = images.to(gpuperf.device, non_blocking=True)",
        edit=in_tests(
            "2. A pageable copy: an argument is lost.",
            'torch.rand(256, 64, pin_memory=gpuperf.device == "cuda")',
            "torch.rand(256, 64)",
        ),
    ),
    Fault(
        test="test_old_losses_keep_no_graph",
        headline="RETAINED GRAPH",
        line="loss = F.cross_entropy(model(images), labels)",
        edit=in_tests(
            "3. Memory that grows: each loss in the list keeps its graph alive.",
            "losses.append(loss.detach())",
            "losses.append(loss)",
        ),
    ),
    Fault(
        test="test_all_images_are_scaled_at_once",
        headline="MORE LAUNCHES",
        line="return model(torch.stack([row / row.amax() for row in images]))",
        edit=in_tests(
            "4. A loop in place of one batched operation.",
            "return model(images / images.amax(1, keepdim=True))",
            "return model(torch.stack([row / row.amax() for row in images]))",
        ),
    ),
)
MEANT = Fault(
    test="test_sgd_needs_no_state",
    headline="MORE LAUNCHES",
    line="optimizer.step()",
    edit=in_tests(
        "5. And a change that is meant: momentum.",
        "model.parameters(), lr=0.1)",
        "model.parameters(), lr=0.1, momentum=0.9)",
    ),
)

GATED = "pytest --gpuperf --gpuperf-device=simulated"
STORE = Command(f"{GATED} --gpuperf-update=missing", ("5 passed",))
GATE = Command(GATED, ("5 failed",), code=1)
ACCEPT = Command(
    f"gpuperf accept --accept-drift --only=test_steps.py::{MEANT.test} .gpuperf",
    ("gpuperf: 1 accepted",),
)
REVIEW = Command(
    f"git diff --unified=0 baselines/simulated-cuda.json{CUT}",
    ('"launches": 17',),
)


def show_gate(place):
    heading("(b) A gate for training steps: stored and green, then four faults")
    place.run(STORE)
    place.git("add", "baselines")
    for fault in (*FAULTS, MEANT):
        say(f"\n{fault.edit.why}\n{place.plant(fault.edit)}")
    printed = place.run(GATE)
    require_red(printed, place.read("test_steps.py"))
    say("\nThe fifth was meant. One command accepts it; this is what a reviewer reads:")
    place.run(ACCEPT)
    place.run(REVIEW)
    place.git("checkout", "--quiet", "test_steps.py")


def require_red(printed, source):
    """Raise unless exactly these tests failed, each at its line, a fault with its fix."""
    planted = (*FAULTS, MEANT)
    red = set(re.findall(r"^FAILED \S+::(\w+)", printed, re.MULTILINE))
    if red != {fault.test for fault in planted}:
        fail(f"expected five other tests to fail, found {' and '.join(sorted(red))}")
    lines = [line.strip() for line in source.splitlines()]
    for fault in planted:
        place = f"{lines.index(fault.line) + 1} | {fault.line}"
        fix = () if fault is MEANT else ("\n  fix ",)
        section = section_of(printed, fault.test)
        require(section, fault.headline, place, *fix, of=fault.test)


def section_of(printed, test):
    """Return what is printed about the failure of a test."""
    _, found, rest = printed.partition(f" {test} __")
    return re.split(r"\n_{3,} test_|\n={3,}", rest)[0] if found else ""


# (c) The memory of a script.

MEMORY = "gpuperf memory --no-values --no-savings --steps=2 gpt2_large.py -- --rung={}"
CHEAP_RUNGS = (0, 1)
ALL_RUNGS = (0, 1, 2, 3)
NEAR = 0.01


def show_memory(place, numbers):
    heading("(c) Does GPT-2 large fit? 36 layers, a batch of 32, and no GPU")
    commands = [Command(MEMORY.format(number)) for number in numbers]
    found = [needed_mib(printed) for printed in place.run_all(commands)]
    rungs = [read_claims().ladder[number] for number in numbers]
    say("\n" + "\n".join(ladder_lines(rungs, found)))
    for rung, mib in zip(rungs, found, strict=True):
        if abs(mib / rung.predicted_mib - 1) > NEAR:
            expected = f"expected {rung.predicted_mib:.0f} MiB within {NEAR:.0%}"
            fail(f"{rung.name}: {expected}, found {mib:.0f}")


def needed_mib(printed):
    """Return the peak that ``gpuperf memory`` printed, cuBLAS's part with it."""
    found = re.search(r"needs ([\d.]+) GiB(?: and ([\d.]+) MiB of cuBLAS)? at", printed)
    if not found:
        return fail("found no peak in GiB")
    return float(found.group(1)) * 1024 + float(found.group(2) or 0)


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


# (d) A patch beside the code as it is.

AB = f"gpuperf ab --device=simulated --patch={{}} -- test_steps.py::{MEANT.test}"
SAME = "same training: 1 of 1"
REFACTORED = in_tests(
    "A refactoring, as refactored.patch:",
    "    loss = F.cross_entropy(model(images), labels)\n",
    "    scores = model(images)\n    loss = nn.CrossEntropyLoss()(scores, labels)\n",
)
CHECKED = in_tests(
    "A check that reads the loss in each step, as checked.patch:",
    "    optimizer.zero_grad()\n",
    "    if loss.isnan():\n"
    '        raise ValueError("the loss is NaN")\n'
    "    optimizer.zero_grad()\n",
)
AB_SAME = Command(AB.format("refactored.patch"), (SAME, "gpuperf: 1 same"))
AB_WORSE = Command(
    AB.format("checked.patch"),
    (SAME, "29 | if loss.isnan():", "\n  fix ", "gpuperf: 1 worse"),
    code=1,
)


def show_ab(place):
    heading("(d) Does a patch train the same, and what does it add?")
    for name, edit in (("refactored.patch", REFACTORED), ("checked.patch", CHECKED)):
        say(f"\n{edit.why}\n{place.patch(name, edit)}")
    place.run_all([AB_SAME, AB_WORSE])


# (e) The page, and the end.

REPORT = Command("gpuperf report --results=.gpuperf/results.json", ("report.html",))
PAGE = Path(".gpuperf", "demo.html")


def show_page(place):
    heading("(e) The run with the four faults as a page")
    place.run(REPORT)
    made, kept = place.folder / ".gpuperf" / "report.html", HERE.parent / PAGE
    require(
        made.read_text(encoding="utf-8"), *(f.test for f in FAULTS), of=REPORT.typed
    )
    kept.parent.mkdir(exist_ok=True)
    shutil.copy(made, kept)
    say(f"\nOpen it in a browser: {PAGE}")


SHOWN = (
    ("lines that wait, with their fixes", AUDIT.typed),
    ("a limit, which CI can check", CLEAN.typed),
    ("a baseline stored", STORE.typed),
    ("four planted faults caught", GATE.typed),
    ("a meant change accepted", ACCEPT.typed),
    ("the peak memory of a script", MEMORY.format(0)),
    ("a patch that trains the same", AB_SAME.typed),
    ("a patch that adds a sync", AB_WORSE.typed),
    ("the run as a page", REPORT.typed),
)


def table(rows):
    """Lay out what was shown, and the command for each, below it if it is long."""
    for what, command in rows:
        line = f"{what:<36}{command}"
        if len(line) <= 80:
            yield line
        else:
            yield from (what, *typed_lines(command, " " * 4))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="four rungs of the ladder")
    numbers = ALL_RUNGS if parser.parse_args().all else CHEAP_RUNGS
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gpuperf-demo-") as name:
        try:
            place = Place(Path(name), COPIED)
            show_audit(place)
            show_gate(place)
            show_memory(place, numbers)
            show_ab(place)
            show_page(place)
        except UnexpectedError as error:
            sys.exit(f"\ndemo: {error}")
    heading(f"All as it should be, after {time.monotonic() - started:.0f} s. Shown:")
    say("\n".join(table(SHOWN)))


if __name__ == "__main__":
    main()
