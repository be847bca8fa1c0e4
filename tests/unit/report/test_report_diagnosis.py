"""What a step waits for, in sentences that fit a terminal and a page."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import a_test
from builders import a_verdict

from pytest_gpuperf.model.finding import Bottleneck
from pytest_gpuperf.model.finding import Diagnosis
from pytest_gpuperf.model.finding import Location
from pytest_gpuperf.model.finding import Part
from pytest_gpuperf.model.verdict import Outcome
from pytest_gpuperf.model.verdict import TestVerdict
from pytest_gpuperf.report.html.findings import diagnosis_list
from pytest_gpuperf.report.json.results import from_json
from pytest_gpuperf.report.json.results import to_json
from pytest_gpuperf.report.screen.bottleneck import BOTTLENECK_NAMES
from pytest_gpuperf.report.screen.bottleneck import WHY
from pytest_gpuperf.report.screen.bottleneck import in_a_line
from pytest_gpuperf.report.screen.explanation import explanation_lines
from pytest_gpuperf.report.screen.failure import failure_text


LINE = Location(file="train.py", line=21, function="step")

SYNCS = Part(
    bottleneck=Bottleneck.SYNCS,
    percent=28.6,
    blocked_percent=57.2,
    per_step=1,
    location=LINE,
)
GPU = Part(bottleneck=Bottleneck.GPU, percent=71.4)
WAITING = Diagnosis(parts=(SYNCS, GPU), copying_percent=0.0, isolated=1.01)


def explained(diagnosis: Diagnosis) -> list[str]:
    (head, *lines) = explanation_lines(
        [TestVerdict(test="t", verdicts=(), diagnosis=diagnosis)]
    )

    assert head.text == "t"
    return [line.text for line in lines]


def test_the_parts_stand_in_a_column_with_their_lines_and_what_to_do() -> None:
    assert explained(WAITING) == [
        "    where the time of a step goes:",
        "      29 %  syncs at train.py:21 in step: while the CPU waits for the GPU, it",
        "            prepares no work for it; the CPU is blocked for 57 %, partly by",
        "            kernels queued before; removing the wait saves at most 29 %; leave",
        "            the value on the GPU, and read it every N steps",
        "      71 %  the GPU: kernels compute",
    ]


def part(bottleneck: Bottleneck, percent: float | None = 96.0, **fields: int) -> Part:
    return Part(bottleneck=bottleneck, percent=percent, **fields)


@pytest.mark.parametrize(
    ("diagnosis", "lines"),
    [
        (
            Diagnosis(parts=(part(Bottleneck.GPU),), copying_percent=12.3),
            [
                "    where the time of a step goes:",
                "      96 %  the GPU: kernels compute; only faster kernels, or fewer, make the",
                "            step faster",
                "      12 %  a copy runs on the GPU, beside kernels or not",
            ],
        ),
        (
            Diagnosis(parts=(part(Bottleneck.LAUNCHES, 53.0), GPU), isolated=1.01),
            [
                "    where the time of a step goes:",
                "      53 %  launches: the GPU finishes before the CPU has launched more; an",
                "            isolated step takes 1.01 times as long; try larger batches,",
                "            torch.compile, CUDA graphs, a fused optimizer",
                "      71 %  the GPU: kernels compute",
            ],
        ),
        (
            Diagnosis(parts=(part(Bottleneck.LAUNCHES, 53.0),), isolated=1.4),
            [
                "    where the time of a step goes:",
                "      53 %  launches: the GPU finishes before the CPU has launched more; try",
                "            larger batches, torch.compile, CUDA graphs, a fused optimizer",
            ],
        ),
        (
            Diagnosis(parts=(part(Bottleneck.COPIES, 12.0),)),
            [
                "    where the time of a step goes:",
                "      12 %  copies: no kernel runs until the copy is done; copy less (uint8), or",
                "            the next batch on a stream of its own",
            ],
        ),
        (
            Diagnosis(parts=(part(Bottleneck.COPIES, 12.0, per_step=2),)),
            [
                "    where the time of a step goes:",
                "      12 %  copies: no kernel runs until the copy is done; pin the batches",
                "            (pin_memory=True) and copy them with non_blocking=True",
            ],
        ),
        (
            Diagnosis(
                parts=(
                    part(Bottleneck.LOADER, 61.0),
                    Part(bottleneck=Bottleneck.SYNCS, per_step=12, location=LINE),
                    part(Bottleneck.HOST, 39.0),
                )
            ),
            [
                "    where the time of a step goes:",
                "             61 %  the loader: the step waits for its next batch; make a batch",
                "                   cheaper: one call for a batch (__getitems__), tensors in",
                "                   place of Python objects, which workers pickle; then try",
                "                   num_workers",
                "      12 per step  syncs at train.py:21 in step: while the CPU waits for the",
                "                   GPU, it prepares no work for it; how long: only a GPU can",
                "                   show; leave the value on the GPU, and read it every N steps",
                "             39 %  the CPU: all the rest",
            ],
        ),
        (
            Diagnosis(parts=(part(Bottleneck.COMMUNICATION, 40.0),)),
            [
                "    where the time of a step goes:",
                "      40 %  communication: a collective runs while nothing computes; let it",
                "            overlap with the backward (DDP's buckets, FSDP's prefetching)",
            ],
        ),
    ],
    ids=["full", "late", "late, but not alone", "pinned", "pageable", "cpu", "ranks"],
)
def test_each_part_has_its_sentence(diagnosis: Diagnosis, lines: list[str]) -> None:
    assert explained(diagnosis) == lines
    assert max(map(len, lines)) <= 80


def test_without_a_clock_the_heading_claims_no_time() -> None:
    counted = Part(bottleneck=Bottleneck.COPIES, per_step=2, location=LINE)

    assert explained(Diagnosis(parts=(counted,))) == [
        "    what a GPU would wait for:",
        "      2 per step  copies at train.py:21 in step: no kernel runs until the copy",
        "                  is done; how long: only a GPU can show; pin the batches",
        "                  (pin_memory=True) and copy them with non_blocking=True",
    ]


@pytest.mark.parametrize("bottleneck", Bottleneck)
def test_every_part_has_its_words(bottleneck: Bottleneck) -> None:
    assert BOTTLENECK_NAMES[bottleneck]
    assert WHY[bottleneck]


def failed(metric: str, diagnosis: Diagnosis) -> list[str]:
    over = a_verdict(metric, Outcome.OVER_BUDGET, 28.0, None, limit=20.0)
    verdict = a_test(over, diagnosis=diagnosis)
    return failure_text(verdict, nodeid="t").splitlines()


@pytest.mark.parametrize("metric", ["step_ms", "busy_pct"])
def test_a_time_that_failed_names_what_the_step_waits_for_most(metric: str) -> None:
    assert failed(metric, WAITING)[1] == (
        "  waits    for syncs at train.py:21 in step, 29 % of the step"
    )


def test_a_loader_that_is_waited_for_too_long_has_advice() -> None:
    loading = Diagnosis(parts=(part(Bottleneck.LOADER),))

    assert failed("loader_wait_pct", loading)[1:3] == [
        "  waits    for the loader, 96 % of the step",
        "  fix      make a batch cheaper: one call for a batch (__getitems__), tensors in",
    ]


def test_what_has_nothing_to_do_with_waiting_says_nothing_of_it() -> None:
    assert not [line for line in failed("syncs", WAITING) if "waits" in line]


@pytest.mark.parametrize(
    ("first", "line"),
    [
        (part(Bottleneck.GPU), "for the GPU, which computes in 96 % of the step"),
        (part(Bottleneck.LOADER), "for the loader, 96 % of the step"),
        (part(Bottleneck.LOADER, 9.9), ""),
        (part(Bottleneck.HOST), ""),
        (part(Bottleneck.SYNCS, None), ""),
    ],
)
def test_the_line_says_what_is_known_and_else_nothing(first: Part, line: str) -> None:
    assert in_a_line(Diagnosis(parts=(first,))) == line


def test_a_page_lists_the_same_and_a_name_cannot_become_markup() -> None:
    odd = replace(SYNCS, location=replace(LINE, function="<b>"))

    listed = diagnosis_list(Diagnosis(parts=(odd, GPU)))

    assert listed.startswith(
        "<h2>Where the time of a step goes</h2>"
        '<ol class="findings diagnosis"><li><b>29 %</b> syncs at train.py:21 in '
        "&lt;b&gt;: while the"
    )
    assert listed.endswith("<li><b>71 %</b> the GPU: kernels compute</ol>")
    assert diagnosis_list(None) == ""


def test_a_diagnosis_crosses_from_process_to_process() -> None:
    verdict = TestVerdict(test="t", verdicts=(), diagnosis=WAITING)

    assert from_json(to_json(verdict)) == verdict
