"""Checks what a release would upload: its archives, and the wheel alone.

    python tools/release.py [TORCH]

Needs ``build`` and ``twine``. Builds both archives in a temporary folder and has twine
check them strictly. The wheel must have the whole package and nothing else, the source
archive what git tracks. Then the wheel is installed in a fresh environment, with TORCH
(a wheel or a requirement, default: ``torch``) and its dependencies, and runs the first
commands of the README in an empty folder. A tag of this commit must be the version.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path
from typing import Final


ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from documents import blocks_of  # noqa: E402, it is found by the line above


LEFT_OUT: Final = re.compile(r"\.ci/")
"""What the source archive leaves out of what git tracks."""

WAITING: Final = """\
import torch

weight = torch.nn.Linear(8, 1).cuda()
optimizer = torch.optim.SGD(weight.parameters(), lr=0.1)
for _ in range(3):
    loss = weight(torch.rand(4, 8, device="cuda")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
"""


def main() -> None:
    """Build, check, install and try; end with the first thing that is wrong."""
    torch = sys.argv[1] if len(sys.argv) > 1 else "torch"
    with tempfile.TemporaryDirectory(prefix="gpuperf-release-") as folder:
        dist = Path(folder, "dist")
        run(sys.executable, "-m", "build", "--outdir", str(dist), str(ROOT))
        [wheel], [source] = dist.glob("*.whl"), dist.glob("*.tar.gz")
        run(sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(source))
        version = wheel.name.split("-")[1]
        check_tag(version)
        check_wheel(wheel)
        check_source(source)
        try_alone(wheel, torch, version, Path(folder))
    print(f"{wheel.name} and {source.name} are ready")


def check_tag(version: str) -> None:
    """Refuse a tag of this commit that names another version."""
    tags = tracked_lines("tag", "--points-at", "HEAD")
    wrong = [tag for tag in tags if re.match(r"v\d", tag) and tag != f"v{version}"]
    assert not wrong, f"tagged {wrong}, but the version is {version}"


def check_wheel(wheel: Path) -> None:
    """Compare the wheel with the package's tracked files."""
    with zipfile.ZipFile(wheel) as archive:
        names = {n for n in archive.namelist() if ".dist-info/" not in n}
    compare(names, set(tracked_lines("ls-files", "pytest_gpuperf")), wheel.name)


def check_source(source: Path) -> None:
    """Compare the source archive with all tracked files."""
    with tarfile.open(source) as archive:
        names = {n.partition("/")[2] for n in archive.getnames()} - {"PKG-INFO"}
    tracked = {n for n in tracked_lines("ls-files") if not LEFT_OUT.match(n)}
    compare(names, tracked, source.name)


def compare(found: set[str], expected: set[str], archive: str) -> None:
    missing, foreign = sorted(expected - found), sorted(found - expected)
    assert not missing, f"{archive} lacks {missing[:10]}"
    assert not foreign, f"{archive} has {foreign[:10]}, which git does not track"


def try_alone(wheel: Path, torch: str, version: str, folder: Path) -> None:
    """Install *wheel* in a fresh environment, and follow the README there."""
    venv.create(folder / "venv", with_pip=True)
    programs, project = folder / "venv" / "bin", folder / "project"
    pins = ("--constraint", str(ROOT / "constraints.txt"))
    run(str(programs / "pip"), "install", "--quiet", *pins, torch, str(wheel))
    project.mkdir()
    for name, text in readme_files().items():
        (project / name).write_text(text, encoding="utf-8")
    (project / "waiting.py").write_text(WAITING, encoding="utf-8")

    def typed(program: str, *arguments: str, status: int = 0) -> str:
        return run(str(programs / program), *arguments, status=status, cwd=project)

    assert typed("gpuperf", "--version") == f"pytest-gpuperf {version}\n"
    audit = typed("gpuperf", "audit", "waiting.py")
    assert "waiting.py:10" in audit, audit
    assert "print(loss.item())" in audit, audit
    typed("gpuperf", "doctor", "--device=pretend")
    tests = sorted(path.name for path in project.glob("test_*.py"))
    assert tests, "the README has no test"
    typed("pytest", *tests)
    passed = typed("pytest", "--gpuperf", "--gpuperf-device=pretend", *tests)
    assert re.search(r"^gpuperf: .*passed", passed, re.MULTILINE), passed


def readme_files() -> dict[str, str]:
    """Return the files of the README by name, as they are first shown."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found: dict[str, str] = {}
    for block in blocks_of(text):
        if block.kind == "python":
            found.setdefault(block.name, block.text)
    return found


def tracked_lines(*arguments: str) -> list[str]:
    return run("git", "-C", str(ROOT), *arguments).splitlines()


def run(*command: str, status: int = 0, cwd: Path | None = None) -> str:
    """Run *command* and return what it printed; it must exit with *status*."""
    # What is installed must be found, not what a checkout has.
    left_out = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CI")
    done = subprocess.run(
        command,
        cwd=cwd,
        env={name: value for name, value in os.environ.items() if name not in left_out},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == status, f"{' '.join(command)}:\n{done.stdout}"
    return done.stdout


if __name__ == "__main__":
    main()
