"""The comparison of the simulated GPU with a real one, as far as it goes without one."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from trace_events import call, step


sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))

from agreement_table import (
    Row,
    Seen,
    Standing,
    as_markdown,
    differences,
    rows_of,
    unexplained,
)


SCRIPT = Path(__file__).parents[3] / "benchmarks" / "agreement.py"


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
        (row("x", Seen(syncs=(1,)), Seen(syncs=(0,))), Standing.DIFFER),
        (
            row(
                "x",
                Seen(syncs=(2,), lines={"a.py:1": 1, "a.py:2": 1}),
                Seen(syncs=(2,), lines={"a.py:1": 1, "?": 1}),
            ),
            Standing.AGREE,
        ),
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


def test_the_page_counts_all_cases_and_shows_those_that_do_not_agree() -> None:
    machine = {"torch": "2.13.0", "GPU": "NVIDIA H200"}

    page = as_markdown("Agreement", machine, [AGREED, MISSED], {MISSED.case: "why"})

    assert page == (
        "# Agreement\n"
        "\n"
        "Read with GPU NVIDIA H200, torch 2.13.0.\n"
        "\n"
        "| standing | cases |\n"
        "|---|---|\n"
        "| agree | 1 |\n"
        "| other count | 0 |\n"
        "| other place | 0 |\n"
        "| open | 0 |\n"
        "| not checked | 0 |\n"
        "| differ | 1 |\n"
        "\n"
        "| case | standing | simulated | CUDA | cause |\n"
        "|---|---|---|---|---|\n"
        "| `a &#124; b` | differ | 0 in 0 of 2 samples | 1 in 1 of 2 samples | why |\n"
    )


def test_only_what_has_a_cause_or_is_left_open_may_differ() -> None:
    rows = [AGREED, COUNTED, OPEN, MISSED, SILENT]

    assert unexplained(rows, {MISSED.case: "why"}) == [COUNTED, SILENT]


def test_where_all_agree_the_page_ends_with_the_counts() -> None:
    assert as_markdown("Agreement", {}, [AGREED], {}).endswith("| differ | 0 |\n")


# The two sides


@pytest.fixture
def cases() -> ModuleType:
    pytest.importorskip("torch")
    return importlib.import_module("agreement")


COPIED = Seen(syncs=(1,), lines={"snippet.py:1": 1}, pageable={"snippet.py:1": 1})


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


def test_a_sample_that_fails_has_no_answer_and_the_others_have_theirs(
    cases: ModuleType,
) -> None:
    def run(sample: int) -> None:
        if sample == 1:
            msg = "no such kernel\nand more"
            raise RuntimeError(msg)

    case = cases.Case(name="case", prepare=lambda: (run, [(0,), (1,), (2,)]))

    seen = dict(cases.seen_on_cuda([case], lambda *asked: list(profiled(*asked))))

    assert seen == {
        "case": Seen(
            syncs=(0, None, 2), silent="RuntimeError: no such kernel", lines={"?": 3}
        )
    }


def test_a_case_that_cannot_be_prepared_has_no_answer(cases: ModuleType) -> None:
    def prepare() -> None:
        raise MemoryError

    seen = dict(cases.seen_on_cuda([cases.Case(name="x", prepare=prepare)], profiled))

    assert seen == {"x": Seen(silent="MemoryError: ")}


def test_the_corpus_has_every_snippet_once(cases: ModuleType) -> None:
    names = [case.name for case in cases.corpus()]

    assert len(names) == len(set(names)) > 600
    assert "main: grid.sum().item()" in names


@pytest.mark.slow
@pytest.mark.parametrize(
    ("only", "answers"),
    [
        (
            "3000",
            {
                "main: torch.rand(3000, device='cuda').mode()": Seen(
                    syncs=(0,), inconclusive=1
                )
            },
        ),
        (
            "grid.cpu()",
            {"main: grid.cpu()": COPIED, "main: grid.cpu().numpy()": COPIED},
        ),
    ],
)
def test_the_simulated_side_answers_in_a_process_of_its_own(
    only: str, answers: dict[str, Seen], tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    agreement = importlib.import_module("agreement")
    asked = ("--side", "simulated", "--only", only, "--answers", str(tmp_path))

    subprocess.run([sys.executable, SCRIPT, *asked], check=True)

    assert agreement.read_answers("simulated", tmp_path) == answers


def test_answers_of_a_run_that_was_ended_are_joined_without_a_gpu(
    tmp_path: Path,
) -> None:
    pytest.importorskip("torch")
    agreement = importlib.import_module("agreement")
    line = json.dumps(["x.item()", asdict(Seen(syncs=(1,)))]) + "\n"
    (tmp_path / "machine.json").write_text('{"GPU": "a GPU"}')
    (tmp_path / "simulated.jsonl").write_text(line + line.replace("x.item", "y.item"))
    (tmp_path / "cuda.jsonl").write_text(line + '["y.item()", {"wai')

    rows = agreement.join(tmp_path, out=tmp_path)

    assert [(each.case, each.standing) for each in rows] == [
        ("x.item()", Standing.AGREE)
    ]
    assert "| agree | 1 |" in (tmp_path / "agreement-corpus.md").read_text()


@pytest.mark.slow
def test_without_a_gpu_nothing_is_compared() -> None:
    torch = pytest.importorskip("torch")
    if torch.version.cuda is not None:
        pytest.skip("this torch is built with CUDA")

    ended = subprocess.run(
        [sys.executable, str(SCRIPT)], capture_output=True, text=True, check=False
    )

    assert (ended.returncode, ended.stdout) == (4, "")
    assert "sees no CUDA device" in ended.stderr
