"""Graph breaks and recompilations of the code that a step runs, with their lines."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_gpuperf.devices.compile import (
    DYNAMO,
    CompiledCode,
    compiled_code,
    remember_compilations,
)
from pytest_gpuperf.measure.phases import counts_of
from pytest_gpuperf.model.finding import Finding, FindingKind


ROOT = str(Path(__file__).parent)


@pytest.fixture
def torch() -> Iterator[Any]:
    torch = pytest.importorskip("torch")
    torch._dynamo.reset()
    torch._dynamo.utils.clear_compilation_metrics()
    remember_compilations()
    yield torch
    torch._dynamo.reset()
    torch._dynamo.utils.clear_compilation_metrics()
    torch._dynamo.utils.set_compilation_metrics_limit(64)


def inner(x: Any) -> Any:
    y = x * 2
    print(end="")  # noqa: T201, what Dynamo cannot follow
    return y + 1


def outer(x: Any) -> Any:
    total = inner(x).sum()
    if total > 0:
        return total + 1
    return total


def looping(x: Any) -> Any:
    for _ in range(3):
        print(end="")  # noqa: T201
        x = x + 1
    return x


def until(x: Any) -> Any:
    total = 0.0
    while total < 3:
        total += x.sum().item()
    return x + total


def trying(x: Any) -> Any:
    x = x * 2
    try:
        print(end="")  # noqa: T201
    except ValueError:
        return x
    return x + 1


def calling(x: Any) -> Any:
    return looping(x * 2) + 1


def whole(x: Any) -> Any:
    return (x * 2).relu()


def of_kind(found: CompiledCode, kind: FindingKind) -> list[Finding]:
    return [finding for finding in found.findings if finding.kind is kind]


def lines(found: CompiledCode) -> list[tuple[str, str]]:
    return [
        (broken.location.function, line_of(broken.location.line))
        for broken in of_kind(found, FindingKind.BREAK)
    ]


def line_of(number: int) -> str:
    return Path(__file__).read_text(encoding="utf-8").splitlines()[number - 1].strip()


def test_a_process_that_never_loaded_dynamo_runs_nothing_for_the_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, DYNAMO, raising=False)
    ran: list[int] = []

    found = compiled_code(lambda: ran.append(1))

    assert (found, ran, DYNAMO in sys.modules) == (CompiledCode(), [], False)


def test_whole_code_has_none_and_is_not_run_again(torch: Any) -> None:
    compiled = torch.compile(whole, backend="eager")
    compiled(torch.ones(4))
    ran: list[int] = []

    found = compiled_code(lambda: ran.append(1), ROOT)

    assert (found, ran) == (CompiledCode(), [])


def test_a_break_is_one_line_from_wherever_it_is_called(torch: Any) -> None:
    compiled = torch.compile(outer, backend="eager")
    x = torch.ones(4)
    compiled(x)

    found = compiled_code(lambda: compiled(x), ROOT)

    assert lines(found) == [
        ("inner", 'print(end="")  # noqa: T201, what Dynamo cannot follow'),
        ("outer", "if total > 0:"),
    ]
    assert "print" in found.findings[0].reason
    assert found.findings[1].reason == "a branch that the value of a tensor decides"
    assert of_kind(found, FindingKind.RECOMPILE) == []


@pytest.mark.parametrize(
    ("step", "given_up", "line"),
    [
        (looping, "looping", 'print(end="")  # noqa: T201'),
        (until, "until", "total += x.sum().item()"),
        (trying, "trying", 'print(end="")  # noqa: T201'),
        (calling, "looping", 'print(end="")  # noqa: T201'),
    ],
)
def test_a_function_that_is_given_up_counts_next_to_the_line_that_breaks_it_and_is_first(
    torch: Any, step: Any, given_up: str, line: str
) -> None:
    compiled = torch.compile(step, backend="eager")
    compiled(torch.ones(4))

    found = compiled_code(lambda: compiled(torch.ones(4)), ROOT)

    head = f"def {given_up}(x: Any) -> Any:"
    assert lines(found) == [(given_up, head), (given_up, line)]
    assert found.findings[0].reason == (
        f"nothing of `{given_up}` is compiled: it runs as plain Python"
    )


def test_a_function_of_which_something_is_compiled_is_not_given_up(torch: Any) -> None:
    def growing(x: Any) -> Any:
        for _ in range(2 if x.shape[0] == 5 else 0):
            print(end="")  # noqa: T201
        return x + 1

    compiled = torch.compile(growing, backend="eager", dynamic=False)
    compiled(torch.ones(4))
    compiled(torch.ones(5))

    found = compiled_code(lambda: compiled(torch.ones(4)), ROOT)

    assert lines(found) == [("growing", 'print(end="")  # noqa: T201')]


def test_what_another_step_runs_is_not_this_one_s(torch: Any) -> None:
    clean = torch.compile(whole, backend="eager")
    broken = torch.compile(outer, backend="eager")
    for size in (3, 4):
        broken(torch.ones(size))
    clean(torch.ones(4))

    assert compiled_code(lambda: clean(torch.ones(4)), ROOT) == CompiledCode()
    assert len(lines(compiled_code(None, ROOT))) == 2


def test_other_shapes_are_recompilations_of_the_function_they_come_to(
    torch: Any,
) -> None:
    compiled = torch.compile(whole, backend="eager", dynamic=False)
    for size in range(3, 7):
        compiled(torch.ones(size))

    (again,) = of_kind(
        compiled_code(lambda: compiled(torch.ones(6)), ROOT), FindingKind.RECOMPILE
    )

    assert again.per_step == 3
    assert again.location is not None
    assert line_of(again.location.line) == "def whole(x: Any) -> Any:"
    assert "size mismatch at index 0. expected 3, actual 4" in again.reason
    assert "plain Python" not in again.reason


def test_after_too_many_a_function_runs_as_python_and_the_finding_says_so(
    torch: Any,
) -> None:
    compiled = torch.compile(whole, backend="eager", dynamic=False)
    for size in range(3, 15):
        compiled(torch.ones(size))

    found = counts_of(compiled_code(lambda: compiled(torch.ones(14)), ROOT))

    (finding,) = found.findings
    assert found.exact == {"graph_breaks": 0, "recompiles": 8}
    assert (finding.kind, finding.per_step) == (FindingKind.RECOMPILE, 8)
    assert finding.reason.endswith("; after so many it runs as plain Python")


def test_an_early_torch_that_gives_no_reasons_still_numbers_compilations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def numbered(number: str) -> SimpleNamespace:
        return SimpleNamespace(
            compile_id=number,
            co_filename="model.py",
            co_name="forward",
            co_firstlineno=7,
            fail_type=None,
            fail_reason=None,
        )

    early = SimpleNamespace(
        graph_break_reasons=[],
        get_compilation_metrics=lambda: [*map(numbered, ("0/0", "0/1", "1/0", "0/2"))],
    )
    monkeypatch.setitem(sys.modules, DYNAMO, early)

    (again,) = of_kind(compiled_code(None), FindingKind.RECOMPILE)

    assert (str(again.location), again.per_step, again.reason) == (
        "model.py:7 in forward",
        2,
        "",
    )


def test_a_process_that_dynamo_forgets_something_of_has_no_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compilation = SimpleNamespace(
        fail_type=None, recompile_reason=None, has_guarded_code=True
    )
    full = SimpleNamespace(
        graph_break_reasons=[],
        get_compilation_metrics=lambda: [compilation] * 64,
        DEFAULT_COMPILATION_METRICS_LIMIT=64,
    )
    monkeypatch.setitem(sys.modules, DYNAMO, full)

    found = counts_of(compiled_code(lambda: None))

    why = (
        "torch.compile compiled 64 functions or more and remembers no more of them; "
        "import torch._dynamo at the top of the test's module"
    )
    assert (found.exact, found.unmeasured) == (
        {},
        {"graph_breaks": why, "recompiles": why},
    )
