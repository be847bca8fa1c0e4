"""Parameters of a test, as other programs are shown of them."""

from __future__ import annotations

import json
from enum import Enum, IntEnum
from pathlib import Path

import pytest

from pytest_gpuperf.runner.request import Planned
from pytest_gpuperf.worker.items import shown


class Mode(Enum):
    EAGER = object()


class Level(IntEnum):
    LOW = 1


class Telling:
    def __str__(self) -> str:
        raise AssertionError


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, None),
        (True, True),
        (8, 8),
        (0.5, 0.5),
        ("a<b", "a<b"),
        (float("inf"), "inf"),
        (float("nan"), "nan"),
        (Mode.EAGER, "EAGER"),
        (Level.LOW, "LOW"),
        (int, "int"),
        (json.dumps, "dumps"),
        (Path("/home/eve"), type(Path()).__name__),
        ([1, 2], "list"),
        (Telling(), "Telling"),
    ],
)
def test_a_value_is_shown_as_json_has_it_or_by_a_name(
    value: object, said: object
) -> None:
    assert shown(value) == said
    json.dumps(shown(value), allow_nan=False)


def test_types_of_torch_are_shown_and_tensors_are_not_looked_into() -> None:
    torch = pytest.importorskip("torch")

    said = [shown(v) for v in (torch.bfloat16, torch.device("cuda:1"), torch.ones(2))]

    assert said == ["torch.bfloat16", "cuda:1", "Tensor"]


def test_a_planned_test_with_parameters_can_still_be_looked_up() -> None:
    first, again = (
        Planned(test="t[8]", argument="t.py::t[8]", module="t.py", params={"size": 8})
        for _ in range(2)
    )

    assert list(dict.fromkeys([first, again])) == [first]
