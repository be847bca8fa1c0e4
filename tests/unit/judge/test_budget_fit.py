"""Whether a prediction fits a GPU: a yes and a no that its error cannot turn around."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_gpuperf.judge.budget import CONTEXT_BYTES, fit_of, grown_at
from pytest_gpuperf.model.measurement import Fit, Forecast


GIB = 2**30


def forecast(allocated: float, reserved: float) -> Forecast:
    return Forecast(
        allocated_bytes=round(allocated * GIB),
        reserved_bytes=round(reserved * GIB),
        steps=3,
    )


@pytest.mark.parametrize(
    ("allocated", "reserved", "fit"),
    [
        (8.0, 9.0, Fit.FITS),  # 9 * 1.1 + 0.75 is 10.65
        (8.0, 9.31, Fit.FITS),
        (8.0, 9.33, Fit.TOO_CLOSE),
        (10.7, 11.0, Fit.TOO_CLOSE),
        (10.78, 11.0, Fit.TOO_CLOSE),
        (10.8, 11.0, Fit.TOO_LARGE),  # 10.8 * 0.95 + 0.75 is 11.01
    ],
)
def test_a_gpu_of_eleven_gib_is_judged_with_room_for_the_error_and_the_context(
    allocated: float, reserved: float, fit: Fit
) -> None:
    assert CONTEXT_BYTES == 0.75 * GIB
    assert fit_of(forecast(allocated, reserved), 11.0) is fit


@pytest.mark.parametrize(
    ("reserved", "fit"), [(8.0, Fit.FITS), (8.3, Fit.TOO_CLOSE), (20.0, Fit.TOO_CLOSE)]
)
def test_what_compiled_code_needs_is_known_to_a_quarter_and_may_be_much_less(
    reserved: float, fit: Fit
) -> None:
    as_eager = replace(forecast(reserved, reserved), as_eager=True)

    assert fit_of(as_eager, 11.0) is fit  # 8.2 * 1.25 + 0.75 is 11


@pytest.mark.parametrize(
    ("mib", "step", "fit"),
    [(1024, 6, Fit.TOO_LARGE), (1, 2308, Fit.TOO_LARGE), (0.01, 230_398, Fit.FITS)],
)
def test_what_grows_fits_nothing_that_it_fills_in_as_many_steps_as_people_run(
    mib: float, step: int, fit: Fit
) -> None:
    grows = replace(forecast(8.0, 9.0), growth_bytes=round(mib * 2**20), steps=3)
    goes_on = replace(grows, was_ended=True)

    assert grown_at(grows, 11.0) == step
    assert fit_of(grows, 11.0) is Fit.FITS
    assert fit_of(goes_on, 11.0) is fit


@pytest.mark.parametrize(
    ("gib", "fit"), [(0.0, Fit.UNKNOWN), (39.0, Fit.FITS), (40.0, Fit.UNKNOWN)]
)
def test_a_guess_fits_where_there_is_room_to_spare(gib: float, fit: Fit) -> None:
    guess = replace(forecast(gib, gib), not_checked=("aten::nonzero: ?",))

    assert fit_of(guess, 80.0) is fit
