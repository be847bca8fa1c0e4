"""Whether blame by operation names the planted line, and nothing where nothing changed.

    python benchmarks/blame.py

Plants the 20 changes of ``blame.toml`` in its small GPT, then compares 200 times code with
itself, half of them with other line numbers.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import tomllib
import torch

from pytest_gpuperf.devices.operations import operations_of_step
from pytest_gpuperf.judge.operations import Digest, blamed
from pytest_gpuperf.model.environment import DeviceKind, Environment, Hardware
from pytest_gpuperf.model.measurement import Measurement
from pytest_gpuperf.report.screen.findings import blame_texts
from pytest_gpuperf.worker.items import below


TEXTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
PROGRAM, PLANTED = TEXTS["program"], TEXTS["planted"]


class Version:
    """A program in a folder of its own."""

    def __init__(self, folder: Path, text: str) -> None:
        folder.mkdir(parents=True)
        self.folder, self.text = folder, text
        path = folder / "net.py"
        path.write_text(text)
        specification = importlib.util.spec_from_file_location("net", path)
        assert specification
        assert specification.loader
        module = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(module)
        self.trainer = module.trainer
        self.step = module.trainer()
        self.step()

    def digest(self) -> Digest:
        found = operations_of_step(self.step, (), str(self.folder))
        hardware = Hardware(kind=DeviceKind.CPU, name="x")
        measured = Measurement(
            test="t",
            environment=Environment(hardware=hardware, software={}),
            operations=found,
        )
        return below(self.folder, measured).operations


def planted(folder: Path) -> int:
    """Print whether each line is found, and return how many are."""
    before = Version(folder / "before", PROGRAM).digest()
    hits = 0
    for each in PLANTED:
        name, expected = each["name"], each["line"]
        assert each["old"] in PROGRAM, name
        text = PROGRAM.replace(each["old"], each["new"], 1)
        after = Version(folder / name.replace(" ", "-"), text).digest()
        found = blamed([before], [after])
        lines = text.splitlines()
        named = [lines[c.location.line - 1] if c.location else "" for c in found[:3]]
        hit = next((n for n, line in enumerate(named, 1) if expected in line), 0)
        hits += hit > 0
        print(f"{f'line {hit}' if hit else 'MISSED':8}{name}")
        for change in found[: 3 if not hit else 1]:
            print("           ", *blame_texts([change]))
    return hits


def unchanged(folder: Path) -> int:
    """Return how many of 200 comparisons of code with itself are blamed for nothing."""
    before = Version(folder / "same", PROGRAM)
    lines = PROGRAM.splitlines(keepends=True)
    others = [
        Version(folder / f"moved{n}", "".join([*lines[:n], "# moved\n", *lines[n:]]))
        for n in range(20)
    ]
    clean = 0
    for number in range(100):
        clean += not blamed([before.digest()], [before.digest()])
        clean += not blamed([before.digest()], [others[number % 20].digest()])
    return clean


def main() -> None:
    torch.set_num_threads(1)
    with TemporaryDirectory() as name:
        hits, clean = planted(Path(name)), unchanged(Path(name))
    print(f"planted: {hits} of {len(PLANTED)} named within three lines of blame")
    print(f"unchanged: {clean} of 200 blamed for nothing")
    sys.exit(hits < len(PLANTED) - 1 or clean < 200)


if __name__ == "__main__":
    main()
