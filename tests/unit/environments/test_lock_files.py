"""What lock files pin, and how that differs from what is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_gpuperf.environments.lock_files import differing
from pytest_gpuperf.environments.lock_files import installed
from pytest_gpuperf.environments.lock_files import pins_of
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

[[package]]
name = "torchmetrics"
version = "1.4.0"
source = { registry = "https://pypi.org/simple" }
"""


def test_requirements_pin_what_is_for_this_interpreter(tmp_path: Path) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text(REQUIREMENTS)

    assert pins_of(file) == {
        "torch-metrics": "1.4.0",
        "numpy": "2.1.0",
        "idna": "3.7",
    }


def test_a_lock_of_uv_pins_what_came_from_an_index(tmp_path: Path) -> None:
    file = tmp_path / "uv.lock"
    file.write_text(UV_LOCK)

    assert pins_of(file) == {"torchmetrics": "1.4.0"}


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


def test_what_is_installed_has_its_version() -> None:
    assert installed()["pytest"] == pytest.__version__
