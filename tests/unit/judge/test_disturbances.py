"""What disturbed the runs of a test, in one list."""

from __future__ import annotations

import pytest

from pytest_gpuperf.judge.readings import Reading, dirt


WAITED = "the process waited for a core over 5% of the time"


def drifted(by: str) -> str:
    return f"the step drifted by {by} while it was timed"


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        ([(drifted("-49.5%"),), (drifted("+59.6%"),)], drifted("-49.5%")),
        ([(WAITED,), (drifted("+9%"), WAITED)], f"{WAITED}, {drifted('+9%')}"),
        ([(), (WAITED,)], WAITED),
        ([()], ""),
    ],
)
def test_a_cause_is_named_once_though_each_run_has_its_own_number(
    runs: list[tuple[str, ...]], said: str
) -> None:
    assert dirt(Reading(value=1.0, dirty=dirty) for dirty in runs) == said
