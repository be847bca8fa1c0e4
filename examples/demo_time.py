"""What ``make demo-time`` runs: a loop becomes slower, and the gate sees it by a clock.

What it stores says whether this machine is quiet enough to show anything; if not, it says
so and ends with 0.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from pathlib import Path

from demo_commands import Command, Edit, Place, UnexpectedError, heading, say


DEVICE = "cuda" if shutil.which("nvidia-smi") else "cpu"
COPIED = {
    "test_mnist_loop.py": "host_to_device/test_mnist_loop.py",
    "models/simplenet.py": "models/simplenet.py",
}

MOST_PERCENT = 50.0
"""The planted fault makes a step several times as slow: less than that is seen."""

GATED = f"pytest --gpuperf --gpuperf-device={DEVICE} -k with_its_loader"
STORE = Command(f"{GATED} --gpuperf-update=missing", ("1 passed",))
GATE = Command(GATED, ("SLOWER",), code=1)

SLOWER = Edit(
    why="A bracket slips: for each image, all images are normalised.",
    file="test_mnist_loop.py",
    swaps=(("normal(self.images[index])", "normal(self.images)[index]"),),
)


def show_time(place):
    heading("A loop with its loader: stored, made slower, red")
    percent = acuity(place.run(STORE))
    say(f"\n{verdict(percent)}")
    if percent is None or percent > MOST_PERCENT:
        return
    say(f"\n{SLOWER.why}\n{place.plant(SLOWER)}")
    place.run(GATE)


def acuity(text):
    """Return the smallest slowdown in percent that this machine sees, if it is known."""
    found = re.search(r"can detect slowdowns of ([\d.]+) %", " ".join(text.split()))
    return found and float(found[1])


def verdict(percent):
    """Say whether so much is enough to show anything."""
    if percent is None:
        return "This machine is too busy to show anything: no step could be timed."
    if percent > MOST_PERCENT:
        seen = f"it would see slowdowns of {percent:.0f} % or more"
        return f"This machine is too busy to show anything: {seen}."
    return f"Yes: it sees slowdowns of {percent:.1f} % or more."


def main():
    with tempfile.TemporaryDirectory(prefix="gpuperf-demo-") as name:
        try:
            show_time(Place(Path(name), COPIED))
        except UnexpectedError as error:
            sys.exit(f"\ndemo: {error}")


if __name__ == "__main__":
    main()
