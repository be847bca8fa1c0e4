"""The lines that run others operations than before, and the digest they are read from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from pytest_gpuperf.judge.operations import LEFT_OUT, blamed, fitted
from pytest_gpuperf.model.codec import encode_briefly
from pytest_gpuperf.model.finding import CALLED, LineChange, LineWork, Location


def line(
    source: str,
    ops: Mapping[str, tuple[int, int]],
    *,
    module: str = "Net.layers.0",
    number: int = 7,
    function: str = "forward",
    file: str = "net.py",
) -> LineWork:
    at = Location(file=file, line=number, function=function)
    return LineWork(module=module, location=at, source=source, ops=ops)


LINEAR = line("x = self.a(x)", {"aten::addmm": (1, 64)}, number=7)
RELU = line("x = relu(x)", {"aten::relu": (1, 64)}, number=8)
BEFORE = (LINEAR, RELU)


def blame(*after: LineWork, before: tuple[LineWork, ...] = BEFORE) -> list[LineChange]:
    return list(blamed([fitted(before)], [fitted(after)]))


def test_nothing_is_blamed_where_the_same_lines_run_the_same() -> None:
    assert blame(*BEFORE) == []


def test_a_line_that_merely_moved_is_the_same() -> None:
    at = Location(file="net.py", line=70, function="forward")

    assert blame(replace(LINEAR, location=at), RELU) == []


def test_a_line_in_other_words_that_runs_the_same_is_blamed_for_nothing() -> None:
    assert blame(replace(LINEAR, source="y = self.a(x)"), RELU) == []


def test_a_line_taken_apart_is_blamed_for_nothing() -> None:
    both = line("x = relu(self.a(x))", {**LINEAR.ops, **RELU.ops})

    assert blame(*BEFORE, before=(both,)) == []


def test_a_renamed_module_function_and_file_are_blamed_for_nothing() -> None:
    renamed = [
        line(w.source, w.ops, module="Model.blocks.0", function="run", file="model.py")
        for w in BEFORE
    ]

    assert blame(*renamed) == []


def test_what_a_line_runs_in_addition_is_named_with_its_line_and_module() -> None:
    ops = {**LINEAR.ops, "aten::clone": (1, 64)}
    copied = line("x = self.a(x).contiguous()", ops, number=9)

    (found,) = blame(copied, RELU)

    assert found.location == Location(file="net.py", line=9, function="forward")
    assert found.module == "Net.layers.0"
    assert found.is_new
    assert found.ops == {"aten::clone": (0, 1)}
    assert (found.added, found.added_bytes) == (1, 64)


def test_a_line_that_runs_more_of_the_same_says_how_often_before() -> None:
    (found,) = blame(replace(LINEAR, ops={"aten::addmm": (3, 192)}), RELU)

    assert not found.is_new
    assert found.ops == {"aten::addmm": (1, 3)}


def test_new_lines_come_before_lines_that_run_more() -> None:
    more = replace(LINEAR, ops={"aten::addmm": (30, 1920)})
    fresh = line("x = x.clone()", {"aten::clone": (1, 64)})

    assert [c.source for c in blame(more, RELU, fresh)] == [
        "x = x.clone()",
        LINEAR.source,
    ]


def test_a_new_call_explains_what_runs_more_and_an_old_one_does_not() -> None:
    call = {CALLED: (2, 128)}
    old = line("loss = step(net)", call, module=CALLED, function="test")
    new = line("net(x)", call, module=CALLED, function="step")
    twice = replace(old, ops={CALLED: (4, 256)})
    doubled = [replace(w, ops=dict.fromkeys(w.ops, (2, 128))) for w in BEFORE]

    found = blame(*doubled, twice, new, before=(*BEFORE, old))

    assert [c.source for c in found] == ["net(x)", LINEAR.source, RELU.source]


def test_a_new_call_of_what_ran_before_is_blamed_for_nothing() -> None:
    new = line("net(x)", {CALLED: (2, 128)}, module=CALLED, function="step")

    assert blame(*BEFORE, new) == []


def test_results_that_grew_are_blamed_on_their_line() -> None:
    (found,) = blame(replace(LINEAR, ops={"aten::addmm": (1, 128)}), RELU)

    assert (found.added, found.added_bytes) == (0, 64)


def test_one_line_in_all_layers_is_one_line_of_blame() -> None:
    layers = [f"Net.layers.{n}" for n in range(3)]
    before = [replace(LINEAR, module=name) for name in layers]
    after = [
        replace(w, ops={**w.ops, "aten::clone": (1, 8)}, source="z") for w in before
    ]

    (found,) = blame(*after, before=tuple(before))

    assert found.module == "Net.layers.*"
    assert found.ops == {"aten::clone": (0, 3)}


def test_what_differs_between_the_steps_of_a_side_is_blamed_on_nothing() -> None:
    rare = line("log(x)", {"aten::mean": (1, 4)})
    usual, seldom = fitted(BEFORE), fitted((*BEFORE, rare))

    assert blamed([usual, usual], [usual, seldom]) == ()
    assert blamed([seldom, usual], [seldom, seldom]) == ()
    assert len(blamed([usual, usual], [seldom, seldom])) == 1


@pytest.mark.parametrize("digests", [([], [BEFORE]), ([()], [BEFORE]), ([BEFORE], [])])
def test_without_a_digest_of_both_sides_nothing_is_blamed(
    digests: tuple[list[tuple[LineWork, ...]], list[tuple[LineWork, ...]]],
) -> None:
    assert blamed(*digests) == ()


def test_a_digest_of_any_size_fits_into_its_file() -> None:
    many = [
        line(f"x = call_number_{n}(x)", {"aten::add": (n, n)}, module=f"Net.l.{layer}")
        for n in range(1, 200)
        for layer in range(12)
    ]

    found = fitted(many)

    assert len(json.dumps(encode_briefly(found))) < 20 * 1024
    assert LEFT_OUT in found[-1].ops
    assert sum(w.count for w in found) == sum(w.count for w in many)


def test_what_one_side_had_no_room_for_is_blamed_on_nothing() -> None:
    cut = (*fitted((replace(LINEAR, ops={"aten::addmm": (9, 64)}),)),)
    cut += (LineWork(ops={LEFT_OUT: (5, 5)}),)

    assert blamed([cut], [(*cut[:1], RELU)]) == ()


def test_equal_layers_become_one_where_either_side_has_no_room_for_them() -> None:
    before = [replace(LINEAR, module="Net.layers.*", ops={"aten::addmm": (2, 128)})]
    after = [replace(LINEAR, module=f"Net.layers.{n}") for n in range(2)]

    assert blamed([before], [after]) == ()
