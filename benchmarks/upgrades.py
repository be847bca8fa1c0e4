"""Real upgrades of public packages: what `gpuperf ab` says of them without a GPU.

Each row of ``upgrades.toml`` is one program, run with two releases of a package on the simulated GPU. The
earlier release is installed by `uv` into an environment of its own, the later one by
`gpuperf ab --with`, so this needs an index of packages. Prints what the table of
`benchmarks/evidence/upgrades.md` is made of, a row as soon as it is known. The rows were picked before any of them ran; those that fail stay in the table.

    python benchmarks/upgrades.py            # all rows
    python benchmarks/upgrades.py kornia     # rows with this in their name
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Final

import tomllib


ROOT: Final = Path(__file__).parents[1]


LOOP = """
import torch
torch.manual_seed(0)
device = "cuda"
{setup}
for index in range(4):
{body}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgrade:
    """Two releases of a package, the setup and one step of the program that uses it."""

    package: str
    before: str
    after: str
    program: str
    setup: str
    step: str
    also: Sequence[str] = ()

    @property
    def name(self) -> str:
        return f"{self.package} {self.before} -> {self.after}"

    def text(self) -> str:
        body = "".join(f"    {line}\n" for line in self.step.splitlines())
        return LOOP.format(setup=self.setup.strip(), body=body)


def upgrades() -> Iterator[Upgrade]:
    """Read the rows of ``upgrades.toml``."""
    read = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    for row in read["upgrades"]:
        yield Upgrade(**{**row, **read["programs"][row["program"]]})


def compared(upgrade: Upgrade, folder: Path) -> tuple[int, str, str]:
    """Return the exit status of `gpuperf ab`, its JSON and its errors."""
    (folder / "train.py").write_text(upgrade.text())
    try:
        python = _installed(upgrade, folder / "environment")
    except subprocess.CalledProcessError as error:
        return error.returncode, "", f"cannot be installed: {error.stderr}"
    ran = subprocess.run(
        [
            *(python, "-m", "pytest_gpuperf", "ab", "--json"),
            f"--with={upgrade.package}=={upgrade.after}",
            *("--", "train.py"),
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return ran.returncode, ran.stdout, ran.stderr


def _installed(upgrade: Upgrade, place: Path) -> Path:
    """Install the earlier release, torch and this project, as a user has them."""
    uv, python = str(shutil.which("uv")), place / "bin" / "python"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    subprocess.run([uv, "venv", "--quiet", "--python", version, place], check=True)
    pins = f"{upgrade.package}=={upgrade.before}", *upgrade.also
    torch = f"torch=={metadata.version('torch').partition('+')[0]}"
    install: list[str | Path] = [uv, "pip", "install", "--quiet", "--python", python]
    subprocess.run(
        [*install, torch, *pins, ROOT], check=True, capture_output=True, text=True
    )
    return python


def moved(test: Mapping[str, Any]) -> Iterator[str]:
    for change in test["exact"]:
        yield (
            f"{change['verdict']} {change['metric']} {change['before']:,} -> {change['after']:,}"
        )


def lines(test: Mapping[str, Any]) -> Iterator[str]:
    for found in test["findings"]:
        then, now = found["before_per_step"], found["per_step"]
        inner = found["innermost"] or found["location"]
        if inner and then != now:
            place = inner["file"].split("site-packages/")[-1]
            yield f"{found['op'] or found['kind']} at {place}:{inner['line']}: {then} -> {now}"


def main(wanted: str = "") -> int:
    for upgrade in upgrades():
        if wanted not in upgrade.name:
            continue
        start = perf_counter()
        with TemporaryDirectory() as folder:
            status, out, err = compared(upgrade, Path(folder))
        took = f"{perf_counter() - start:.0f} s"
        print(f"## {upgrade.name}: exit {status}, {took}")
        if not out:
            print(f"   {err.strip().splitlines()[-1] if err.strip() else 'nothing'}")
            continue
        found = json.loads(out)
        for test in found["tests"]:
            same = test.get("training")
            print(f"   {test['verdict']}; training: {same}")
            for line in (*moved(test), *lines(test)):
                print(f"   {line}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
