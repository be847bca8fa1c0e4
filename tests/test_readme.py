"""README and docs do what they say: every block is followed, in order, in a folder.

``python`` blocks are written to the file they name and run, if its name is one of tests;
``diff`` blocks edit it; ``console`` blocks and the ``run`` lines of workflows are run,
and what they show is compared in shape to what is printed on the scripted device. A
comment ``script`` before a block says what that device plays, ``device`` takes another one,
and ``file`` puts a copy of a file there. The folder is a repository that git has just begun.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest
from documents import (
    DOCUMENTS,
    ROOT,
    Block,
    Command,
    blocks_of,
    commands_of,
    edited,
    has_shape,
)

from pytest_gpuperf.baselines.format import dumps, loads
from pytest_gpuperf.runner.fork_server import ForkServer, Job


NOT_RUN: Final = {
    "bash": "it needs a GPU, or root",
    "make": "it takes minutes",
    "pip": "it needs a network",
    "python": "it needs what a run on a GPU brought back",
    "torchrun": "it needs other machines",
    "uv": "it needs a network",
}
"""Programs that are only looked up, and why they are not run."""

LIMIT_S: Final = 600
"""For a command, beyond which it hangs; two slow cores that others share need 120."""

VERSION: Final = re.findall(
    r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE
)[0]

MACHINE: Final = {
    "hardware": "AMD EPYC 2 cores",
    "software": {"torch": "2.13.0+cpu"},
}
"""What the documents were written on."""


class Reader:
    """Somebody who follows a document in an empty folder."""

    def __init__(self, folder: Path, server: ForkServer) -> None:
        self._folder = folder
        self._server = server
        self._environment = {
            "CI": "",
            "COLUMNS": "80",
            "OMP_NUM_THREADS": "1",
            "GPUPERF_SCRIPT": "script.json",
            "PYTEST_ADDOPTS": "--gpuperf-device=scripted",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTEST_PLUGINS": "pytest_gpuperf.plugin,with_torch",
            "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), str(ROOT)]),
        }
        self._play("{}")
        self._run_git("init", "--quiet", "--initial-branch=main")

    def follow(self, block: Block) -> None:
        match block.kind:
            case "script" | "device" | "file":
                self._heed(block)
            case "python":
                self._write(block)
                if block.name.startswith("test_"):
                    self._run_plain(block.name)
            case "diff":
                path = self._folder / block.name
                path.write_text(edited(path.read_text(), block.text))
                self._run_plain(*[block.name] * block.name.startswith("test_"))
            case "ini":
                self._write(block)
                self._run_plain()
            case "json":
                assert dumps(loads(block.text, block.name)) == block.text
            case "console":
                self._run_all(block)
            case "yaml":
                self._environment["CI"] = "true"
                self._run_all(block)
                self._environment["CI"] = ""
            case _:
                pytest.fail(f"nobody knows how to follow a block of {block.kind}")

    def _heed(self, comment: Block) -> None:
        if comment.kind == "script":
            self._play(comment.text)
        elif comment.text == "default":
            # That of a machine without a GPU.
            self._environment |= {"CUDA_VISIBLE_DEVICES": "", "PYTEST_ADDOPTS": ""}
        elif comment.kind == "device":
            self._environment["PYTEST_ADDOPTS"] = f"--gpuperf-device={comment.text}"
        else:
            name, copied = comment.text.split()
            (self._folder / name).write_text((ROOT / copied).read_text())

    def _play(self, script: str) -> None:
        text = json.dumps(json.loads(script) | MACHINE)
        (self._folder / "script.json").write_text(text)

    def _write(self, block: Block) -> None:
        (self._folder / block.name).write_text(block.text)

    def _run_plain(self, *names: str) -> None:
        status, output = self._started("pytest", "-q", *names)
        assert status == pytest.ExitCode.OK, output

    def _run_all(self, block: Block) -> None:
        for command in commands_of(block):
            self._run(command)

    def _run(self, command: Command) -> None:
        program, *arguments = shlex.split(command.line, comments=True)
        if program == "git":
            self._run_git(*arguments)
            assert command.output == ""
            return
        if program == "python" and (self._folder / arguments[0]).is_file():
            subprocess.run([sys.executable, *arguments], cwd=self._folder, check=True)
            return
        if program in NOT_RUN:
            assert exists(program, arguments), command.line
            assert command.output == ""
            return
        here = [re.sub(r"(device)=(?:cpu|cuda)$", r"\1=scripted", a) for a in arguments]
        status, output = self._started(program, *here)
        assert status == int(command.fails), output
        if command.output:
            assert has_shape(output, command.output), output

    def _run_git(self, *arguments: str) -> None:
        author = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        subprocess.run(
            ["git", "-C", str(self._folder), *author, *arguments],  # noqa: S607
            check=True,
            capture_output=True,
        )

    def _started(self, *command: str) -> tuple[int, str]:
        request = {
            "command": command,
            "folder": str(self._folder),
            "environment": self._environment,
        }
        job = Job(entry="typed_commands:run", request=request)
        answer = self._server.run(job, seconds=LIMIT_S)
        return answer["status"], answer["output"]


def exists(program: str, arguments: list[str]) -> bool:
    """Whether what a command names is there, as far as that can be known."""
    match program, arguments:
        case ("bash", [script]) | ("python", [script, *_]):
            return (ROOT / script).is_file()
        case "make", [target]:
            targets = (ROOT / "Makefile").read_text(encoding="utf-8")
            return f"\n{target}: " in targets
        case ("pip", ["install", *_, package]) | (
            "uv",
            ["pip", "install", *_, package],
        ):
            return is_this_package(package)
        case "torchrun", _:
            return is_for_torchrun(arguments)
    return False


def is_this_package(package: str) -> bool:
    """Whether *package* is this project by name, name and version, folder or wheel."""
    name = "pytest-gpuperf"
    wheel = f"{name.replace('-', '_')}-{VERSION}-py3-none-any.whl"
    return package.rpartition("/")[2] in {name, f"{name}=={VERSION}", wheel}


def is_for_torchrun(arguments: list[str]) -> bool:
    """Whether torchrun takes *arguments* that start pytest with this plugin enabled."""
    parser = pytest.importorskip("torch.distributed.run").get_args_parser()
    try:
        parsed = parser.parse_args(arguments)
    except SystemExit:
        return False
    of_pytest = parsed.training_script_args
    return bool(parsed.training_script == "pytest" and "--gpuperf" in of_pytest)


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    """Give each command a fresh process that need not import torch."""
    pytest.importorskip("torch")
    modules = ("torch", "torch._dynamo", "typed_commands")
    with closing(ForkServer(modules, warm="typed_commands:warm_with_torch")) as server:
        server.wait_until_ready()
        yield server


documents = pytest.mark.parametrize(
    "document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT))
)


@documents
def test_a_document_can_be_followed_block_by_block(
    document: Path, server: ForkServer, tmp_path: Path
) -> None:
    reader = Reader(tmp_path, server)

    for block in blocks_of(document.read_text(encoding="utf-8")):
        print(f"{document.relative_to(ROOT)}:{block.line}")  # noqa: T201 - shown on failure
        reader.follow(block)


@documents
def test_no_fence_escapes_the_reader(document: Path) -> None:
    text = document.read_text(encoding="utf-8")

    fences = [line for line in text.splitlines() if line.lstrip().startswith("```")]
    hidden = {"script", "device", "file"}
    blocks = [block for block in blocks_of(text) if block.kind not in hidden]

    assert len(fences) == 2 * len(blocks)


def test_each_program_that_is_not_run_is_one_that_a_document_names() -> None:
    named = {
        command.line.split()[0]
        for document in DOCUMENTS
        for block in blocks_of(document.read_text(encoding="utf-8"))
        if block.kind in {"console", "yaml"}
        for command in commands_of(block)
    }

    assert named == {"git", "gpuperf", "pytest", *NOT_RUN}


@pytest.mark.parametrize(
    ("program", "arguments"),
    [
        ("bash", ["benchmarks/nothing.sh"]),
        ("make", ["test-most"]),
        ("python", ["benchmarks/nothing.py", "results"]),
        ("pip", ["install", "pytest-gpuperv"]),
        ("pip", ["install", "wheels/pytest_gpuperf-0.0.9-py3-none-any.whl"]),
        ("uv", ["pip", "install", "pytest-gpuperv"]),
        ("rm", ["-rf", "baselines"]),
        ("torchrun", ["--nodes=2", "-m", "pytest", "--gpuperf"]),
        ("torchrun", ["--nnodes=2", "-m", "pytest"]),
    ],
)
def test_what_does_not_exist_is_noticed(program: str, arguments: list[str]) -> None:
    assert not exists(program, arguments)


@pytest.mark.parametrize(
    "shown",
    [
        "syncs 1 a step\ngpuperf: 1 failed on CPU AMD EPYC 2 cores, 2.5 ms\n",
        "...\ngpuperf: 1 failed on CPU AMD EPYC 2 cores, 31.2 us\n",
        "...\nsyncs 1 a step\n...\n",
    ],
)
def test_other_numbers_with_a_unit_and_gaps_have_the_same_shape(shown: str) -> None:
    output = "syncs 1 a step\ngpuperf: 1 failed on scripted AMD EPYC 2 cores, 12 ms\n"

    assert has_shape(output, shown)


@pytest.mark.parametrize(
    "shown",
    [
        "syncs 1 a step\n",
        "syncs 2 a step\n...\n",
        "...\ngpuperf: 1 passed on CPU AMD EPYC 2 cores, 12 ms\n",
        "...\ngpuperf: 1 failed on CPU AMD EPYC 2 cores\n",
        "gpuperf: 1 failed on CPU AMD EPYC 2 cores, 12 ms\n...\nsyncs 1 a step\n",
    ],
)
def test_other_words_counts_or_lines_have_another_shape(shown: str) -> None:
    output = "syncs 1 a step\ngpuperf: 1 failed on scripted AMD EPYC 2 cores, 12 ms\n"

    assert not has_shape(output, shown)


def test_an_edit_needs_one_place() -> None:
    with pytest.raises(AssertionError, match="expected once"):
        edited("step()\nstep()\n", "-step()\n+step().item()\n")
