"""The comparison of the simulated GPU with a real one, as far as it goes without one."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from trace_events import call, step


sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))

from agreement_table import Row, Seen, Standing, differences, rows_of, unexplained


def row(case: str, simulated: Seen, cuda: Seen) -> Row:
    return Row(case=case, simulated=simulated, cuda=cuda)


AGREED = row("x.item()", Seen(syncs=(1,)), Seen(syncs=(1,)))
COUNTED = row("print(x)", Seen(syncs=(1,)), Seen(syncs=(4,)))
OPEN = row("x.mode()", Seen(syncs=(0,), inconclusive=1), Seen(syncs=(2,)))
MISSED = row("a | b", Seen(syncs=(0, 0)), Seen(syncs=(0, 1)))
SILENT = row("x.csr()", Seen(syncs=(None,), silent="no rule"), Seen(syncs=(1,)))


@pytest.mark.parametrize(
    ("compared", "standing"),
    [
        (AGREED, Standing.AGREE),
        (COUNTED, Standing.OTHER_COUNT),
        (OPEN, Standing.OPEN),
        (MISSED, Standing.DIFFER),
        (SILENT, Standing.UNCHECKED),
        (
            row(
                "x",
                Seen(syncs=(1,), lines={"a.py:1": 1}),
                Seen(syncs=(1,), lines={"a.py:2": 1}),
            ),
            Standing.OTHER_PLACE,
        ),
        (
            row("x", Seen(syncs=(1,), pageable={"a.py:1": 1}), Seen(syncs=(1,))),
            Standing.OTHER_PLACE,
        ),
        (row("x", Seen(syncs=(None, 0)), Seen(syncs=(5, 0))), Standing.AGREE),
        (row("x", Seen(syncs=(0,), inconclusive=1), Seen(syncs=(0,))), Standing.AGREE),
    ],
)
def test_cases_stand_by_which_samples_wait(compared: Row, standing: Standing) -> None:
    assert compared.standing is standing


def test_a_case_that_one_side_was_not_asked_is_not_checked() -> None:
    rows = rows_of({"a": Seen(syncs=(0,))}, {"b": Seen(syncs=(0,))})

    assert [(r.case, r.standing) for r in rows] == [
        ("a", Standing.UNCHECKED),
        ("b", Standing.UNCHECKED),
    ]
    assert str(rows[0].cuda) == "no answer: it was not asked"


def test_every_difference_is_a_line_and_the_worst_come_first() -> None:
    assert list(differences([AGREED, COUNTED, OPEN, SILENT, MISSED])) == [
        "differ: a | b: simulated 0 in 0 of 2 samples; cuda 1 in 1 of 2 samples",
        "not checked: x.csr(): simulated no answer: no rule; cuda 1",
        "open: x.mode(): simulated 0, inconclusive 1; cuda 2",
        "other count: print(x): simulated 1; cuda 4",
    ]


def test_only_what_has_a_cause_or_is_left_open_may_differ() -> None:
    rows = [AGREED, COUNTED, OPEN, MISSED, SILENT]

    assert unexplained(rows, {MISSED.case: "why"}) == [COUNTED, SILENT]


# The two sides


@pytest.fixture
def cases() -> ModuleType:
    pytest.importorskip("torch")
    return importlib.import_module("agreement")


def profiled(run: Any, batches: Sequence[Sequence[object]]) -> Iterator[dict[str, Any]]:
    """A GPU that waits as often as the sample says."""
    for index, arguments in enumerate(batches):
        start_us = 100.0 * index
        yield step(start_us, 90)
        run(*arguments)
        for wait in range(int(str(arguments[0]))):
            yield call("cudaDeviceSynchronize", start_us + wait, 0.5)


def test_the_real_side_counts_the_syncs_of_each_sample(cases: ModuleType) -> None:
    ran: list[int] = []
    case = cases.Case(name="case", prepare=lambda: (ran.append, [(0,), (2,), (1,)]))

    seen = dict(cases.seen_on_cuda([case], lambda *asked: list(profiled(*asked))))

    assert seen == {"case": Seen(syncs=(0, 2, 1), lines={"?": 3})}
    assert ran == [0, 2, 1, 0, 2, 1]


def test_the_corpus_has_every_snippet_once(cases: ModuleType) -> None:
    names = [case.name for case in cases.corpus()]

    assert len(names) == len(set(names)) > 600
    assert "main: grid.sum().item()" in names
