"""The examples where something is missing: they pass, skip or say what is missing.

A few of them are tried. ``GPUPERF_ALL_EXAMPLES=1`` tries the whole folder, which takes
minutes for each test here.
"""

from __future__ import annotations

import ast
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest


ROOT: Final = Path(__file__).parents[1]
EVERYWHERE: Final = (
    "no_hidden_sync/test_item.py",
    "graphs/test_graph_breaks.py",
    "host_to_device/test_loader_overlap.py",
)
TOGETHER: Final = ("distributed/test_tensor_parallel.py",)
WRITING: Final = ("no_hidden_sync/test_item.py", "host_to_device/test_as_tensor.py")
GIB: Final = 2**30
NUMPY: Final = "numpy"
"""torch itself warns where it is absent, so it is not optional for the examples."""

CUT_OFF: Final = """
import os, socket, sys

HERE = {"localhost", "127.0.0.1", "::1", "", "0.0.0.0", "::", None, socket.gethostname()}

def refuse(event, arguments):
    if event in {"socket.connect", "socket.sendto"}:
        address = arguments[1]
        name = address[0] if isinstance(address, tuple) else None
    elif event in {"socket.getaddrinfo", "socket.gethostbyname"}:
        name = arguments[0]
    else:
        return
    if name not in HERE:
        with open(os.environ["ATTEMPTS"], "a") as attempts:
            print(event, name, file=attempts)
        raise OSError(101, f"no network in this test, asked for {name}")

sys.addaudithook(refuse)
"""

WITHOUT: Final = """
import os, sys

class Absent:
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in os.environ["WITHOUT"].split():
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent)
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Give a copy of the examples, and of the settings that they are run with."""
    pytest.importorskip("torch")
    ignored = shutil.ignore_patterns("__pycache__", ".pytest_cache", ".gpuperf")
    folder = tmp_path / "checkout"
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def tried(chosen: tuple[str, ...] = EVERYWHERE) -> list[str]:
    """Return what pytest is to run in a checkout."""
    if os.environ.get("GPUPERF_ALL_EXAMPLES"):
        return ["examples"]
    return [f"examples/{name}" for name in chosen]


def run_in(
    folder: Path,
    *arguments: str,
    start: tuple[str, ...] = (),
    first: Callable[[], object] | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run pytest in *folder*, behind *start* and after *first*; it must not hang."""
    whole = os.environ.get("GPUPERF_ALL_EXAMPLES")
    quiet = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "CI": "", "COLUMNS": "80"}
    path = os.pathsep.join([str(folder.parent / "site"), str(ROOT)])
    plugin = ("-p", "pytest_gpuperf.plugin")
    return subprocess.run(
        [*start, sys.executable, "-m", "pytest", "-q", "-rs", *plugin, *arguments],
        cwd=folder,
        env={**os.environ, **quiet, "PYTHONPATH": path, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=first,
        timeout=5000 if whole else 1200,
    )


def every_process_runs(source: str, folder: Path) -> None:
    """Let each Python process that ``run_in`` starts begin with *source*."""
    (folder.parent / "site").mkdir()
    (folder.parent / "site" / "sitecustomize.py").write_text(source)


def assert_good(result: subprocess.CompletedProcess[str]) -> None:
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.search(r"^\d+ passed.* in ", result.stdout, re.MULTILINE)
    assert "INTERNALERROR" not in result.stdout + result.stderr


def keep_small() -> None:
    """Leave this process, and all that it starts, one core and 4 GiB each."""
    resource.setrlimit(resource.RLIMIT_DATA, (4 * GIB, 4 * GIB))
    if hasattr(os, "sched_setaffinity"):  # on Linux
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


@pytest.mark.parametrize(
    ("chosen", "device"),
    [(EVERYWHERE, "simulated"), (TOGETHER, "cpu")],
    ids=["alone", "ranks"],
)
def test_one_core_with_4_gib_and_no_network_is_enough(
    checkout: Path, chosen: tuple[str, ...], device: str
) -> None:
    every_process_runs(CUT_OFF, checkout)
    attempts = checkout.parent / "attempts.txt"

    result = run_in(
        checkout,
        *tried(chosen),
        "--gpuperf",
        f"--gpuperf-device={device}",
        first=keep_small,
        environment={"ATTEMPTS": str(attempts)},
    )

    assert_good(result)
    assert not attempts.exists(), attempts.read_text()


def optional_packages() -> Mapping[str, set[str]]:
    """Return the packages without which examples skip, and the files of those."""
    files: dict[str, set[str]] = {}
    for path in (ROOT / "examples").rglob("test_*.py"):
        for package in packages_in(path):
            files.setdefault(package, set()).add(str(path.relative_to(ROOT)))
    return files


def packages_in(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Call(
                func=ast.Attribute(attr="importorskip"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                package = name.partition(".")[0]
                if package not in {NUMPY, "torch"}:
                    yield package


def test_an_example_skips_and_names_the_package_that_it_has_not(checkout: Path) -> None:
    packages = optional_packages()
    if not packages:
        pytest.skip("every example runs with torch and numpy alone")
    every_process_runs(WITHOUT, checkout)
    files = sorted(set().union(*packages.values()))

    result = run_in(checkout, *files, environment={"WITHOUT": " ".join(packages)})

    said = result.stdout + result.stderr
    assert result.returncode in {0, pytest.ExitCode.NO_TESTS_COLLECTED}, said
    assert " failed" not in said
    for file in files:
        why = "(could not import|slow: select it)"
        assert re.search(rf"SKIPPED \[\d+\] {file}:\d+: {why}", said), said


@pytest.mark.parametrize(
    "measured",
    [(), ("--gpuperf", "--gpuperf-device=simulated")],
    ids=["unmeasured", "measured"],
)
def test_a_checkout_that_cannot_be_written_to_is_named_and_the_examples_pass(
    checkout: Path, measured: tuple[str, ...]
) -> None:
    start = read_only(checkout)

    result = run_in(checkout, *tried(WRITING), *measured, start=start)

    assert_good(result)
    message = (
        rf"gpuperf: {checkout}/\.gpuperf: cannot be created, "
        r"(read-only file system|permission denied); make its parent writable \[GP506\]"
    )
    named = re.findall(rf"^{message}$", result.stdout, re.MULTILINE)
    assert bool(named) == bool(measured), result.stdout


def read_only(folder: Path) -> tuple[str, ...]:
    """Make *folder* read-only, or return what to run a command behind that does.

    Modes do not bind the superuser, who has a mount of its own.
    """
    if os.geteuid() != 0:
        for path in (folder, *folder.rglob("*")):
            path.chmod(path.stat().st_mode & ~0o222)
        return ()
    mounts = f'mount --bind "{folder}" "{folder}"; mount -o remount,ro,bind "{folder}"'
    behind = ("unshare", "--mount", "sh", "-ec", f'{mounts}; cd "{folder}"; exec "$@"')
    if subprocess.run([*behind, "sh", "true"], check=False).returncode:
        pytest.skip("no file system can be mounted here")
    return (*behind, "sh")
