"""``gpuperf audit --diff`` and ``--fix`` of real programs, by a rule of the test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from pytest_gpuperf.cli import audit_fixes, main
from pytest_gpuperf.fixes.edits import ByHand, Edit
from pytest_gpuperf.model.finding import Finding
from pytest_gpuperf.report import json as report


pytest.importorskip("torch")
rewrites = pytest.importorskip("pytest_gpuperf.fixes.rewrites")

pytestmark = pytest.mark.slow

TRAIN = """\
import torch
from torch import nn
{imports}
torch.manual_seed(0)
model = nn.Linear(8, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
total = 0.0
for step in range({steps}):
    loss = model(torch.ones(4, 8, device="cuda")).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total += loss.item()
print(f"mean {{total / {steps}:.6f}}")
"""

LINE = 13

HELPS = ("total += loss.item()", "total += loss.detach()")


def program(imports: str = "", steps: int = 6) -> str:
    return TRAIN.format(imports=imports, steps=steps)


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a committed script."""
    monkeypatch.chdir(tmp_path)
    git("init", "-q")
    commit("train.py", program())
    return tmp_path


def git(*words: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", *who, *words], check=True)  # noqa: S607, the one on PATH


def commit(name: str, text: str) -> Path:
    file = Path(name)
    file.write_bytes(text.encode())
    git("add", "-f", name)
    git("commit", "-q", "-m", "it", "--allow-empty")
    return file


@pytest.fixture
def replaces(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let findings have edits that replace a text by each of others, in this order."""

    def rule(old: str, *new: str, says: str = "") -> None:
        def edits_of(
            finding: Finding, source: str, file: Path
        ) -> Iterator[Edit | ByHand]:
            assert finding.location
            line = finding.location.line
            place = {"rule": "a-rule", "file": file, "line": line}
            for text in new if old in source else ():
                after = source.replace(old, text)
                yield Edit(before=source, after=after, says=says, **place)  # type: ignore[arg-type]
            yield ByHand(why="nobody knows", **place)  # type: ignore[arg-type]

        monkeypatch.setattr(rewrites, "edits_of", edits_of)

    return rule


def test_an_edit_that_was_proven_is_printed_and_nothing_is_written(
    replaces: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    replaces(HELPS[0], HELPS[0] + " * 1", "total += 2 * loss.detach()", HELPS[1])

    code = main(["audit", "--diff", "-v", "train.py"])

    output, errors = capfd.readouterr()
    assert code == 0
    assert output.splitlines() == [
        "--- a/train.py",
        "+++ b/train.py",
        "@@ -10,5 +10,5 @@",
        "     optimizer.zero_grad()",
        "     loss.backward()",
        "     optimizer.step()",
        "-    total += loss.item()",
        "+    total += loss.detach()",
        ' print(f"mean {total / 6:.6f}")',
        "gpuperf: 1 -> 0 syncs per step with 1 edit",
        "  train.py:13: 1 -> 0 syncs per step; same training: in every digit",
        "  train.py:13: not shown, a-rule: nothing is counted less often",
        "  train.py:13: not shown, a-rule: standard output differs",
        "  train.py:13: by hand, a-rule: nobody knows",
    ]
    assert errors == (
        "gpuperf: runs train.py as it is\n"
        "gpuperf: tries an edit of train.py:13, 1 of 1\n"
    )
    assert Path("train.py").read_text() == program()


def test_the_edits_of_a_fix_are_written_and_limits_are_judged_after_them(
    replaces: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    replaces(*HELPS)
    Path("train.py").chmod(0o750)
    file = commit("train.py", program().replace("\n", "\r\n"))

    code = main(["audit", "--fix", "--max-syncs-per-step=0", "train.py"])

    written = program().replace(*HELPS).replace("\n", "\r\n")
    assert code == 0
    assert file.read_bytes() == written.encode()
    assert file.stat().st_mode & 0o777 == 0o750
    assert capfd.readouterr().out.endswith("written: train.py\n")
    assert main(["audit", "--max-syncs-per-step=0", "train.py"]) == 0


def test_a_fix_writes_no_file_that_git_could_not_bring_back(
    replaces: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    replaces(*HELPS)
    Path("train.py").write_text(f"{program()}\n")
    Path("link.py").symlink_to("train.py")

    assert main(["audit", "--fix", "train.py"]) == 4
    assert "or add --allow-dirty [GP120]" in capfd.readouterr().err
    assert main(["audit", "--fix", "--allow-dirty", "link.py"]) == 4
    assert "--fix does not write it, it is a link [GP120]" in capfd.readouterr().err
    assert Path("train.py").read_text() == f"{program()}\n"
    assert main(["audit", "--fix", "--allow-dirty", "train.py"]) == 0
    assert HELPS[1] in Path("train.py").read_text()


def test_a_module_of_the_program_is_edited_where_it_is(
    replaces: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("steps.py").write_text(
        "import os\n"
        "def log(loss, data):\n"
        "    assert os.path.dirname(__file__) == data\n"
        "    return loss.item()\n"
    )
    text = program("import os\nfrom steps import log").replace(
        "loss.item()", "log(loss, os.path.dirname(__file__))"
    )
    commit("train.py", text)
    commit("steps.py", Path("steps.py").read_text())
    replaces("loss.item()", "loss.detach()")

    assert main(["audit", "--diff", "train.py"]) == 0
    assert "+    return loss.detach()" in capfd.readouterr().out
    assert main(["audit", "--fix", "train.py"]) == 0
    assert "return loss.detach()" in Path("steps.py").read_text()


def test_a_file_outside_of_the_project_is_not_edited(
    replaces: Any, tmp_path_factory: pytest.TempPathFactory, capfd: Any
) -> None:
    replaces(*HELPS)
    inner = Path("inner")
    inner.mkdir()

    main(["audit", "--diff", f"--root={inner}", "train.py"])

    assert "gpuperf: no edit was proven" in capfd.readouterr().out


def test_a_program_without_a_seed_is_said_to_be_not_compared(
    replaces: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    unseeded = program("import os").replace(
        "torch.manual_seed(0)",
        "torch.manual_seed(int.from_bytes(os.urandom(4), 'big'))",
    )
    commit("train.py", unseeded)
    replaces(*HELPS)

    main(["audit", "--diff", "train.py"])
    output = " ".join(capfd.readouterr().out.split())
    assert "no edit was proven" in output
    assert (
        "same training: not compared, because it uses random numbers without a seed"
        in output
    )


@pytest.mark.parametrize(
    ("says", "name"),
    [
        ("logging.warning(type(total))", "standard error"),
        ('open("loss.txt", "w").write(str(type(total)))', "loss.txt"),
    ],
    ids=["a log", "a file"],
)
def test_what_is_logged_or_written_to_a_file_is_compared(
    says: str, name: str, replaces: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    commit("train.py", f"{program('import logging')}{says}\n")
    replaces(*HELPS)

    main(["audit", "--diff", "-v", "train.py"])

    assert f"not shown, a-rule: {name} differs" in capfd.readouterr().out


def test_json_has_the_edits_and_what_is_left(
    replaces: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    replaces(*HELPS)

    code = main(["audit", "--fix", "--json", "train.py"])

    document = json.loads(capfd.readouterr().out)
    schema = Path(report.__file__).with_name("audit_schema.json").read_text("utf-8")
    jsonschema.validate(document, json.loads(schema))
    (edit,) = document["fixes"]["edits"]
    assert code == 0
    assert document["syncs_per_step"] == 0
    assert (edit["file"], edit["line"]) == (str(Path("train.py").absolute()), LINE)
    assert (edit["before"], edit["after"]) == (1, 0)
    assert edit["same_training"] == "in every digit"
    assert document["fixes"]["written"] == [edit["file"]]
    assert document["fixes"]["diff"].startswith("--- a/train.py\n")


def test_an_edit_that_says_something_is_tried_only_if_it_is_asked_for(
    replaces: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    replaces(
        HELPS[0],
        "total = loss.detach()",
        says="prints the loss of the last step",
    )

    main(["audit", "--diff", "train.py"])
    safe = capfd.readouterr().out
    main(["audit", "--diff", "--unsafe", "train.py"])
    unsafe = " ".join(capfd.readouterr().out.split())
    assert "1 edit not tried: what is printed would change" in safe
    assert "in every digit; prints the loss of the last step" in unsafe


def test_a_script_that_fails_has_no_edits_and_keeps_its_status(
    replaces: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    commit("train.py", f"{program()}raise SystemExit(3)\n")

    code = main(["audit", "--diff", "train.py"])

    assert code == 3
    said = "gpuperf: the script failed (exit status 3): no edit was tried\n"
    assert capfd.readouterr().err.endswith(said)


def test_without_libcst_a_sentence_says_how_it_is_installed(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(audit_fixes, "find_spec", lambda _: None)

    assert main(["audit", "--diff", "train.py"]) == 4
    said = "`pip install 'pytest-gpuperf[fix]'` [GP119]\n"
    assert capfd.readouterr().err.endswith(said)


def test_a_run_without_diff_imports_nothing_of_the_fixes() -> None:
    code = (
        "import sys; from pytest_gpuperf.cli import main; main(['audit', 'train.py']); "
        "print([n for n in sys.modules if 'fixes' in n or n.startswith('libcst')])"
    )
    Path("train.py").write_text(
        "import sys\nprint([n for n in sys.modules if n.startswith(('libcst', 'pytest_gpuperf.fixes'))])\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    lines = found.stdout.splitlines()
    assert (lines[0], lines[-1]) == ("[]", "[]")
