"""Strings that belong to one machine and its user, and the files that must not hold them."""

from __future__ import annotations

import gzip
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from scripted_project import ScriptedProject


SECRETS: Final = {
    "USER": "usernameofann",
    "LOGNAME": "lognameofann",
    "USERNAME": "usernameofann",
    "HOSTNAME": "hostnameofann",
    "GITHUB_TOKEN": "ghp_tokenofann",
    "CI_JOB_TOKEN": "jobtokenofann",
}
LEAST_HOST: Final = 6
"""Characters of a host name that nothing else is likely to hold."""


def made_local(
    project: ScriptedProject, monkeypatch: pytest.MonkeyPatch, home: Path
) -> list[str]:
    """Give the run a user with names, tokens and a *home*; return what may leak of them."""
    home.mkdir()
    for name, value in {**SECRETS, "HOME": str(home)}.items():
        monkeypatch.setenv(name, value)
    host = socket.gethostname()
    known = [host] if len(host) >= LEAST_HOST else []
    return [*SECRETS.values(), str(home), home.name, str(project.path), *known]


def written(project: ScriptedProject) -> Iterator[tuple[str, bytes]]:
    for folder in (".gpuperf", "baselines"):
        for path in sorted((project.path / folder).rglob("*")):
            if path.is_file():
                content = path.read_bytes()
                is_packed = path.suffix == ".gz"
                name = str(path.relative_to(project.path))
                yield name, gzip.decompress(content) if is_packed else content


def leaks(project: ScriptedProject, strings: list[str]) -> list[tuple[str, str]]:
    return [
        (name, string)
        for name, content in written(project)
        for string in strings
        if string.encode() in content or string in name
    ]
