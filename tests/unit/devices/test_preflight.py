from __future__ import annotations

from contextlib import AbstractContextManager

import pytest

from pytest_gpuperf.devices.preflight import check_process
from pytest_gpuperf.errors import ErrorId, PreflightError


torch = pytest.importorskip("torch")


def refusal_within(state: AbstractContextManager[object]) -> str:
    with state, pytest.raises(PreflightError) as refused:
        check_process()
    return refused.value.text


def refused() -> bool:
    try:
        check_process()
    except PreflightError:
        return True
    return False


def test_blocking_launches_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")

    with pytest.raises(PreflightError) as refusal:
        check_process()

    assert refusal.value.error_id is ErrorId.GP404


@pytest.mark.parametrize("value", ["", "0"])
def test_blocking_launches_may_be_switched_off(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", value)

    assert not refused()


def test_an_active_autograd_profiler_is_refused() -> None:
    assert refusal_within(torch.autograd.profiler.profile()) == (
        "a torch profiler is active, which slows every operation down and shuts out "
        "the one that looks for syncs: stop it before gpuperf(step)"
    )


def test_a_dispatch_mode_is_refused_by_its_name() -> None:
    class Watching(torch.utils._python_dispatch.TorchDispatchMode):
        pass

    assert refusal_within(Watching()) == (
        "the dispatch mode Watching is active, which runs Python for "
        "every operation and turns torch.compile off: leave it before gpuperf(step)"
    )


def test_counting_flops_around_the_measurement_is_refused() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    message = refusal_within(FlopCounterMode(display=False))

    assert message.startswith("the dispatch mode _FlopCounterMode is active")


def test_anomaly_mode_is_refused() -> None:
    assert refusal_within(torch.autograd.set_detect_anomaly(mode=True)) == (
        "autograd's anomaly mode is on, which records a traceback for every operation: "
        "turn it off with torch.autograd.set_detect_anomaly(False) to measure"
    )


def test_a_process_is_accepted_again_once_the_profiler_has_stopped() -> None:
    refusal_within(torch.autograd.profiler.profile())

    assert not refused()
