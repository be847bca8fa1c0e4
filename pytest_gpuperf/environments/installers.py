"""uv and pip: which packages a change needs, and their files in a folder."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from ..errors import ErrorId, UsageError


def installer() -> Uv | Pip:
    """Return uv if it is there, else pip; raise ``UsageError`` without both."""
    uv = shutil.which("uv")
    if uv is not None:
        return Uv(uv)
    if find_spec("pip") is not None:
        return Pip()
    msg = (
        "found neither uv nor pip; expected one of them to install other packages with"
    )
    raise UsageError(msg, ErrorId.GP716)


class Uv:
    """``uv pip``, which reads the present environment and installs elsewhere."""

    ADDED: Final = re.compile(r"^ [+~] (\S+(?: @ \S+)?)", re.MULTILINE)

    def __init__(self, program: str) -> None:
        self._typed = (program, "pip", "install", "--python", sys.executable)

    def needs(self, requirements: Sequence[str]) -> tuple[str, ...]:
        """Return the exact packages that *requirements* add to the present environment.

        What it has already is left out. Raises ``UsageError`` if there are none such.
        """
        planned = _run("uv", *self._typed, "--dry-run", "--", *requirements).stderr
        return tuple(sorted(self.ADDED.findall(planned)))

    def install(self, packages: Sequence[str], folder: Path) -> None:
        """Put the files of *packages*, and of nothing else, into *folder*."""
        target = ("--no-deps", "--target", str(folder))
        _run("uv", *self._typed, *target, "--", *packages)


class Pip:
    """The pip of this interpreter."""

    TYPED: Final = (
        *(sys.executable, "-m", "pip", "--disable-pip-version-check"),
        *("install", "--quiet"),
    )

    def needs(self, requirements: Sequence[str]) -> tuple[str, ...]:
        report = ("--dry-run", "--report", "-")
        planned = _run("pip", *self.TYPED, *report, "--", *requirements).stdout
        return tuple(sorted(map(_named, json.loads(planned)["install"])))

    def install(self, packages: Sequence[str], folder: Path) -> None:
        target = ("--no-deps", "--target", str(folder))
        _run("pip", *self.TYPED, *target, "--", *packages)


def _named(item: dict[str, dict[str, str]]) -> str:
    """Return what names a package of pip's report, and no other one."""
    name, version = item["metadata"]["name"], item["metadata"]["version"]
    if item["is_direct"]:
        return f"{name} @ {item['download_info']['url']}"
    return f"{name}=={version}"


def _run(program: str, *command: str) -> subprocess.CompletedProcess[str]:
    """Run what is called *program*; raise ``UsageError`` with its words if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - uv or pip
    if done.returncode:
        msg = f"{program} cannot install that: {last_words(done.stderr)}"
        raise UsageError(msg, ErrorId.GP718)
    return done


ERROR: Final = re.compile(r"^\s*(?:error:|\xd7)\s*(.+?):?$", re.IGNORECASE)
CAUSE: Final = re.compile(r"^\s*(?:cause:|Caused by:|╰─▶)\s*(.+)$")
"""As uv prints them, now and in 2024, and pip its errors."""


def last_words(text: str) -> str:
    """Return the last error that an installer prints, and the last cause it names."""
    lines = text.splitlines()
    errors = [found[1] for line in lines if (found := ERROR.match(line))]
    causes = [found[1] for line in lines if (found := CAUSE.match(line))]
    words = [*errors[-1:], *causes[-1:]] or [line for line in lines if line][-1:]
    return ": ".join(words).rstrip(".") or "it printed nothing"
