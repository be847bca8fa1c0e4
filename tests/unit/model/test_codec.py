"""Values survive the way through JSON; anything of another shape is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from pytest_gpuperf.model.baseline import Baselines, Entry, RunSummary
from pytest_gpuperf.model.budget import Budget, Tolerance
from pytest_gpuperf.model.codec import decode, encode, encode_briefly
from pytest_gpuperf.model.environment import DeviceKind, Environment, Hardware
from pytest_gpuperf.model.finding import Finding, FindingKind, Location
from pytest_gpuperf.model.measurement import Distribution, Measurement
from pytest_gpuperf.model.run import Ending, StepCall, TestResult
from pytest_gpuperf.model.verdict import Outcome, TestVerdict, Verdict
from pytest_gpuperf.runner.request import Project, RunRequest
from pytest_gpuperf.settings import Settings


names = st.text(max_size=5)
counts = st.integers()
numbers = st.floats(allow_nan=False)
optional_numbers = st.none() | numbers


def maps(values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(names, values, max_size=2)


def tuples(values: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(values, max_size=2).map(tuple)


kinds = st.sampled_from(DeviceKind)
hardware = st.builds(Hardware, kind=kinds, name=names)
environments = st.builds(Environment, hardware=hardware, software=maps(names))
distributions = st.builds(
    Distribution, q10=numbers, q25=numbers, q50=numbers, mean=numbers, samples=counts
)
locations = st.builds(
    Location, file=names, line=counts, function=names, exact=st.booleans()
)
findings = st.builds(
    Finding,
    kind=st.sampled_from(FindingKind),
    op=st.none() | names,
    api=st.none() | names,
    per_step=counts,
    blocked_ms=numbers,
    location=st.none() | locations,
)
measurements = st.builds(
    Measurement,
    test=names,
    environment=environments,
    times=maps(distributions),
    exact=maps(counts),
    unmeasured=maps(names),
    findings=tuples(findings),
    dirty=tuples(names),
)
budgets = st.builds(Budget, limits=maps(optional_numbers), on=st.none() | tuples(names))
tolerances = st.builds(Tolerance, ratios=maps(numbers), detect=optional_numbers)
calls = st.builds(
    StepCall,
    measurement=measurements,
    budgets=tuples(budgets),
    tolerances=tuples(tolerances),
)
results = st.builds(
    TestResult,
    test=names,
    ending=st.sampled_from(Ending),
    sections=tuples(st.tuples(names, names)),
    calls=tuples(calls),
    seconds=numbers,
)
requests = st.builds(
    RunRequest,
    tests=tuples(names),
    device=kinds,
    project=st.builds(
        Project,
        rootdir=st.just(Path("a")),
        directory=names,
        options=maps(st.none() | st.booleans() | counts | names | st.lists(counts)),
    ),
    settings=st.builds(
        Settings,
        device=st.none() | kinds,
        seconds=numbers,
        baselines=st.just(Path("b")),
        script=st.none() | names,
    ),
)
verdicts = st.builds(
    Verdict,
    metric=names,
    outcome=st.sampled_from(Outcome),
    because=names,
    now=optional_numbers,
    settled=st.booleans(),
)
test_verdicts = st.builds(
    TestVerdict,
    test=names,
    verdicts=tuples(verdicts),
    findings=tuples(findings),
    runs=counts,
    changed=maps(st.tuples(names, names)),
)
summaries = st.builds(RunSummary, times=maps(distributions), exact=maps(counts))
entries = st.builds(
    Entry, runs=tuples(summaries), software=maps(names), anchor=maps(numbers)
)
baselines = st.builds(Baselines, hardware=hardware, entries=maps(entries))


@given(results | requests | test_verdicts | baselines)
def test_every_value_comes_back_from_json_as_it_went(value: object) -> None:
    through_json = json.loads(json.dumps(encode(value)))

    assert decode(type(value), through_json) == value


def test_what_a_finding_always_has_is_written_in_brief_as_well() -> None:
    assert encode_briefly(Finding(kind=FindingKind.SYNC, op=None)) == {
        "kind": "sync",
        "op": None,
        "api": None,
        "per_step": 0,
        "blocked_ms": 0.0,
    }


def test_what_only_a_program_s_finding_has_is_written_where_it_says_something() -> None:
    written = encode(Finding(kind=FindingKind.SYNC, op=None, once=True))

    assert (written["once"], "torch" in written) == (True, False)


def test_a_whole_number_is_read_as_a_float_where_a_float_is_expected() -> None:
    distribution = decode(
        Distribution, {"q10": 1, "q25": 2, "q50": 3, "mean": 4, "samples": 5}
    )

    assert repr(distribution) == (
        "Distribution(q10=1.0, q25=2.0, q50=3.0, mean=4.0, samples=5)"
    )


def test_fields_with_defaults_may_be_absent() -> None:
    summary = decode(RunSummary, {})

    assert summary == RunSummary(times={}, exact={})


@dataclass(frozen=True, slots=True, kw_only=True)
class Shelf:
    """One field of each shape."""

    count: int = 0
    height: float | None = None
    pair: tuple[str, int] = ("", 0)
    names: tuple[str, ...] = ()
    sizes: Mapping[str, int] | None = None
    kind: DeviceKind = DeviceKind.CPU
    place: Location | None = None


@pytest.mark.parametrize(
    ("raw", "error", "message"),
    [
        (7, TypeError, "expected an object for Shelf, found 7"),
        ({"height": "tall"}, TypeError, "expected float, found 'tall'"),
        ({"height": True}, TypeError, "expected float, found True"),
        ({"count": 1.5}, TypeError, "expected int, found 1.5"),
        ({"count": None}, TypeError, "expected int, found None"),
        ({"names": "abc"}, TypeError, "expected a list, found 'abc'"),
        ({"names": {"a": 1}}, TypeError, "expected a list, found {'a': 1}"),
        ({"names": [1]}, TypeError, "expected str, found 1"),
        ({"sizes": ["a"]}, TypeError, "expected an object, found ['a']"),
        ({"sizes": {"a": "b"}}, TypeError, "expected int, found 'b'"),
        ({"kind": "abacus"}, ValueError, "'abacus' is not a valid DeviceKind"),
        ({"place": []}, TypeError, "expected an object for Location, found []"),
        ({"tint": 1, "age": 2}, KeyError, "Shelf has no field age, tint"),
    ],
)
def test_another_shape_is_refused_with_what_was_expected_and_found(
    raw: object, error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as refused:
        decode(Shelf, raw)

    assert refused.value.args == (message,)


@pytest.mark.parametrize("pair", [[], ["a"], ["a", 1, 2]])
def test_a_pair_of_another_length_is_refused(pair: list[object]) -> None:
    with pytest.raises(ValueError, match=r"zip\(\) argument"):
        decode(Shelf, {"pair": pair})


def test_a_missing_field_is_refused() -> None:
    with pytest.raises(TypeError, match=r"missing 1 required .* argument: 'name'"):
        decode(Hardware, {"kind": "cpu"})
