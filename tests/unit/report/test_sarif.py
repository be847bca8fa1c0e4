"""The log that GitHub's code scanning reads: what SARIF 2.1.0 and GitHub ask of it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_gpuperf.cli import main
from pytest_gpuperf.devices.audit_record import StepAudit
from pytest_gpuperf.devices.audit_record import Totals
from pytest_gpuperf.devices.source_lines import Site
from pytest_gpuperf.devices.source_lines import where_of
from pytest_gpuperf.model.finding import Finding
from pytest_gpuperf.model.finding import FindingKind
from pytest_gpuperf.model.finding import Location
from pytest_gpuperf.model.finding import Phase
from pytest_gpuperf.report.ci.sarif import sarif
from pytest_gpuperf.report.remedies import WAIT_REMEDIES
from pytest_gpuperf.report.screen.audit import AuditView


HERE = Path("/home/me/project")


def place(file: str, line: int) -> Location:
    return Location(file=file, line=line, function="train")


def wait(file: str, line: int, **more: Any) -> Finding:
    at = place(file, line)
    found = Finding(
        kind=FindingKind.SYNC,
        op="aten::_local_scalar_dense",
        reason="the CPU reads one element",
        **where_of(Site(location=at, innermost=at, phase=Phase.FORWARD)),
        per_step=10,
        in_steps=10,
    )
    return replace(found, **more)


def log(*findings: Finding, line: str = "x.item()") -> dict[str, Any]:
    none = dict.fromkeys(Totals.__slots__, 0)
    audit = StepAudit(
        findings=findings,
        copies=(),
        totals=Totals(**none),
        not_judged=(),
        as_eager=(),
        steps=10,
    )
    view = AuditView(here=HERE, line_of=lambda *_: line, steps=10)
    found = sarif(audit, ("A note.",), view, program="train.py", version="1.2")
    assert (found["version"], len(found["runs"])) == ("2.1.0", 1)
    run: dict[str, Any] = found["runs"][0]
    return run


def test_a_wait_is_a_result_at_its_line_from_the_root_on() -> None:
    run = log(wait("/home/me/project/a b/train.py", 7))

    (result,) = run["results"]
    assert result["ruleId"] == "read-number"
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == "read-number"
    assert result["level"] == "warning"
    assert result["message"]["text"] == (
        "The CPU waits for the GPU here, 1 per step: the CPU reads one element. Fix: add "
        "it up on the GPU with .detach(), read it every N steps."
    )
    (location,) = result["locations"]
    assert location["physicalLocation"] == {
        "artifactLocation": {"uri": "a%20b/train.py", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 7},
    }
    assert run["automationDetails"] == {"id": "gpuperf-audit/train.py/"}


def test_rules_are_the_waits_of_the_table_and_their_ids_stay() -> None:
    rules = log()["tool"]["driver"]["rules"]

    assert [rule["id"] for rule in rules] == [
        "synchronize",
        "stream-synchronize",
        "empty-cache",
        "checkpoint",
        "printed-tensor",
        "size",
        "loop",
        "condition",
        "python-max",
        "number-in-formula",
        "tensor-of-tensors",
        "computed-on-cpu",
        "one-hot",
        "distribution-check",
        "grad-scaler",
        "number-for-torch",
        "read-number",
        "copy-to-cpu",
        "made-on-cpu",
        "constant",
        "tensor-from-cpu",
        "put-number",
        "pinned-batch",
        "pageable-batch",
        "cpu-index",
        "positions",
        "mask",
        "masked-fill",
        "repeat-interleave",
        "unique",
        "histogram",
        "normal",
        "linalg-check",
        "copy-to-gpu",
        "wait",
        "no-remedy",
        "causal-mask",
        "transformers-logging",
        "transformers-nan-filter",
        "transformers-tokens",
        "accelerate-batch",
        "lightning-logging",
    ]
    assert [rule["help"]["text"] for rule in rules] == [
        f"Fix: {remedy.do}." for remedy in WAIT_REMEDIES
    ]
    assert all(rule["shortDescription"]["text"] for rule in rules)


def test_what_some_steps_do_is_a_note_and_what_happens_once_is_none() -> None:
    rare = wait("/home/me/project/a.py", 1, per_step=3, in_steps=3)
    once = wait("/home/me/project/a.py", 2, once=True)
    unsure = wait("/home/me/project/a.py", 3, kind=FindingKind.MAYBE)

    (result,) = log(rare, once, unsure)["results"]

    assert result["level"] == "note"
    assert "3 times, in 3 of 10 steps" in result["message"]["text"]


def test_lines_outside_of_the_repository_are_counted_and_notes_are_kept() -> None:
    run = log(wait("/env/lib/library.py", 1), wait("/env/lib/library.py", 2))

    (invocation,) = run["invocations"]
    said = [n["message"]["text"] for n in invocation["toolExecutionNotifications"]]
    assert run["results"] == []
    assert said == ["A note.", "20 waits are on lines outside of the repository"]


def fingerprints(*findings: Finding) -> list[str]:
    return [
        r["partialFingerprints"]["gpuperfLine/v1"] for r in log(*findings)["results"]
    ]


def test_a_line_that_moves_keeps_its_fingerprint_and_no_two_share_one() -> None:
    file = "/home/me/project/a.py"
    first, second = fingerprints(wait(file, 1), wait(file, 2))

    assert fingerprints(wait(file, 30)) == [first]
    assert first != second
    assert re.fullmatch("[0-9a-f]{64}", first)


def test_two_causes_of_a_line_are_one_result() -> None:
    file = "/home/me/project/a.py"

    (result,) = log(wait(file, 1), wait(file, 1, per_step=20, reason="a check"))[
        "results"
    ]

    assert result["message"]["text"].startswith(
        "The CPU waits for the GPU here, 2 per step: a check; 1 per step: the CPU reads "
        "one element. Fix: "
    )


def test_what_torch_waits_for_behind_a_line_is_a_result_of_its_own() -> None:
    file = "/home/me/project/a.py"
    inside = place("/env/lib/site-packages/torch/nn/utils/clip.py", 9)

    _, result = log(
        wait(file, 1), wait(file, 1, per_step=20, reason="a check", torch=inside)
    )["results"]

    assert result["message"]["text"] == (
        "The CPU waits for the GPU here, 2 per step: a check, inside "
        "torch/nn/utils/clip.py:9 in train. Fix: none known that keeps the result."
    )


LOOP = """\
import torch
for _ in range(3):
    torch.ones((), device="cuda").item()
"""


@pytest.mark.slow
def test_the_command_writes_it_beside_what_it_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    (tmp_path / ".git").mkdir()
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "train.py").write_text(LOOP, "utf-8")
    monkeypatch.chdir(tmp_path / "sub")

    code = main(["audit", "train.py", "--sarif=found.sarif"])

    (run,) = json.loads(Path("found.sarif").read_text("utf-8"))["runs"]
    (result,) = run["results"]
    where = result["locations"][0]["physicalLocation"]
    assert code == 0
    assert where["artifactLocation"]["uri"] == "sub/train.py"
    assert where["region"] == {"startLine": 3}
    assert "gpuperf: 1 wait per step" in capfd.readouterr().out


@pytest.mark.slow
def test_a_file_that_cannot_be_written_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(LOOP, "utf-8")
    monkeypatch.chdir(tmp_path)

    assert main(["audit", "train.py", "--sarif=none/found.sarif"]) == 4
    assert capfd.readouterr().err == (
        "gpuperf: --sarif=none/found.sarif: cannot be written (No such file or directory); "
        "expected a file [GP102]\n"
    )
