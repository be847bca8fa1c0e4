"""The claims of the examples: each row is whole, each example is there, no table drifts."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Final

import pytest


EXAMPLES: Final = Path(__file__).parents[1] / "examples"
sys.path.append(str(EXAMPLES))

from claims import Claim, ClaimsError, Gate, Tier, Unit, main, read_claims
from claims_table import ClaimsTable, Row, row_of, written


COUNTS: Final = {"D": 26, "Y": 11, "C": 20, "M": 11, "P": 10, "G": 15, "T": 8}
"""Claims by the letter of their id."""

ROWS: Final = read_claims().rows


def test_every_claim_of_the_notes_has_one_row() -> None:
    ids = [row.id for row in ROWS]

    expected = {
        f"{letter}{n}" for letter, most in COUNTS.items() for n in range(1, most + 1)
    }
    assert len(ids) == sum(COUNTS.values()) == 101
    assert set(ids) == expected


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_a_row_is_one_sentence_and_says_why_where_nothing_shows_it(row: Claim) -> None:
    for text in (row.text, *filter(None, (row.today, row.not_shown))):
        assert text[-1] in ".)"
        assert "|" not in text
    assert bool(row.example) + bool(row.not_shown) == 1


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.example], ids=lambda row: row.id
)
def test_an_example_stands_where_its_row_says_and_is_marked_with_it(row: Claim) -> None:
    name, _, test = (row.example or "").partition("::")
    text = (EXAMPLES / name).read_text(encoding="utf-8")

    tests = {
        node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)
    }
    assert test in tests
    assert f'pytest.mark.claim("{row.id}"' in text


def test_every_example_of_a_row_is_collected_and_every_marked_claim_has_a_row() -> None:
    pytest.importorskip("torch")

    result = subprocess.run(
        [sys.executable, "-m", "pytest", "examples", "--collect-only", "-q"],
        cwd=EXAMPLES.parent,
        capture_output=True,
        text=True,
        check=False,
    )

    assert result.returncode == 0, result.stdout
    collected = {line.partition("[")[0] for line in result.stdout.splitlines()}
    assert {f"examples/{row.example}" for row in ROWS if row.example} <= collected


LATER: Final = ("importorskip", "mark.slow", "needs_compiler")
"""By which an example may have been left out of a run that did not ask for it."""


def recorded(device: Tier) -> dict[str, set[str]]:
    """Return by claim where the recorded run on *device* showed it."""
    path = EXAMPLES.parent / f"benchmarks/evidence/examples-{device.value}.txt"
    shown: dict[str, set[str]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        found = re.match(r"([A-Z]\d+) .* (\w+) +(\S+)$", line)
        if found and found[2] in {"passed", "inconclusive"}:
            shown.setdefault(found[1], set()).add(found[3])
    return shown


@pytest.mark.parametrize("device", [Tier.SIMULATED, Tier.CPU])
def test_a_claim_is_shown_where_its_row_says_and_nowhere_else(device: Tier) -> None:
    """After a change of examples, record what ``--gpuperf-claims`` says anew."""
    shown = recorded(device)
    for row in (row for row in ROWS if row.example):
        text = (EXAMPLES / row.example.partition("::")[0]).read_text(encoding="utf-8")
        if device in row.tiers and not any(word in text for word in LATER):
            assert row.id in shown
        if device.value in shown.get(row.id, ()):
            assert device in row.tiers, row.id


def test_what_ran_over_stub_cuda_is_recorded_without_a_failure() -> None:
    """``check.py --examples`` leaves the file to record in its results."""
    path = EXAMPLES.parent / "benchmarks/evidence/examples-stub-cuda.txt"
    rows = [
        re.fullmatch(r"([A-Z]\d+)\b.* (\w+) +(\S+)", line)
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    found = [row.groups() for row in rows if row]

    known = {row.id for row in ROWS}
    assert {claim for claim, _, _ in found} <= known
    assert "failed" not in {verdict for _, verdict, _ in found}
    assert ("Y1", "passed", "cuda") in found


def test_the_readme_of_the_examples_is_what_the_rows_say(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status = main([])

    assert capsys.readouterr().err == ""
    assert status == 0


def claim(name: str, **fields: object) -> Claim:
    unit = Unit.SECONDS if "before" in fields else None
    return Claim(
        id=name,
        notes=("note",),
        text="It is so.",
        gates=(Gate.SYNCS,),
        tiers=(Tier.CPU,),
        unit=unit,
        **fields,  # type: ignore[arg-type]
    )


GOOD: Final = """\
[seed]
note = "A note"
[[claim]]
id = "A1"
seed = ["note"]
claim = "It is so."
gate = ["syncs"]
tiers = ["cpu"]
example = "a/test_b.py::test_c"
"""


FIELDS: Final = (
    "expected the fields after, before, claim, example, gate, id, not_shown, seed, tiers, "
    "today, unit"
)
UNITS: Final = "expected one of s, ms, MiB, GiB, GB, M, %, x, syncs, loss"
WRONG: Final = {
    GOOD.replace(
        "=", ":"
    ): "the file is no TOML (Expected '=' after a key in a key/value "
    "pair (at line 2, column 6)); correct it there",
    GOOD.replace('claim = "It is so."\n', ""): f"claim A1 has no claim: {FIELDS}",
    f"{GOOD}colour = 3\n": f"claim A1 has colour: {FIELDS}",
    f'{GOOD}not_shown = "It is gone."\n': "claim A1 has example and not_shown: expected "
    "one of example, not_shown",
    GOOD.replace(
        "a/test_b.py::test_c", ""
    ): "claim A1 has none: expected one of example, not_shown",
    f"{GOOD}before = 3\n": "claim A1 has numbers or a unit: expected both, or neither",
    GOOD.replace(
        '["note"]', '["letter"]'
    ): "claim A1 names the seed 'letter': expected one of note",
    GOOD.replace(
        '["cpu"]', '["abacus"]'
    ): "claim A1 has the tier 'abacus': expected one of cpu, simulated, cuda",
    f'{GOOD}after = 3\nunit = "ells"\n': f"claim A1 has the unit 'ells': {UNITS}",
    GOOD + GOOD[GOOD.index("[[claim]]") :]: "2 claims have the id A1: expected one",
}


@pytest.mark.parametrize(("text", "message"), WRONG.items(), ids=range(len(WRONG)))
def test_a_row_that_is_wrong_is_named_with_what_was_expected(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "claims.toml"
    path.write_text(text)

    with pytest.raises(ClaimsError) as caught:
        read_claims(path)

    assert str(caught.value) == f"claims.toml: {message}"


def report(
    outcome: str, *properties: tuple[str, str], measured: bool = True
) -> pytest.TestReport:
    return pytest.TestReport(
        nodeid="test_it.py::test_a",
        location=("test_it.py", 1, "test_a"),
        keywords={"gpuperf": 1} if measured else {},
        outcome=outcome,  # type: ignore[arg-type]
        longrepr=None,
        when="call",
        user_properties=list(properties),
    )


CLAIM: Final = "A1 2 -> 1 s"
SIMULATED: Final = (
    '[{"verdicts": [{"metric": "syncs", "outcome": "pass", "now": 0}], "sides": '
    '{"before": {"syncs": 1, "flops": 9}, '
    '"after": {"syncs": 0, "flops": 9}}}]'
)
CPU: Final = (
    '[{"verdicts": [{"metric": "syncs", "outcome": "inconclusive", "now": 2},'
    ' {"metric": "graph_breaks", "outcome": "pass", "now": 9}], "sides": null}]'
)


FOUND: Final = {
    "simulated": (
        report("passed", ("gpuperf", SIMULATED)),
        Row(
            claim=CLAIM, predicted="1 -> 0 syncs", verdict="passed", device="simulated"
        ),
    ),
    "cpu": (
        report("passed", ("gpuperf", CPU)),
        Row(claim=CLAIM, measured="2 syncs", verdict="inconclusive", device="cpu"),
    ),
    "counted by the test": (
        report("failed", ("shown", "3 -> 2 files"), measured=False),
        Row(claim=CLAIM, measured="3 -> 2 files", verdict="failed", device="host"),
    ),
    "foretold": (
        report("passed", ("predicted", "3 -> 2 M")),
        Row(claim=CLAIM, predicted="3 -> 2 M", verdict="passed"),
    ),
    "skipped": (report("skipped"), Row(claim=CLAIM, verdict="skipped")),
    "not checked": (
        report("skipped", ("gpuperf", '[{"verdicts": []}]')),
        Row(claim=CLAIM, verdict="skipped"),
    ),
    "failed": (report("failed"), Row(claim=CLAIM, verdict="failed")),
}


@pytest.mark.parametrize(("found", "row"), FOUND.values(), ids=FOUND)
def test_a_line_of_the_table_says_what_one_test_found(
    found: pytest.TestReport, row: Row
) -> None:
    shown = claim("A1", example="a/test_b.py::test_c", before=2.0, after=1.0)

    assert row_of(shown, found) == row


FASTER: Final = (
    '[{"verdicts": [{"metric": "speedup", "outcome": "pass", "now": 1.8567}],'
    ' "sides": {"before": {"retained_graphs": 9}, "after": {"retained_graphs": 9}}}]'
)


@pytest.mark.parametrize(
    ("text", "measured"), [(FASTER, "1.86 x as fast"), (CPU, "")], ids=["yes", "no"]
)
def test_a_claim_about_time_shows_the_speedup_that_was_judged(
    text: str, measured: str
) -> None:
    shown = replace(claim("A1", example="a/test_b.py::test_c"), gates=(Gate.TIME,))

    assert row_of(shown, report("passed", ("gpuperf", text))).measured == measured


def test_a_mark_may_name_the_numbers_and_the_gate_of_a_rung(
    monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    monkeypatch.setattr(pytestconfig.option, "gpuperf", True, raising=False)
    table = ClaimsTable(pytestconfig)
    mark = json.dumps({"id": "C2", "before": 4, "after": 2, "gate": "time"})
    whole = json.dumps({"id": "C2"})

    for text in (mark, whole):
        found = report("passed", ("claim", text), ("gpuperf", FASTER))
        table.pytest_runtest_logreport(found)

    printed: list[str] = []
    table.pytest_terminal_summary(
        SimpleNamespace(section=str, write_line=printed.append)
    )
    assert printed[1:] == [
        "C2 4 -> 2 s           1.86 x as fast     -                  passed       cpu",
        "C2 7.68 -> 0.48 s     1.86 x as fast     -                  passed       cpu",
    ]


@pytest.mark.parametrize(
    ("metric", "before", "after", "text"),
    [
        ("syncs", 1, 0, "1 -> 0 syncs"),
        ("launches", 700, 2, "700 -> 2 launches"),
        ("busy_pct", 61.04, 96.1, "61.04 -> 96.1 %"),
        ("h2d_bytes", 9633792, 2408448, "9.188 -> 2.297 MiB"),
        ("peak_allocated_bytes", 2**20, 2**20, "1 MiB"),
        ("loader_wait_pct", 52.113, 9.8, "52.11 -> 9.8 %"),
        ("peak_allocated_bytes", 34764 * 2**20, 9999 * 2**20, "34764 -> 9999 MiB"),
    ],
)
def test_numbers_have_their_unit_and_four_digits(
    metric: str, before: int, after: int, text: str
) -> None:
    assert written(metric, before, after) == text
