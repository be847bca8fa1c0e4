"""What is advised is executed: it waits less, computes the same, and adds nothing."""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from remedy_programs import PROGRAMS
from remedy_programs import SETTING
from remedy_programs import Program


torch = pytest.importorskip("torch")

from pytest_gpuperf.devices.pretend import pretend_gpu  # noqa: E402, after the skip
from pytest_gpuperf.devices.pretend.audit_record import AuditKind  # noqa: E402
from pytest_gpuperf.devices.pretend.audit_record import StepAudit  # noqa: E402
from pytest_gpuperf.devices.pretend.gpu import PretendGpu  # noqa: E402
from pytest_gpuperf.devices.pretend.sync_rules import release_of  # noqa: E402
from pytest_gpuperf.report.remedies import NONE_KNOWN  # noqa: E402
from pytest_gpuperf.report.remedies import SYNC_REMEDIES  # noqa: E402
from pytest_gpuperf.report.screen.audit import AuditView  # noqa: E402
from pytest_gpuperf.report.screen.audit import remedy_of_wait  # noqa: E402


pytestmark = pytest.mark.filterwarnings("ignore")

FILE = str(Path(__file__).with_name("program.py"))
VIEW = AuditView(here=Path(__file__).parent, line_of=linecache.getline, steps=1)


@pytest.fixture(scope="module")
def gpu() -> Iterator[PretendGpu]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pretend_gpu(str(Path(__file__).parent)) as entered:
        entered.recorder.of_program = True
        yield entered
    torch.set_num_threads(threads)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a program did on the GPU, the rules of its waits, and what it computed."""

    audit: StepAudit
    rules: frozenset[str]
    result: Any


def run(gpu: PretendGpu, setting: str, text: str) -> Ran:
    names: dict[str, Any] = {"print": lambda *_: None}
    exec(f"{SETTING}\n{setting}", names)  # noqa: S102, our own programs
    linecache.cache[FILE] = (len(text), None, text.splitlines(keepends=True), FILE)
    gpu.begin_step()
    exec(compile(text, FILE, "exec"), names)  # noqa: S102
    audit = gpu.end_step()
    rules = frozenset(remedy_of_wait(found, VIEW).rule for found in audit.findings)
    return Ran(audit=audit, rules=rules, result=on_cpu(names["result"]))


def on_cpu(result: Any) -> list[Any]:
    results = result if isinstance(result, tuple) else (result,)
    return [torch.as_tensor(each).detach().cpu() for each in results]


def repeated(audit: StepAudit) -> set[tuple[AuditKind, str, str]]:
    """Return why it waits, but for what one step of all does."""
    found = (f for f in audit.findings if f.count > 1)
    return {(f.kind, f.op, f.reason) for f in found}


def programs() -> Iterator[Any]:
    for rule, found in PROGRAMS.items():
        for number, program in enumerate(found, 1):
            yield pytest.param(rule, program, id=f"{rule}-{number}")


@pytest.mark.parametrize(("rule", "program"), list(programs()))
def test_a_remedy_is_offered_where_it_waits_less_and_computes_the_same(
    gpu: PretendGpu, rule: str, program: Program
) -> None:
    if program.until and release_of(torch.__version__) >= program.until:
        pytest.skip("this release of torch does not wait there")

    before = run(gpu, program.setting, program.before)
    after = run(gpu, program.setting, program.after)

    assert before.rules == {rule, program.beside or rule}
    assert waits(after.audit) < waits(before.audit)
    assert repeated(after.audit) <= repeated(before.audit)
    for one, other in zip(before.result, after.result, strict=True):
        torch.testing.assert_close(one, other, check_dtype=False)


def waits(audit: StepAudit) -> tuple[int, int]:
    """Return waits and copies from ordinary memory; what may wait counts as it does."""
    return audit.totals.syncs + audit.totals.maybe, audit.totals.pageable_copies


def test_no_remedy_of_a_wait_is_without_its_programs() -> None:
    advised = [remedy.rule for remedy in SYNC_REMEDIES if remedy.do != NONE_KNOWN]

    assert list(PROGRAMS) == advised
