"""``gpuperf ab --with=fastops==2.0``, where each function of the package got worse.

    python benchmarks/planted_upgrades.py [--unchanged N] [--device cpu] [--only NAME] [--out FILE]

``fastops`` is a package of this benchmark: one function a test, each with one planted
change in 2.0 (``planted_upgrades.toml``), of which five change the training, and some of
these no count. 1.0 is installed, and 1.1 is the same code. Wheels are made here and installed by uv or pip without a network. Each
command compares all tests on the simulated GPU; what a compiler does is compared on the
CPU. Prints what is said of each, and exits with 1 where a metric or a line is missed, an
unchanged test is blamed, or the training is said to be another one wrongly.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import tomllib


# The package: each function before and after its upgrade, and what must be said of it.


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgrade:
    """A planted change of one function ``f(model, x)``; ``metrics`` may show it.

    One without metrics changes the training alone. The changed line has the mark.
    """

    name: str
    before: str
    after: str
    metrics: Sequence[str] = ()
    device: str = "simulated"


MARK: Final = "# planted"

DEVICES: Final = ("simulated", "cpu")

UPGRADES: Final = tuple(
    Upgrade(**each)
    for each in tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))[
        "functions"
    ]
)

TEST: Final = """
def test_{name}(gpuperf):
    torch.manual_seed(0)
    device = gpuperf.device
    linear = torch.nn.Linear
    model = torch.nn.Sequential(linear(64, 64), linear(64, 64)).to(device)
    x = torch.ones(64, 64, device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step():
        result = fastops.{name}(model, x)
        if {trains}:
            result.backward()
            optimizer.step()
            optimizer.zero_grad()
            return result.detach()

    gpuperf(step)
"""


def source(version: str) -> str:
    """Return ``fastops/__init__.py`` of *version*."""
    planted = version.startswith("2")
    functions = [
        f"def {one.name}(model, x):\n{one.after if planted else one.before}\n"
        for one in UPGRADES
    ]
    return "\n\n".join(["import torch\n", *functions])


def planted_lines(text: str) -> dict[str, set[int]]:
    """Return the marked lines of each function of *text*, its first line if none is."""
    found: dict[str, set[int]] = {}
    name = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("def "):
            name = line[4 : line.index("(")]
            found[name] = set()
        if MARK in line:
            found[name].add(number)
    return found


def make_wheel(folder: Path, version: str) -> None:
    about = f"fastops-{version}.dist-info"
    files = {
        "fastops/__init__.py": source(version),
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: fastops\nVersion: {version}\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{about}/RECORD"] = "".join(
        f"{name},,\n" for name in [*files, f"{about}/RECORD"]
    )
    with zipfile.ZipFile(folder / f"fastops-{version}-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)


class Place:
    """A project, the package that it uses, and the wheels of the others."""

    def __init__(self, folder: Path) -> None:
        self.project, self._wheels = folder / "project", folder / "wheels"
        here = folder / "site-packages"
        for made in (self.project, self._wheels):
            made.mkdir()
        for version in ("1.0", "1.1", "2.0"):
            make_wheel(self._wheels, version)
        with zipfile.ZipFile(self._wheels / "fastops-1.0-py3-none-any.whl") as wheel:
            wheel.extractall(here)
        for device in DEVICES:
            chosen = [one for one in UPGRADES if one.device == device]
            tests = [
                TEST.format(name=one.name, trains=not one.metrics) for one in chosen
            ]
            text = "\n".join(["import fastops\nimport torch\n", *tests])
            (self.project / f"test_{device}.py").write_text(text, encoding="utf-8")
        (self.project / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        self._environ = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(
                [str(here), *filter(None, [os.environ.get("PYTHONPATH")])]
            ),
            "UV_FIND_LINKS": str(self._wheels),
            "UV_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self._wheels),
            "PIP_NO_INDEX": "1",
            "XDG_CACHE_HOME": str(folder / "caches"),
        }

    def compare(self, version: str, device: str, only: str = "") -> dict[str, Any]:
        """Type the command for the tests of *device*; return what it says of each."""
        start = time.monotonic()
        typed = ("ab", f"--with=fastops=={version}", f"--device={device}", "--json")
        tests = (f"test_{device}.py", "-k", only)
        done = subprocess.run(
            [sys.executable, "-m", "pytest_gpuperf", *typed, "--", *tests],
            cwd=self.project,
            env=self._environ,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode not in {0, 1, 2}:
            sys.exit(f"the command ended with {done.returncode}: {done.stderr}")
        print(
            f"fastops=={version} on {device}: {time.monotonic() - start:.0f} s, "
            f"exit status {done.returncode}",
            file=sys.stderr,
        )
        found = json.loads(done.stdout)["tests"]
        return {test["test"].rpartition("::test_")[2]: test for test in found}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What was said of one planted change. ``training`` is absent in older versions.

    ``line`` is that of the package, or of the test that calls it.
    """

    name: str
    wanted: str
    verdict: str
    metric: str
    line: str
    training: str

    @property
    def is_named(self) -> bool:
        """Whether all that is to be said was: another training, or metric and line."""
        if self.wanted == "training":
            return self.training in {"differs", ABSENT}
        return bool(self.metric) and self.line != "no"


ABSENT: Final = "-"


def row_of(upgrade: Upgrade, test: Mapping[str, Any], lines: set[int]) -> Row:
    worse = [
        change["metric"]
        for change in test["exact"]
        if change["after"] > change["before"]
    ]
    named = [metric for metric in worse if metric in upgrade.metrics]
    return Row(
        name=upgrade.name,
        wanted=" or ".join(upgrade.metrics) or "training",
        verdict=test["verdict"],
        metric=", ".join(named),
        line=_line(test, lines),
        training=training_of(test),
    )


def _line(test: Mapping[str, Any], lines: set[int]) -> str:
    """Say which line is named: a planted one of the package, that of the test, or none."""
    places = [
        (place["file"].endswith("fastops/__init__.py"), place["line"])
        for finding in test["findings"]
        for place in (finding["location"], finding["innermost"])
        if place
    ]
    if any(is_inside and line in lines for is_inside, line in places):
        return "package"
    return "caller" if places else "no"


def training_of(test: Mapping[str, Any]) -> str:
    said = test.get("training", ABSENT)
    return str(said.get("verdict", said) if isinstance(said, Mapping) else said)


def show(rows: Sequence[Row]) -> bool:
    form = "{:17} {:41} {:9} {:31} {:8} {:8} {}"
    print(form.format("planted", "wanted", "verdict", "metric", "line", "training", ""))
    for row in rows:
        said = "" if row.is_named else "MISSED"
        values = (row.name, row.wanted, row.verdict, row.metric, row.line, row.training)
        print(form.format(*(value or "" for value in values), said))
    named = sum(row.is_named for row in rows)
    print(f"named: {named} of {len(rows)}")
    unknown = sum(row.wanted == "training" and row.training == ABSENT for row in rows)
    if unknown:
        print(
            f"of these {unknown} change the training, which this version does not judge"
        )
    return named == len(rows)


def blamed_of(tests: Mapping[str, Any]) -> list[str]:
    """Return the unchanged *tests* of which something is said."""
    return [
        name
        for name, test in tests.items()
        if test["verdict"] in {"worse", "broken"} or training_of(test) == "differs"
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--unchanged", type=int, default=0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", default="", help="names, as pytest -k takes them")
    parser.add_argument("--device", choices=DEVICES, action="append")
    arguments = parser.parse_args()
    lines = planted_lines(source("2.0"))
    said: dict[str, Any] = {}
    blamed: list[str] = []
    pairs = 0
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(folder))
        for device in arguments.device or DEVICES:
            said |= place.compare("2.0", device, arguments.only)
            if arguments.out:
                arguments.out.write_text(json.dumps(said, indent=1), encoding="utf-8")
        while pairs < arguments.unchanged:
            same = place.compare("1.1", "simulated")
            pairs += len(same)
            blamed += blamed_of(same)
    is_good = show(
        [
            row_of(one, said[one.name], lines[one.name])
            for one in UPGRADES
            if one.name in said
        ]
    )
    print(f"unchanged: {len(blamed)} of {pairs} blamed", *blamed)
    return 0 if is_good and not blamed else 1


if __name__ == "__main__":
    sys.exit(main())
