"""How long a step's operations take at the peak of a GPU."""

from __future__ import annotations

import pytest


pytest.importorskip("torch")

from pytest_gpuperf.devices.cuda.flops import PEAK_TFLOPS
from pytest_gpuperf.devices.cuda.flops import at_peak


H100 = "NVIDIA H100 80GB HBM3"


def test_each_precision_has_its_own_peak() -> None:
    ms, why = at_peak({"bf16": 989_500_000_000, "fp32": 67_000_000_000}, H100, {})

    assert ms == pytest.approx(2.0)
    assert why == (
        "989.5 GFLOP in bf16 at 989.5 TFLOP/s and 67 GFLOP in fp32 at 67 TFLOP/s"
    )


def test_a_gpu_that_is_not_in_the_table_says_how_to_name_its_peak() -> None:
    ms, why = at_peak({"tf32": 1}, "NVIDIA H100 80GB HBM3 MIG 1g.10gb", {})

    assert ms is None
    assert why == (
        "no peak of NVIDIA H100 80GB HBM3 MIG 1g.10gb in tf32 is known: set the ini key "
        "gpuperf_peak_tflops = tf32=..., in dense TFLOP/s"
    )


def test_a_precision_without_a_peak_leaves_no_number() -> None:
    assert at_peak({"bf16": 1, "float64": 1}, H100, {})[0] is None
    assert at_peak({"bf16": 1}, "Tesla T4", {})[0] is None


def test_a_peak_that_is_given_comes_before_the_table() -> None:
    assert at_peak({"bf16": 10**12}, H100, {"bf16": 1.0})[0] == pytest.approx(1000)
    assert at_peak({"bf16": 10**12}, "NVIDIA B200", {"bf16": 2250.0})[0] is not None


def test_a_step_without_counted_operations_has_no_share() -> None:
    _, why = at_peak({}, H100, {})

    assert why.startswith("torch's formulas count no operation")


@pytest.mark.parametrize("name", PEAK_TFLOPS)
def test_a_narrower_precision_is_no_slower(name: str) -> None:
    peaks = PEAK_TFLOPS[name]

    known = [peaks[p] for p in ("fp16", "bf16", "tf32", "fp32") if p in peaks]
    assert known == sorted(known, reverse=True)
    assert min(known) > 0
