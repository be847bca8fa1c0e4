"""uv and pip, as they are typed and as they fail."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_gpuperf import environments as overlay
from pytest_gpuperf.environments import Pip, Uv, installer, last_words
from pytest_gpuperf.errors import UsageError


DRY_RUN = """\
Using Python 3.11.7 environment at: /env
Resolved 3 packages in 252ms
Would uninstall 1 package
Would install 3 packages
 + commonmark==0.9.2
 - rich==15.0.0
 + rich==13.0.0
 ~ mine @ file:///home/me/mine
"""


def program(tmp_path: Path, printed: str, status: int = 0) -> str:
    """A program that notes what was typed, and prints to standard error."""
    file = tmp_path / "uv"
    file.write_text(
        f"#!{sys.executable}\n"
        "import sys\n"
        f"open({str(tmp_path / 'typed')!r}, 'w').write('\\n'.join(sys.argv[1:]))\n"
        f"sys.stderr.write({printed!r})\n"
        f"sys.exit({status})\n"
    )
    file.chmod(0o755)
    return str(file)


def test_uv_is_asked_what_a_change_needs(tmp_path: Path) -> None:
    uv = Uv(program(tmp_path, DRY_RUN))

    assert uv.needs(["rich==13.0.0", "./mine"]) == (
        "commonmark==0.9.2",
        "mine @ file:///home/me/mine",
        "rich==13.0.0",
    )
    typed = (tmp_path / "typed").read_text().split()
    assert typed == [
        *("pip", "install", "--python", sys.executable),
        *("--dry-run", "--", "rich==13.0.0", "./mine"),
    ]


def test_uv_installs_these_packages_alone_into_a_folder(tmp_path: Path) -> None:
    Uv(program(tmp_path, "")).install(["rich==13.0.0"], Path("there"))

    typed = (tmp_path / "typed").read_text().split()
    assert typed[4:] == ["--no-deps", "--target", "there", "--", "rich==13.0.0"]


def test_a_version_that_there_is_not_is_refused_in_one_line(tmp_path: Path) -> None:
    printed = (
        "error: No solution found when resolving dependencies\n"
        "  cause: Because there is no version of torchmetrics==99 and you require it.\n"
    )

    with pytest.raises(UsageError) as refused:
        Uv(program(tmp_path, printed, status=1)).needs(["torchmetrics==99"])

    assert str(refused.value) == (
        "uv cannot install that: No solution found when resolving dependencies: Because "
        "there is no version of torchmetrics==99 and you require it [GP718]"
    )


@pytest.mark.parametrize(
    ("printed", "words"),
    [
        (
            "  \xd7 No solution found when resolving dependencies:\n  ╰─▶ Because x\n",
            "No solution found when resolving dependencies: Because x",
        ),
        (
            (
                "error: Failed to fetch: `https://pypi.org/simple/x/`\n"
                "  Caused by: client error (Connect)\n"
                "  Caused by: Connection refused (os error 111)\n"
            ),
            "Failed to fetch: `https://pypi.org/simple/x/`: Connection refused (os error 111)",
        ),
        (
            (
                "ERROR: Could not find a version (from versions: 1, 2)\n"
                "ERROR: No matching distribution found for x==99\n"
            ),
            "No matching distribution found for x==99",
        ),
        ("thread main panicked\n\n", "thread main panicked"),
        ("", "it printed nothing"),
    ],
)
def test_the_last_error_and_its_cause_are_said(printed: str, words: str) -> None:
    assert last_words(printed) == words


def test_pip_reports_what_a_change_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    def item(name: str, version: str, url: str = "") -> dict[str, object]:
        return {
            "metadata": {"name": name, "version": version},
            "is_direct": bool(url),
            "download_info": {"url": url},
        }

    report = {"install": [item("b", "2"), item("a", "1", "file:///a")]}
    answer = f"import json; print(json.dumps({report!r}))"
    monkeypatch.setattr(Pip, "TYPED", (sys.executable, "-c", answer))
    assert json.dumps(report)

    assert Pip().needs(["b"]) == ("a @ file:///a", "b==2")


def test_whatever_a_package_is_called_pip_takes_it_for_no_option(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    typed: list[tuple[str, ...]] = []
    done = subprocess.CompletedProcess((), 0, '{"install": []}')
    monkeypatch.setattr(overlay, "_run", lambda *command: typed.append(command) or done)

    Pip().needs(["--log=FILE"])
    Pip().install(["--log=FILE"], Path("there"))

    assert [command[-2:] for command in typed] == [("--", "--log=FILE")] * 2


def test_without_uv_pip_is_taken_and_without_both_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(overlay, "find_spec", lambda name: name)
    assert isinstance(installer(), Pip)

    monkeypatch.setattr(overlay, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="found neither uv nor pip"):
        installer()

    program(tmp_path, "")
    assert isinstance(installer(), Uv)
