"""A suite with a test of each outcome, for outputs that show all of them."""

from __future__ import annotations

from typing import Final

from builders import (
    MIB,
    a_comparison,
    a_finding,
    a_missed_budget,
    a_regression,
    a_test,
    a_verdict,
    some_evidence,
)
from pages import PEAK

from pytest_gpuperf.model.ab import Answer, Comparison, Training, TrainingAnswer
from pytest_gpuperf.model.finding import FindingKind
from pytest_gpuperf.model.verdict import (
    DecidedBy,
    DetectableChange,
    Outcome,
    ShiftCause,
    SuiteAcuity,
    SuiteVerdict,
    TestVerdict,
)


ON_CUDA: Final = "latency_ms=15 binds on cuda only; name another device with on="
SPEEDUP: Final = a_comparison(
    Answer.FASTER,
    1 / 1.3,
    why="after is faster by more than 1 %: time -23.1 %, 95 % interval -24.0 % to "
    "-22.5 %; label-swap test over 14 quads",
)
SIDES: Final = Comparison(
    time=SPEEDUP,
    before={"peak_allocated_bytes": 90 * MIB, "syncs": 2, "launches": 7},
    after={"peak_allocated_bytes": 80 * MIB, "syncs": 0, "launches": 7},
    unmeasured={"pageable_copies": "nothing is copied"},
    training=Training(
        answer=TrainingAnswer.SAME,
        text="the gradients of 4 tensors agree within 1 % over 3 steps",
    ),
)

VERDICTS: Final = (
    a_test(
        a_verdict(),
        a_verdict("syncs", now=0, baseline=0),
        a_verdict("peak_allocated_bytes", now=36 * MIB, baseline=36 * MIB),
        a_verdict("latency_ms", Outcome.NOT_CHECKED, None, None, because=ON_CUDA),
        test="tests/test_train.py::test_passes",
        rates={"samples_per_s": 74_240.4, "tokens_per_s": 1234.5},
    ),
    a_test(
        a_regression(evidence=some_evidence()),
        a_verdict("syncs", now=1, baseline=1),
        test="tests/test_train.py::test_slower[a long parameter that is never cut]",
        findings=(a_finding(FindingKind.INCONCLUSIVE, metrics=()), PEAK),
        trace=".gpuperf/traces/test_slower.json.gz",
        snapshot=".gpuperf/memory/test_slower.pickle",
    ),
    a_test(
        a_missed_budget(),
        a_verdict("launches", Outcome.NO_BASELINE, 0, None, not_stored=True),
        test="tests/test_train.py::test_over",
        findings=(a_finding(allowed="logged every 100 steps"),),
    ),
    a_test(
        a_verdict(
            outcome=Outcome.INCONCLUSIVE,
            now=0.0318,
            baseline=0.0312,
            because="only 4 stored runs, REGRESSED needs 5; this machine could have "
            "seen +4.1 %",
            evidence=some_evidence(
                estimate=0.02,
                low=0.0,
                high=0.041,
                stored_runs=4,
                rule=DecidedBy.TOO_FEW_STORED,
            ),
        ),
        test="tests/test_train.py::test_noisy",
        recorded="4d2a4d2",
    ),
    a_test(
        a_verdict(outcome=Outcome.NO_BASELINE, now=12.1, baseline=None),
        a_verdict("syncs", Outcome.NO_BASELINE, 0, None),
        test="tests/test_train.py::test_new",
    ),
    a_test(
        a_verdict(outcome=Outcome.IMPROVED, now=8.0, because="all 5 runs are faster"),
        test="tests/test_train.py::test_faster",
        remarks=("the clock of the SMs was 1980 MHz",),
    ),
    a_test(
        a_verdict("latency_ms", Outcome.NOT_CHECKED, None, None, because=ON_CUDA),
        test="tests/test_train.py::test_elsewhere",
    ),
    TestVerdict(
        test="tests/test_compare.py::test_fused#compare", verdicts=(), sides=SIDES
    ),
    a_test(
        a_missed_budget("speedup", 1.3, 1.4, because="less than 1.4 is proven"),
        test="tests/test_compare.py::test_enough#compare",
        sides=SIDES,
    ),
)


def a_detectable_change(test: str, scatter: float) -> DetectableChange:
    return DetectableChange(
        test=test,
        scatter=scatter,
        smallest=0.01 + 4 * scatter,
        tolerance=0.01,
        decidable=scatter < 0.02,
    )


NOISY: Final = SuiteAcuity(
    tests=(
        a_detectable_change("tests/test_train.py::test_noisy", 0.4),
        a_detectable_change("tests/test_train.py::test_passes", 0.01),
    ),
    scatter=0.023,
    smallest=0.061,
    decidable=1,
    advised=0.08,
    decidable_then=2,
)

SHIFT: Final = SuiteVerdict(
    tests=40,
    moved=40,
    shift=0.06,
    sentinels=0.05,
    cause=ShiftCause.MACHINE,
    because="all 40 tests +6.0 %, sentinels too: the machine, not the code",
)
