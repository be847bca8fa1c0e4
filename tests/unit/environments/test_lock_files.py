"""What lock files pin, and how that differs from what is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_gpuperf.environments import differing, installed, pins_of
from pytest_gpuperf.errors import UsageError


REQUIREMENTS = """\
# by pip-compile
--index-url https://example.com/simple
Torch_Metrics==1.4.0 \\
    --hash=sha256:aaa \\
    --hash=sha256:bbb
    # via -r requirements.in
numpy==2.1.0 ; python_version >= "3.8"
pywin32==306 ; sys_platform == "win32"
rich>=13
-e ./here
./there
idna==3.7 # via requests
"""

UV_LOCK = """\
version = 1

[[package]]
name = "mine"
version = "0.1.0"
source = { editable = "." }
dependencies = [
    { name = "torchmetrics" },
    { name = "numpy", version = "1.26.0", marker = "python_version < '3'" },
    { name = "numpy", version = "2.1.0", marker = "python_version >= '3'" },
    { name = "pywin32", marker = "sys_platform == 'win32'" },
]

[package.optional-dependencies]
docs = [{ name = "never-installed" }]

[package.dev-dependencies]
dev = [{ name = "pluggy" }]

[[package]]
name = "torchmetrics"
version = "1.4.0"
source = { registry = "https://pypi.org/simple" }
dependencies = [{ name = "idna" }, { name = "torchmetrics" }]

[[package]]
name = "idna"
version = "3.7"
source = { registry = "https://pypi.org/simple" }

[[package]]
name = "numpy"
version = "1.26.0"
source = { registry = "https://pypi.org/simple" }

[[package]]
name = "numpy"
version = "2.1.0"
source = { registry = "https://pypi.org/simple" }

[[package]]
name = "pywin32"
version = "306"
source = { registry = "https://pypi.org/simple" }

[[package]]
name = "never-installed"
version = "1"
source = { registry = "https://pypi.org/simple" }

[[package]]
name = "pluggy"
version = "1.0.0"
source = { registry = "https://pypi.org/simple" }
"""


def test_requirements_pin_what_is_for_this_interpreter(tmp_path: Path) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text(REQUIREMENTS)

    assert pins_of(file) == {"torch-metrics": "1.4.0", "numpy": "2.1.0", "idna": "3.7"}


def test_a_lock_of_uv_pins_what_this_interpreter_needs_from_an_index(
    tmp_path: Path,
) -> None:
    file = tmp_path / "uv.lock"
    file.write_text(UV_LOCK)

    assert pins_of(file) == {
        "torchmetrics": "1.4.0",
        "numpy": "2.1.0",
        "pluggy": "1.0.0",
        "idna": "3.7",
    }


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("missing.txt", None, "cannot be read: .*No such file"),
        ("uv.lock", b"[[package", "cannot be read"),
        ("latin.txt", b"\xff\xfe", "cannot be read"),
        ("empty.txt", b"", "pins nothing; expected lines like"),
        ("loose.txt", b"numpy>=2\n", "pins nothing"),
    ],
)
def test_a_file_that_pins_nothing_is_refused(
    tmp_path: Path, name: str, content: bytes | None, said: str
) -> None:
    file = tmp_path / name
    if content is not None:
        file.write_bytes(content)

    with pytest.raises(UsageError, match=f"--lock=.*{name}: {said}"):
        pins_of(file)


def test_only_what_is_another_version_differs() -> None:
    here = {"a": "1", "b": "2", "c": "3"}

    assert differing({"a": "1", "b": "1", "d": "4"}, here) == ("b==1", "d==4")


@pytest.mark.parametrize(
    ("pin", "found", "is_met"),
    [
        ("2.5.1", "2.5.1+cu121", True),
        ("2.5.1+cpu", "2.5.1+cu121", False),
        ("1.0", "1.0.0", True),
        ("2.*", "2.7", True),
        ("2.*", "3.0", False),
        ("1.0rc1", "1.0rc1", True),
        ("1.0", "unknown", False),
        ("unknown", "unknown", True),
    ],
)
def test_a_pin_is_met_as_versions_are_compared(
    pin: str, found: str, *, is_met: bool
) -> None:
    assert differing({"a": pin}, {"a": found}) == (() if is_met else (f"a=={pin}",))


def test_what_is_installed_has_its_version() -> None:
    assert installed()["pytest"] == pytest.__version__


def test_of_a_package_that_is_there_twice_the_one_that_is_imported_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place, version in (("first", "2.0"), ("second", "1.0")):
        about = tmp_path / place / f"twiceops-{version}.dist-info"
        about.mkdir(parents=True)
        (about / "METADATA").write_text(f"Name: twiceops\nVersion: {version}\n")
    monkeypatch.syspath_prepend(tmp_path / "second")
    monkeypatch.syspath_prepend(tmp_path / "first")

    assert installed()["twiceops"] == "2.0"
