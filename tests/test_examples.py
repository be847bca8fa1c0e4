"""The examples hold, and the demonstration ends red where something else happens."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from types import SimpleNamespace
from typing import Final
from xml.etree import ElementTree as ET

import pytest


EXAMPLES: Final = Path(__file__).parents[1] / "examples"

SYNC: Final = "test_loop_that_keeps_its_loss_on_the_device"
SLOW: Final = "test_loop_with_its_loader"
SAME: Final = "test_step_without_its_loader"


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    pytest.importorskip("torch")
    ignored = shutil.ignore_patterns("__pycache__", ".pytest_cache", ".gpuperf")
    shutil.copytree(EXAMPLES, tmp_path / "examples", ignore=ignored)
    settings = "[pytest]\nfilterwarnings = error\naddopts = --strict-markers\n"
    (tmp_path / "pytest.ini").write_text(settings)
    return tmp_path


def run_in(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    quiet = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "CI": "", "COLUMNS": "80"}
    plugin = ("-p", "pytest_gpuperf.plugin")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugin, *arguments],
        cwd=folder,
        env=os.environ | quiet,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--gpuperf",),
        ("--gpuperf", "--gpuperf-device=cpu", "--ignore=examples/ladder"),
    ],
    ids=["unmeasured", "without a GPU", "on the host"],
)
def test_the_examples_pass(copied: Path, arguments: tuple[str, ...]) -> None:
    result = run_in(copied, "examples", *arguments)

    assert result.returncode == 0, result.stdout
    assert " failed" not in result.stdout
    assert re.search(r"\d+ passed, \d+ skipped.* in ", result.stdout.splitlines()[-1])


@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n2")], ids=["one", "xdist"])
def test_a_run_can_end_with_what_became_of_each_claim(
    copied: Path, workers: tuple[str, ...]
) -> None:
    if workers:
        pytest.importorskip("xdist")
    chosen = ["no_hidden_sync/test_item.py", "host_to_device/test_as_tensor.py"]

    result = run_in(
        copied,
        *(f"examples/{name}" for name in chosen),
        "--gpuperf",
        "--gpuperf-device=pretend",
        "--gpuperf-claims",
        *workers,
    )

    assert result.returncode == 0, result.stdout
    lines = result.stdout.splitlines()
    assert {line for line in lines if line.endswith(("pretend", "host", "device"))} == {
        "claim                 measured here      predicted          verdict      device",
        "D12                   1 -> 0 MiB         -                  passed       host",
        "Y1 80 -> 57 ms        -                  1 -> 0 syncs       passed       pretend",
    }


OLD_GPU: Final = """\
import torch

torch.cuda.is_available = lambda: True
torch.cuda.get_device_capability = lambda: (6, 0)
"""


def test_what_a_gpu_is_too_old_for_is_left_out_visibly(copied: Path) -> None:
    (copied / "old_gpu.py").write_text(OLD_GPU)

    test = (
        "examples/graphs/test_old_gpu.py::test_a_function_is_compiled_on_a_gpu_that_can"
    )
    result = run_in(copied, "-rs", "-p", "old_gpu", test)

    assert result.returncode == 0, result.stdout
    assert "needs compute capability 7.0: this GPU has 6.0" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("1 skipped in ")


def test_a_table_of_claims_without_measurements_is_refused(copied: Path) -> None:
    result = run_in(copied, "examples", "--gpuperf-claims")

    assert result.returncode == pytest.ExitCode.USAGE_ERROR
    assert result.stderr.strip() == (
        "ERROR: --gpuperf-claims: found no --gpuperf, which measures; add it"
    )


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    pytest.importorskip("torch")
    spec = importlib.util.spec_from_file_location("demo", EXAMPLES / "demo.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "demo", module)  # for its dataclasses
    spec.loader.exec_module(module)
    return module


RUNGS: Final = (
    SimpleNamespace(name="plain", published_mib=36272),
    SimpleNamespace(name="and FSDP on 2 GPUs", published_mib=8502),
)


def test_the_ladder_has_a_line_a_rung_with_the_published_peak_beside_ours(
    demo: ModuleType,
) -> None:
    lines = list(demo.ladder_lines(RUNGS, [34763.9, 6593.4]))

    assert lines == [
        "MiB                         published           predicted",
        "plain                           36272               34764",
        "and FSDP on 2 GPUs               8502   -77%         6593   -81%",
    ]


@pytest.mark.parametrize(
    ("status", "predictions", "message"),
    [
        (0, 2, "expected 3 predictions, found 2"),
        (1, 3, "a prediction ended with exit status 1"),
    ],
)
def test_a_rung_that_was_not_predicted_ends_the_demo(
    demo: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    status: int,
    predictions: int,
    message: str,
) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    peak = {"metric": demo.PEAK, "outcome": "pass", "now": 2**30}
    suite = ET.Element("testsuite")
    properties = ET.SubElement(ET.SubElement(suite, "testcase"), "properties")
    verdicts = json.dumps([{"verdicts": [peak]}] * predictions)
    ET.SubElement(properties, "property", name="gpuperf", value=verdicts)
    (tmp_path / "0.xml").write_bytes(ET.tostring(suite))
    ended = SimpleNamespace(communicate=lambda: ("1 passed\n", None), returncode=status)
    monkeypatch.setattr(demo, "start", lambda *_, **__: ended)

    with pytest.raises(demo.UnexpectedError) as caught:
        demo.show_ladder(tmp_path)

    assert str(caught.value) == message


def test_what_is_copied_of_the_ladder_is_collected(
    demo: ModuleType, tmp_path: Path
) -> None:
    place = demo.copied_ladder(tmp_path)

    chosen = [
        run_in(place, "--collect-only", "-k", names).stdout for names in demo.RUNGS
    ]
    assert [text.count("real_size") for text in chosen] == [2, 1]


def test_a_command_longer_than_a_line_is_typed_on_several(
    demo: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command = f'pytest --version --gpuperf-device=pretend -k "{demo.RUNGS[0]}" --junit-xml=0.xml'

    demo.run(tmp_path, command, allowed={0})

    out = capfd.readouterr().out.splitlines()
    assert out[:3] == [
        "",
        '$ pytest --version --gpuperf-device=pretend -k "real_size and (plain or two)" \\',
        "    --junit-xml=0.xml",
    ]


@pytest.fixture
def gates(
    demo: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> list[Mapping[str, str]]:
    """Outcomes of the tests in the gates to come, in place of measuring."""
    waiting: list[Mapping[str, str]] = []

    def run(folder: Path, command: str, **_: object) -> None:
        assert command == demo.GATE
        (folder / demo.RESULTS).write_bytes(junit(waiting.pop(0)))

    monkeypatch.setattr(demo, "run", run)
    return waiting


def junit(outcomes: Mapping[str, str]) -> bytes:
    """Results in which the metric of each test's fault has this outcome."""
    suite = ET.Element("testsuite")
    for name, outcome in outcomes.items():
        case = ET.SubElement(suite, "testcase", name=name)
        metric = "syncs" if name == SYNC else "step_ms"
        verdicts = json.dumps([{"verdicts": [{"metric": metric, "outcome": outcome}]}])
        properties = ET.SubElement(case, "properties")
        ET.SubElement(properties, "property", name="gpuperf", value=verdicts)
        if outcome == "regressed":
            ET.SubElement(case, "failure")
    return ET.tostring(suite)


def test_each_fault_can_be_planted_and_names_a_test(
    demo: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    demo.copy_examples(tmp_path)

    for fault in (*demo.FAULTS, demo.MEANT):
        demo.plant(tmp_path, fault)

    added = [
        line
        for line in capsys.readouterr().out.splitlines()
        if re.match(r"\+\w|\+ ", line)
    ]
    assert added == [
        "+        epoch_loss += training.step().item()",
        "+        return normal(self.images)[index], self.labels[index]",
        "+BATCH = 96",
    ]
    sources = "".join(path.read_text() for path in tmp_path.glob("test_*.py"))
    assert all(f"def {fault.test}(" in sources for fault in demo.FAULTS)


def test_a_fault_that_no_longer_fits_its_example_ends_the_demo(
    demo: ModuleType, tmp_path: Path
) -> None:
    demo.copy_examples(tmp_path)
    (fault, *_) = demo.FAULTS
    demo.plant(tmp_path, fault)

    with pytest.raises(demo.UnexpectedError) as caught:
        demo.plant(tmp_path, fault)

    assert str(caught.value) == (
        "test_cifar_loop.py: expected 'training.step().detach()' once, found it 0 times"
    )


@pytest.mark.parametrize(
    ("outcomes", "failed"),
    [
        ({SYNC: "regressed", SLOW: "regressed", SAME: "pass"}, {SYNC, SLOW}),
        ({SYNC: "regressed", SLOW: "regressed", SAME: "regressed"}, {SYNC, SLOW, SAME}),
        ({SYNC: "regressed", SLOW: "pass", SAME: "pass"}, {SYNC}),
        ({SYNC: "regressed", SLOW: "pass", SAME: "inconclusive"}, {SYNC}),
    ],
    ids=["both", "another too", "one missed", "one missed, another undecided"],
)
def test_a_gate_is_run_once_where_every_fault_was_decided(
    demo: ModuleType,
    gates: list[Mapping[str, str]],
    tmp_path: Path,
    outcomes: Mapping[str, str],
    failed: set[str],
) -> None:
    gates.append(outcomes)

    assert demo.gate_with_faults(tmp_path).failed == failed


def test_a_gate_that_could_not_decide_on_a_fault_is_run_once_more(
    demo: ModuleType,
    gates: list[Mapping[str, str]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    gates += [
        {SYNC: "regressed", SLOW: "inconclusive", SAME: "pass"},
        {SYNC: "regressed", SLOW: "regressed", SAME: "pass"},
    ]

    results = demo.gate_with_faults(tmp_path)

    assert results.failed == {SYNC, SLOW}
    assert capsys.readouterr().out == (
        f"\nThe machine was too busy to decide on {SLOW}. Once more:\n"
    )


BLAMED: Final = {SYNC: {"syncs": {"regressed"}}, SLOW: {"step_ms": {"regressed"}}}
UNDECIDED: Final = {**BLAMED, SLOW: {"step_ms": {"inconclusive"}}}


FOR_ITS_MEMORY: Final = {
    **BLAMED,
    SLOW: {"step_ms": {"inconclusive"}, "live_peak_bytes": {"regressed"}},
}
PASSED_ITS_TIME: Final = {
    **BLAMED,
    SLOW: {"step_ms": {"pass"}, "live_peak_bytes": {"regressed"}},
}


@pytest.mark.parametrize("outcomes", [BLAMED, FOR_ITS_MEMORY], ids=["time", "memory"])
def test_exactly_the_planted_failures_are_as_it_should_be(
    demo: ModuleType, outcomes: Mapping[str, Mapping[str, set[str]]]
) -> None:
    results = demo.Results(failed={SYNC, SLOW}, outcomes=outcomes)

    assert demo.require(results, faults=demo.FAULTS) is None
    by = "time" if outcomes is BLAMED else "memory"
    assert [results.told(fault) for fault in demo.FAULTS] == [
        "`training.step().item()` in test_cifar_loop.py, by its wait",
        f"`normal(self.images)[index]` in test_mnist_loop.py, by its {by}",
    ]


@pytest.mark.parametrize(
    ("failed", "outcomes", "message"),
    [
        ({SYNC}, BLAMED, f"expected {SYNC} and {SLOW} to fail, found {SYNC}"),
        (set(), BLAMED, f"expected {SYNC} and {SLOW} to fail, found no test"),
        (
            {SAME, SYNC, SLOW},
            BLAMED,
            f"expected {SYNC} and {SLOW} to fail, found {SYNC} and {SLOW} and {SAME}",
        ),
        (
            {SYNC, SLOW},
            UNDECIDED,
            f"expected {SLOW} to fail for step_ms, found inconclusive",
        ),
        (
            {SYNC, SLOW},
            PASSED_ITS_TIME,
            f"expected {SLOW} to fail for step_ms, found pass",
        ),
        (
            {SYNC, SLOW},
            {**BLAMED, SYNC: {}},
            f"expected {SYNC} to fail for syncs, found no verdict",
        ),
    ],
)
def test_anything_else_ends_the_demo(
    demo: ModuleType,
    failed: set[str],
    outcomes: Mapping[str, Mapping[str, set[str]]],
    message: str,
) -> None:
    results = demo.Results(failed=failed, outcomes=outcomes)

    with pytest.raises(demo.UnexpectedError) as caught:
        demo.require(results, faults=demo.FAULTS)

    assert str(caught.value) == message


def test_no_example_counts_gpus_because_a_rank_sees_its_own_alone() -> None:
    counting = [
        p.name for p in EXAMPLES.rglob("*.py") if "device_count" in p.read_text()
    ]

    assert counting == []
