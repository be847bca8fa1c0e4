"""Makes what a release uploads, into ``dist``, and checks it: archives and the wheel alone.

    python tools/release.py [TORCH]

Needs ``build``, ``twine`` and ``readme-renderer[md]``. Builds both archives of what git
tracks, with the tools that ``constraints.txt`` pins, and has twine check them strictly. The
wheel must have the whole package and nothing else, the source archive what git tracks, and
the page on an index only links that lead somewhere. Then the wheel is installed in a fresh
environment, with TORCH (a wheel or a requirement, default: ``torch``) and its dependencies,
and runs the first commands of the README in an empty folder; some tests run in the unpacked
source archive. A tag of this commit must be the version, in a checkout without changes.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Mapping
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from types import MappingProxyType
from typing import Final


ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from documents import blocks_of


LEFT_OUT: Final = re.compile(r"\.ci/")
"""What the source archive leaves out of what git tracks."""

BESIDE: Final = {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}
"""What a wheel has beside the package."""

PLACEHOLDER: Final = "/OWNER/"
"""The owner in the project's address, until it has one."""

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
        wheel, source = built(Path(folder))
        run(sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(source))
        version = wheel.name.split("-")[1]
        check_wheel(wheel)
        check_source(source)
        metadata = metadata_of(wheel)
        check_page(metadata, version)
        check_tag(version, str(metadata))
        programs = try_alone(wheel, torch, version, Path(folder))
        try_source(source, programs, Path(folder))
        shutil.rmtree(ROOT / "dist", ignore_errors=True)
        shutil.copytree(wheel.parent, ROOT / "dist")
    print(f"dist/{wheel.name} and dist/{source.name} are ready")


def built(folder: Path) -> tuple[Path, Path]:
    """Build the wheel and the source archive of what git tracks, and of nothing else."""
    dist, tracked = folder / "dist", folder / "tracked"
    run("git", "-C", str(ROOT), "checkout-index", "--all", f"--prefix={tracked}/")
    build = (sys.executable, "-m", "build", "--outdir", str(dist), str(tracked))
    run(*build, environ={"PIP_CONSTRAINT": str(ROOT / "constraints.txt")})
    [wheel], [source] = dist.glob("*.whl"), dist.glob("*.tar.gz")
    return wheel, source


def check_tag(version: str, metadata: str) -> None:
    """Refuse a tag of this commit for another version, or of what is not all committed."""
    tags = [
        t for t in tracked_lines("tag", "--points-at", "HEAD") if re.match(r"v\d", t)
    ]
    wrong = [tag for tag in tags if tag != f"v{version}"]
    assert not wrong, f"tagged {wrong}, but the version is {version}"
    if tags:
        changed = tracked_lines("status", "--porcelain", "--untracked-files=no")
        assert not changed, f"tagged {tags}, but there are changes: {changed[:10]}"
        assert PLACEHOLDER not in metadata, (
            f"tagged {tags}, but {PLACEHOLDER} has no name"
        )


def check_wheel(wheel: Path) -> None:
    """Compare the wheel with the package's tracked files."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    own = {n for n in names if ".dist-info/" not in n}
    compare(own, set(tracked_lines("ls-files", "pytest_gpuperf")), wheel.name)
    compare({n.partition("/")[2] for n in {*names} - own}, BESIDE, wheel.name)


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


def metadata_of(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        return message_from_bytes(archive.read(name))


def check_page(metadata: Message, version: str) -> None:
    """Render the page as an index does: each link leads to a file of the tagged commit."""
    from readme_renderer import markdown

    page = markdown.render(metadata.get_payload(decode=True).decode("utf-8"))
    assert page, "an index cannot render the README"
    assert "not on PyPI" not in page, "the page says that it is not where it is read"
    urls = [line.split(", ") for line in metadata.get_all("Project-URL")]
    home = dict(urls)["Homepage"]
    links = re.findall(r'(?:href|src)="([^"#][^"]*)"', page)
    relative = [link for link in links if not link.startswith("https://")]
    assert not relative, f"links lead nowhere on an index: {relative}"
    own = re.compile(rf"{re.escape(home)}/(?:blob|raw)/v{re.escape(version)}/([^#]+)")
    named = {found[1] for link in links if (found := own.match(link))}
    assert named, f"the page has no link to {home}"
    lost = sorted(named - set(tracked_lines("ls-files")))
    assert not lost, f"the page links to {lost}, which git does not track"


def try_alone(wheel: Path, torch: str, version: str, folder: Path) -> Path:
    """Install *wheel* in a fresh environment, follow the README there; return its programs."""
    venv.create(folder / "venv", with_pip=True)
    programs, project = folder / "venv" / "bin", folder / "project"
    pins = ("--constraint", str(ROOT / "constraints.txt"))
    run(
        str(programs / "pip"),
        "install",
        "--no-compile",
        "--quiet",
        *pins,
        torch,
        str(wheel),
    )
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
    typed("gpuperf", "doctor", "--device=simulated")
    tests = sorted(path.name for path in project.glob("test_*.py"))
    assert tests, "the README has no test"
    typed("pytest", *tests)
    passed = typed("pytest", "--gpuperf", "--gpuperf-device=simulated", *tests)
    assert re.search(r"^gpuperf: .*passed", passed, re.MULTILINE), passed
    return programs


def try_source(source: Path, programs: Path, folder: Path) -> None:
    """Run tests where *source* was unpacked, as who packages it does."""
    with tarfile.open(source) as archive:
        archive.extractall(folder, filter="data")
    pins = ("--constraint", str(ROOT / "constraints.txt"))
    run(str(programs / "pip"), "install", "--quiet", *pins, "hypothesis", "filelock")
    unpacked = folder / source.name.removesuffix(".tar.gz")
    run(str(programs / "pytest"), "--quiet", "tests/unit/model", cwd=unpacked)


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


def run(
    *command: str,
    status: int = 0,
    cwd: Path | None = None,
    environ: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Run *command* and return what it printed; it must exit with *status*."""
    # What is installed must be found, not what a checkout has.
    left_out = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CI")
    inherited = {n: value for n, value in os.environ.items() if n not in left_out}
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**inherited, **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == status, f"{' '.join(command)}:\n{done.stdout}"
    return done.stdout


if __name__ == "__main__":
    main()
