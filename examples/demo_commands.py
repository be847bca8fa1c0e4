"""How the demonstrations type commands, run them on copies, and check what they say."""

from __future__ import annotations

import difflib
import os
import shlex
import shutil
import subprocess
import sys
import textwrap
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


HERE = Path(__file__).parent
SETTINGS = "[pytest]\naddopts = -q --no-header -p no:cacheprovider\n"
CUT = " | cut -c -80"


class UnexpectedError(Exception):
    """Something happened that the demo says does not happen."""


def fail(text):
    raise UnexpectedError(text)


# Changes of files.


@dataclass(frozen=True)
class Edit:
    """A change of a file, and why somebody makes it."""

    why: str
    file: str
    swaps: tuple[tuple[str, str], ...]


def edited(text, edit):
    """Return the text with an edit, each place of which has to be there once."""
    for old, new in edit.swaps:
        if text.count(old) != 1:
            fail(
                f"{edit.file}: expected {old!r} once, found it {text.count(old)} times"
            )
        text = text.replace(old, new)
    return text


def diff(before, after, name):
    both = before.splitlines(), after.splitlines()
    names = f"a/{name}", f"b/{name}"
    return "\n".join(difflib.unified_diff(*both, *names, n=1, lineterm=""))


# Commands.


@dataclass(frozen=True)
class Command:
    """A command as a user types it, how it has to end, and what it has to say."""

    typed: str
    texts: tuple[str, ...] = ()
    code: int = 0


class Place:
    """A folder with copies of the examples, under git, in which commands run."""

    def __init__(self, folder, copied):
        self.folder = folder
        for name, source in copied.items():
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copy(HERE / source, folder / name)
        self.write("pytest.ini", SETTINGS)
        if not shutil.which("git"):
            fail("found no git, which it needs: install it")
        self.git("init", "--quiet")
        self.git("add", ".")
        self.git("commit", "--quiet", "--message=As-it-is")

    def read(self, name):
        return (self.folder / name).read_text(encoding="utf-8")

    def write(self, name, text):
        (self.folder / name).write_text(text, encoding="utf-8")

    def plant(self, edit):
        """Make an edit and return it as a diff."""
        lines = self.patch(None, edit)
        self.write(edit.file, edited(self.read(edit.file), edit))
        return lines

    def patch(self, name, edit):
        """Return an edit as a diff, and write it to a file if that has a name."""
        before = self.read(edit.file)
        lines = diff(before, edited(before, edit), edit.file)
        if name:
            self.write(name, f"{lines}\n")
        return lines

    def git(self, *arguments):
        self.run(Command(" ".join(("git", *arguments))), shown=False)

    def run(self, command, *, shown=True):
        """Run one command and return what it printed."""
        return finished(command, self.start(command), shown=shown)

    def run_all(self, commands):
        """Run two at a time, as they are independent; print them in their order."""
        printed = []
        for first in range(0, len(commands), 2):
            pair = [(each, self.start(each)) for each in commands[first : first + 2]]
            printed += [finished(*each) for each in pair]
        return printed

    def start(self, command):
        program, *arguments = shlex.split(command.typed.removesuffix(CUT))
        module = {"pytest": "pytest", "gpuperf": "pytest_gpuperf"}.get(program)
        python = [sys.executable, "-m", module] if module else [program]
        return subprocess.Popen(  # noqa: S603, the demo's own commands
            [*python, *arguments],
            cwd=self.folder,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def finished(command, process, *, shown=True):
    """Print a command and what it prints; raise unless it ends as it has to."""
    if shown:
        say("\n" + "\n".join(typed_lines(f"$ {command.typed}")))
    printed, errors = waited(process)
    width = 80 if command.typed.endswith(CUT) else None
    if shown:
        say("\n".join(line[:width] for line in printed.rstrip().splitlines()))
    if process.returncode != command.code:
        say(errors.rstrip())
        found = f"exit status {process.returncode}, expected {command.code}"
        fail(f"`{command.typed}` ended with {found}")
    require(printed, *command.texts, of=f"`{command.typed}`")
    return printed


def waited(process):
    """Return what a process printed; on a terminal a line says how long it takes."""
    started, is_terminal = time.monotonic(), sys.stderr.isatty()
    while True:
        with suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=1 if is_terminal else None)
        if is_terminal:
            sys.stderr.write(f"... {time.monotonic() - started:.0f} s\r")
            sys.stderr.flush()


def require(printed, *texts, of):
    for text in texts:
        if text not in printed:
            fail(f"{of}: expected {text.strip()!r} in what it says")


NOT_PASSED_ON = {
    "CI",
    "GIT_DIR",
    "GIT_INDEX_FILE",
    "GIT_WORK_TREE",
    "PYTEST_ADDOPTS",
    "PYTHONDONTWRITEBYTECODE",  # or each process compiles torch's Python code again
}

SAME_EVERYWHERE = {
    "COLUMNS": "80",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_PAGER": "cat",
}
# With these a commit has the same name on each machine.
SAME_EVERYWHERE |= {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in {
        "NAME": "demo",
        "EMAIL": "demo@example.invalid",
        "DATE": "2026-01-01T00:00:00Z",
    }.items()
}


def environment():
    passed = {k: v for k, v in os.environ.items() if k not in NOT_PASSED_ON}
    return passed | SAME_EVERYWHERE


# What is printed.


def typed_lines(command, indent=""):
    """Lay a command out as it is typed on lines of 80 columns."""
    lines = textwrap.wrap(
        command,
        78,
        initial_indent=indent,
        subsequent_indent=f"{indent}    ",
        break_on_hyphens=False,
        break_long_words=False,
    )
    return [*(f"{line} \\" for line in lines[:-1]), lines[-1]]


def heading(text):
    say(f"\n{'=' * 80}\n{text}\n{'=' * 80}")


def say(text):
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
