"""The file format: what is written, what is read back, what is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from builders import H200, a_measurement, a_run, an_entry
from hypothesis import example, given, strategies as st

import pytest_gpuperf.baselines
from pytest_gpuperf.baselines.format import dumps, loads
from pytest_gpuperf.errors import BaselineError
from pytest_gpuperf.judge.budget import ResolvedBudget
from pytest_gpuperf.judge.verdict import judge
from pytest_gpuperf.model.baseline import Baselines, Entry, Judged, RunSummary, rounded
from pytest_gpuperf.model.budget import Tolerance
from pytest_gpuperf.model.environment import DeviceKind, Hardware
from pytest_gpuperf.model.finding import CALLED, StoredLine
from pytest_gpuperf.model.measurement import Board, Distribution, FurtherSteps
from pytest_gpuperf.model.metrics import METRICS, Unit
from pytest_gpuperf.model.verdict import Outcome


pytestmark = pytest.mark.slow


SCHEMA = json.loads(
    Path(pytest_gpuperf.baselines.__file__)
    .with_name("schema.json")
    .read_text(encoding="utf-8")
)
WAY_OUT = (
    "restore the file from version control, or delete it and record it again with "
    "--gpuperf-update=all"
)


def stored_line(
    kind: str, op: str, count: int, *metrics: str, text: str = "loss.item()"
) -> StoredLine:
    return StoredLine(
        kind=kind,
        op=op,
        file="t.py",
        function="f",
        text=text,
        metrics=metrics,
        per_step=count,
    )


TWO_RUNS = Baselines(
    hardware=H200,
    entries={
        "tests/test_b.py::test_b": an_entry(
            None,
            exact={"peak_allocated_bytes": 943718400},
            software={},
            lines=(
                stored_line("sync", "aten::_local_scalar_dense", 1, "syncs"),
                stored_line("work", "", 3, "ops", "flops"),
                stored_line("work", CALLED, 9, "ops", "flops", text="train()"),
            ),
        ),
        "tests/test_a.py::test_a[x]": an_entry(
            a_run(1.23456789, exact={"syncs": 0}),
            a_run(12345.678, exact={"syncs": 1}),
            software={"torch": "2.13.0", "driver": "570.1"},
            lines=(),
            anchor={"syncs": 1.0, "step_ms": 1.23456789},
        ),
    },
)

TEXT = """\
{
  "hardware": {
    "kind": "cuda",
    "name": "NVIDIA H200"
  },
  "schema": 2,
  "tests": {
    "tests/test_a.py::test_a[x]": {
      "anchor": {"step_ms": 1.235, "syncs": 1},
      "counts": {"syncs": [0, 1]},
      "runs": [
        {"times": {"step_ms": [1.235, 1.235, 1.235, 1.235, 20]}},
        {"times": {"step_ms": [12350.0, 12350.0, 12350.0, 12350.0, 20]}}
      ],
      "software": {"driver": "570.1", "torch": "2.13.0"}
    },
    "tests/test_b.py::test_b": {
      "line t.py | f | loss.item()": {"sync syncs aten::_local_scalar_dense": 1, "work ops,flops": 3},
      "line t.py | f | train()": {"work ops,flops call": 1},
      "memory": {"peak_allocated_bytes": 943718400},
      "runs": 1
    }
  }
}
"""


def test_the_document_is_sorted_and_has_each_exact_number_once() -> None:
    assert dumps(TWO_RUNS) == TEXT
    assert dumps(loads(TEXT, "x.json")) == TEXT
    jsonschema.validate(json.loads(TEXT), SCHEMA)


LOOK = FurtherSteps(first=7, last=100, usual={"syncs": 2}, counts={"syncs": ((9, 5),)})


@pytest.mark.parametrize(
    ("looks", "written"),
    [
        ([LOOK, LOOK], '{"counts": {"syncs": [[9, 5]]}, "first": 7, "last": 100},'),
        ([replace(LOOK, usual={})] * 2, '"last": 100, "usual": {}},'),
        ([LOOK, None], "["),
    ],
)
def test_a_look_stands_once_without_the_usual_that_the_counts_say(
    looks: list[FurtherSteps | None], written: str
) -> None:
    runs = [a_run(None, exact={"syncs": 2}, further=look) for look in looks]
    known = Baselines(hardware=H200, entries={"t": an_entry(*runs)})

    text = dumps(known)

    assert f'      "further": {written}' in text or written in text
    assert loads(text, "x.json") == known
    jsonschema.validate(json.loads(text), SCHEMA)


def test_the_board_of_a_run_is_written_where_it_is_known() -> None:
    runs = [
        a_run(None, board=b) for b in (Board(gpu="1f", sm_mhz=1410), Board(gpu="2e"))
    ]
    known = Baselines(hardware=H200, entries={"t": an_entry(*runs)})

    text = dumps(known)

    assert '{"board": {"gpu": "1f", "sm_mhz": 1410}}' in text
    assert '{"board": {"gpu": "2e"}}' in text
    assert loads(text, "x.json") == known
    jsonschema.validate(json.loads(text), SCHEMA)


def test_the_session_of_a_run_is_written_where_it_is_known() -> None:
    runs = (
        replace(a_run(1.0, exact={"syncs": 0}), session="2026-01-31T09:30Z-4f2a"),
        a_run(2.0, exact={"syncs": 0}),
    )
    known = Baselines(hardware=H200, entries={"t": an_entry(*runs)})

    text = dumps(known)

    assert text.count('{"session": "2026-01-31T09:30Z-4f2a", "times"') == 1
    assert text.count('"syncs": 0') == 1
    assert loads(text, "x.json") == known
    assert loads(text.replace('"session"', '"occasion"'), "x.json") == known
    jsonschema.validate(json.loads(text), SCHEMA)


@pytest.mark.parametrize(
    "wrong", ["today", "2026-13-31T09:30Z-4f2a", "2026-01-31T09:30Z-4f2a\n", 7, ""]
)
def test_what_is_no_session_is_refused(wrong: object) -> None:
    raw = json.loads(TEXT)
    raw["tests"]["tests/test_a.py::test_a[x]"]["runs"][0]["session"] = wrong

    with pytest.raises(BaselineError, match=r"runs\[0\]\.session: expected a"):
        loads(json.dumps(raw), "x.json")


RUNS = "expected a list of at least one run, or how many there are"
NO_NUMBERS: dict[str, object] = {}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"runs": 0}, f"runs: {RUNS}, found 0"),
        ({"runs": 1000}, f"runs: {RUNS}, found 1000"),
        ({"line a": 3}, "line a: expected an object, found 3"),
        (
            {"runs": [NO_NUMBERS | {"board": {"sm_mhz": 0}}]},
            "runs[0].board.sm_mhz: expected a whole number above 0, found 0",
        ),
        (
            {"runs": [NO_NUMBERS | {"board": {"gpu": 7}}]},
            "runs[0].board.gpu: expected a text, found 7",
        ),
        (
            {"runs": [NO_NUMBERS | {"board": {"fan": 1}}]},
            'runs[0].board has an unknown field "fan"',
        ),
        *(
            (
                {"runs": [NO_NUMBERS | {"round_steps": steps}]},
                f"runs[0].round_steps: expected a whole number above 0, found {steps!r}",
            )
            for steps in (0, -1, 1.5, True, "10")
        ),
    ],
)
def test_a_part_of_an_entry_that_cannot_be_is_refused(
    changes: dict[str, object], message: str
) -> None:
    entry = an_entry(None, lines=())
    raw = json.loads(dumps(Baselines(hardware=H200, entries={"t": entry})))
    raw["tests"]["t"].update(changes)

    with pytest.raises(BaselineError) as caught:
        loads(json.dumps(raw), "x.json")

    assert str(caught.value) == f"x.json: tests.t.{message}; {WAY_OUT} [GP502]"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(raw, SCHEMA)


def test_the_steps_of_a_round_are_written_where_they_are_known() -> None:
    known = Baselines(
        hardware=H200,
        entries={"t": an_entry(a_run(None, round_steps=300), a_run(None))},
    )

    text = dumps(known)

    assert '{"round_steps": 300},\n        {}' in text
    assert loads(text, "x.json") == known
    jsonschema.validate(json.loads(text), SCHEMA)


def test_what_version_0_2_0_said_of_early_ends_is_read() -> None:
    raw = json.loads(dumps(Baselines(hardware=H200, entries={"t": an_entry(1.0)})))
    raw["tests"]["t"]["judged"] = {"ends_early": True}

    assert loads(json.dumps(raw), "x.json").entries["t"].judged == Judged()


def test_no_test_makes_a_document_too() -> None:
    text = dumps(Baselines(hardware=H200))

    assert text.endswith('  "schema": 2,\n  "tests": {}\n}\n')
    assert loads(text, "x.json") == Baselines(hardware=H200)


names = st.text(min_size=1, max_size=12)
positive = st.floats(min_value=1e-6, max_value=1e9)
counts = st.integers(min_value=0, max_value=2**50)
distributions = st.builds(
    Distribution,
    q10=positive,
    q25=positive,
    q50=positive,
    mean=positive,
    samples=st.integers(min_value=1, max_value=10**6),
)
runs = st.builds(
    RunSummary,
    times=st.dictionaries(names, distributions, max_size=2),
    exact=st.dictionaries(names, counts, max_size=2),
    board=st.builds(
        Board,
        gpu=st.none() | names,
        sm_mhz=st.none() | st.integers(min_value=1, max_value=10_000),
    ),
)
entries = st.builds(
    Entry,
    runs=st.lists(runs, min_size=1, max_size=3).map(tuple),
    software=st.dictionaries(names, names, max_size=2),
    anchor=st.dictionaries(
        names.filter(lambda name: name not in METRICS), positive, max_size=2
    )
    | st.fixed_dictionaries({"syncs": counts.map(float)}),
)
baselines = st.builds(
    Baselines,
    hardware=st.builds(Hardware, kind=st.sampled_from(DeviceKind), name=names),
    entries=st.dictionaries(names, entries, max_size=3),
)


def as_stored(value: Baselines) -> Baselines:
    """Round *value* by the rule of the format: times to four digits, counts exact."""

    def time(of: Distribution) -> Distribution:
        q10, q25, q50, mean = map(rounded, (of.q10, of.q25, of.q50, of.mean))
        return replace(of, q10=q10, q25=q25, q50=q50, mean=mean)

    def run(of: RunSummary) -> RunSummary:
        return replace(of, times={name: time(one) for name, one in of.times.items()})

    def anchor(of: Mapping[str, float]) -> dict[str, float]:
        return {name: v if v.is_integer() else rounded(v) for name, v in of.items()}

    entries = {
        test: replace(of, runs=tuple(map(run, of.runs)), anchor=anchor(of.anchor))
        for test, of in value.entries.items()
    }
    return replace(value, entries=entries)


@given(baselines)
@example(
    Baselines(
        hardware=H200,
        entries={"t": replace(an_entry(None), anchor={"gone": 1000.5, "g": 10001.0})},
    )
)
def test_what_is_written_is_read_back_but_for_the_rounding(value: Baselines) -> None:
    text = dumps(value)

    assert loads(text, "x.json") == as_stored(value)
    assert dumps(loads(text, "x.json")) == text


@given(baselines)
def test_what_is_written_fits_the_published_schema(value: Baselines) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)

    jsonschema.validate(json.loads(dumps(value)), SCHEMA)


def test_the_schema_knows_every_kind_of_device() -> None:
    kinds = SCHEMA["properties"]["hardware"]["properties"]["kind"]["enum"]

    assert kinds == [kind.value for kind in DeviceKind]


def refusal_of(text: str) -> str:
    with pytest.raises(BaselineError) as refused:
        loads(text, "baselines/cuda-nvidia-h200.json")

    return refused.value.text.removeprefix("baselines/cuda-nvidia-h200.json: ")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "the file is empty"),
        (" \n", "the file is empty"),
        (TEXT[:200], "the file is cut off at line 10"),
        (TEXT.rstrip()[:-1], "the file is cut off at line 24"),
        (TEXT.replace('"schema"', "schema"), "the file is not JSON at line 6"),
        (
            TEXT.replace('  "schema"', '<<<<<<< HEAD\n  "schema"'),
            "a merge conflict is left at line 6",
        ),
        ("[" * 200_000, "the file is not readable JSON"),
        (TEXT + "x", "the file is not JSON at line 25"),
        (
            TEXT.replace('"driver"', '"torch"'),
            'the key "torch" occurs twice in one object',
        ),
    ],
)
def test_what_is_no_whole_json_is_refused_with_its_line(text: str, found: str) -> None:
    assert refusal_of(text) == f"{found}; {WAY_OUT}"


def test_a_newer_schema_asks_for_an_upgrade() -> None:
    assert refusal_of('{"schema": 3, "whatever": []}') == (
        "written by a newer pytest-gpuperf (schema 3, this one reads 2): upgrade it"
    )


A = "tests.tests/test_a.py::test_a[x]"
B = "tests.tests/test_b.py::test_b"
KIND = "hardware.kind: expected one of cuda, simulated, cpu, scripted, found"
TIME = f"{A}.runs[0].times.step_ms.q10: expected a time"
SAMPLES = f"{A}.runs[0].times.step_ms.samples: expected a whole number above 0"
COUNT = f"{A}.counts.syncs: expected a whole number from 0 up, found"
ANCHORED_COUNT = f"{A}.anchor.syncs: expected a number from 0 up, found"
ANCHORED_TIME = f"{A}.anchor.step_ms: expected a time above 0, found"


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ('"schema": 2', '"schema": 0', "schema: expected 1 or 2, found 0"),
        ('  "schema": 2,\n', "", 'the file has no field "schema"'),
        ('"schema": 2', '"a": 5, "schema": 2', 'the file has an unknown field "a"'),
        ('"cuda"', '"tpu"', f"{KIND} 'tpu'"),
        ('"NVIDIA H200"', "5", "hardware.name: expected a text, found 5"),
        ('"570.1"', "570.1", f"{A}.software.driver: expected a text, found 570.1"),
        ("[1.235", "[NaN", f"{TIME} above 0, found nan"),
        ("[1.235", "[0", f"{TIME} above 0, found 0"),
        (
            "[1.235",
            f"[1{'0' * 400}",
            f"{TIME} from 1e-09 to 1e+12 ms, found 1{'0' * 39}...",
        ),
        ("[1.235", '["fast"', f"{TIME} above 0, found 'fast'"),
        (", 20]", ", 0]", f"{SAMPLES}, found 0"),
        ('"syncs": [0', '"syncs": [-1', f"{COUNT} -1"),
        ('"syncs": 1}', '"syncs": -1}', f"{ANCHORED_COUNT} -1"),
        ('"step_ms": 1.235', '"step_ms": 0', f"{ANCHORED_TIME} 0"),
        (
            "[0, 1]",
            "[0]",
            f"{A}.counts.syncs: expected a list with a value of each of 2 runs, found [0]",
        ),
        (
            '"counts": {"syncs": [0, 1]}',
            '"counts": []',
            f"{A}.counts: expected an object, found []",
        ),
        (
            '"sync syncs',
            '"wait syncs',
            f"{B}.kind: expected one of sync, copy, transfer, break, recompile, work, found 'wait'",
        ),
        (
            '"runs": 1',
            '"runs": 1, "note": ""',
            'tests.tests/test_b.py::test_b has an unknown field "note"',
        ),
    ],
)
def test_another_shape_is_refused_with_its_place(
    old: str, new: str, found: str
) -> None:
    assert refusal_of(TEXT.replace(old, new, 1)) == f"{found}; {WAY_OUT}"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[]", "the file: expected an object, found []"),
        ("NaN", "the file: expected an object, found nan"),
        (
            (
                '{"schema": 1, "hardware": {"kind": "cpu", "name": "x"}, "tests": '
                '{"t": {"anchor": {}, "software": {}, "runs": []}}}'
            ),
            f"tests.t.runs: {RUNS}, found []",
        ),
    ],
)
def test_the_frame_is_checked_too(text: str, found: str) -> None:
    assert refusal_of(text) == f"{found}; {WAY_OUT}"


def test_the_schema_knows_every_time_that_an_anchor_can_have() -> None:
    (pattern,) = SCHEMA["$defs"]["entry"]["properties"]["anchor"]["patternProperties"]
    times = {m.name for m in METRICS.values() if m.unit is Unit.MS}

    assert {name for name in METRICS if re.search(pattern, name)} == times


@pytest.mark.parametrize("ms", [float("nan"), float("inf"), 0.0])
def test_nothing_is_written_that_cannot_be_read(ms: float) -> None:
    value = Baselines(
        hardware=H200, entries={"t": an_entry(a_run(ms, exact={"syncs": 0}))}
    )

    with pytest.raises(BaselineError) as refused:
        dumps(value)

    assert str(refused.value) == (
        "the new baseline is not stored, tests.t.runs[0].times.step_ms.q10: "
        f"expected a time above 0, found {ms} [GP505]"
    )


RETIRED = (
    "alloc_retries compile_cold_s compile_warm_s device_allocs device_syncs "
    "driver_bytes energy_mj enqueue_ms fragmented_bytes gpu_span_ms kernels "
    "live_peak_bytes mfu_pct non_torch_bytes period_copies period_syncs predicted_alloc_retries "
    "predicted_peak_requested_bytes process_ms slope"
)
"""Metrics that earlier versions stored."""


@pytest.mark.parametrize("name", RETIRED.split())
def test_a_stored_number_of_a_retired_metric_is_kept_and_not_checked(name: str) -> None:
    assert name not in METRICS
    entry = an_entry(
        a_run(1.0, exact={"syncs": 0, name: 7}),
        anchor={"syncs": 0.0, name: 7.0},
    )
    text = dumps(Baselines(hardware=H200, entries={"t": entry}))

    stored = loads(text, "x.json")

    assert dumps(stored) == text
    fresh = [a_measurement(1.0, exact={"syncs": 0})] * 2
    found = judge("t", fresh, ResolvedBudget(), Tolerance(), stored.entries["t"])
    outcomes = {verdict.metric: verdict.outcome for verdict in found.verdicts}
    assert outcomes["syncs"] is Outcome.PASS
    assert name not in outcomes
