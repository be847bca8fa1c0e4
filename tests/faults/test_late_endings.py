"""A late skip, exit or interrupt hides no verdict, and ends what it ends in plain pytest."""

from __future__ import annotations

from typing import Final

import pytest
from builders import a_measurement, a_result, a_test, a_verdict
from whole_run import Folder, WholeRun, names

from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.run import Ending, StepCall, Stop, TestResult
from pytest_gpuperf.model.verdict import Outcome, TestVerdict
from pytest_gpuperf.runner.screening import Case, confirm, screen


FIXTURES: Final = """
import pathlib

def nth_run(name):
    file = pathlib.Path(__file__).with_name(name + ".runs")
    number = len(file.read_text()) if file.exists() else 0
    file.write_text("x" * (number + 1))
    return number

@pytest.fixture
def skips():
    yield
    pytest.skip("the data set is gone")

@pytest.fixture
def raises_skiptest():
    yield
    raise unittest.SkipTest("the data set is gone")

@pytest.fixture(scope="module")
def module_skips():
    yield
    pytest.skip("the data set is gone")

@pytest.fixture
def exits_python():
    yield
    if nth_run("exit"): raise SystemExit(0)

@pytest.fixture
def breaks():
    yield
    if nth_run("break"): 1 / 0

@pytest.fixture
def finalized(request):
    request.addfinalizer(lambda: pytest.skip("the data set is gone"))
"""
LATE: Final = """
def test_skips_in_its_teardown(gpuperf, skips): gpuperf(int)
def test_raises_skiptest_in_its_teardown(gpuperf, raises_skiptest): gpuperf(int)
def test_skips_in_a_teardown_of_the_module(gpuperf, module_skips): gpuperf(int)
def test_skips_in_a_finalizer(gpuperf, finalized): gpuperf(int)
def test_skips_behind_the_call(gpuperf):
    gpuperf(int)
    pytest.skip("the data set is gone")
class TestUnit(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def take(self, gpuperf): self.gpuperf = gpuperf
    def tearDown(self): self.skipTest("the data set is gone")
    def test_skips_in_the_teardown_of_a_test_case(self): self.gpuperf(int)
def test_skips_in_its_third_run(gpuperf):
    gpuperf(int)
    if nth_run("third") == 2: pytest.skip("the data set is gone")
def test_skips_before_the_step_in_its_third_run(gpuperf):
    if nth_run("before") == 2: pytest.skip("the data set is gone")
    gpuperf(int)
def test_skips_with_a_name(gpuperf, skips): gpuperf(int, name="n")
"""
ONCE: Final = """
def test_is_skipped_in_each_run_but_the_first(gpuperf):
    if nth_run("once"): pytest.skip("the data set is gone")
    gpuperf(int)
"""
BROKEN: Final = """
@gpuperf.budget(mem_mb=60)
def test_leaves_python_in_its_teardown(gpuperf, exits_python): gpuperf(int)
@gpuperf.budget(mem_mb=60)
def test_breaks_in_its_teardown(gpuperf, breaks): gpuperf(int)
@gpuperf.budget(mem_mb=60)
def test_fails_behind_the_call(gpuperf):
    gpuperf(int)
    assert not nth_run("behind"), "its own words"
class TestFails(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def take(self, gpuperf): self.gpuperf = gpuperf
    @gpuperf.budget(mem_mb=60)
    def test_fails_by_unittest(self):
        self.gpuperf(int)
        self.assertEqual(nth_run("unit"), 0)
"""
EXPECTED: Final = """
@pytest.mark.xfail
def test_is_expected_and_skips(gpuperf, skips): gpuperf(int)
def test_expects_it_behind_the_call(gpuperf):
    gpuperf(int)
    pytest.xfail("known")
"""


def in_its_third_run(name: str) -> bool:
    return "third_run" in name


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """Each test has a baseline of 10 ms."""
    made = Folder(tmp_path_factory.mktemp("late"))
    calls = {*names(LATE), *names(ONCE), *names(EXPECTED)}
    calls -= {"test_skips_with_a_name", "test_skips_in_the_teardown_of_a_test_case"}
    named = "TestUnit::test_skips_in_the_teardown_of_a_test_case"
    made.store({*calls, "test_skips_with_a_name#n", named})
    made.file(FIXTURES + LATE + ONCE + BROKEN + EXPECTED)
    return made


@pytest.fixture(scope="module")
def slow(folder: Folder) -> WholeRun:
    """Each step takes forty times as long as its baseline, or so long that it takes five runs."""
    third = {name: {"step_ms": 13.0} for name in names(LATE) if in_its_third_run(name)}
    folder.script({"*": {"step_ms": 400.0}, **third})
    run = folder.run()
    for file in folder.path.glob("*.runs"):
        file.unlink()
    return run


@pytest.fixture(scope="module")
def same(folder: Folder, slow: WholeRun) -> WholeRun:
    """Nothing has changed but how the tests end."""
    folder.script({"*": {"step_ms": 10.0}})
    return folder.run()


@pytest.mark.parametrize("name", names(LATE))
def test_a_late_skip_hides_no_regression(slow: WholeRun, name: str) -> None:
    case = slow.cases[name]

    assert case.outcome == "failure"
    now = "13.00" if in_its_third_run(name) else "400.0"
    assert f"SLOWER: {now} ms per step, was 10.00 ms" in case.text
    assert "hides no verdict: the data set is gone" in case.text


@pytest.mark.parametrize("name", names(LATE))
def test_where_nothing_is_wrong_a_skip_is_a_skip(same: WholeRun, name: str) -> None:
    if in_its_third_run(name):  # no third one was needed
        assert same.cases[name].outcome == "passed"
        return
    assert same.cases[name].outcome == "skipped"
    assert "the data set is gone" in same.cases[name].text


def test_runs_that_were_skipped_are_counted(slow: WholeRun) -> None:
    assert (
        "the test was skipped in 1 of 6 runs"
        in slow.cases["test_skips_before_the_step_in_its_third_run"].text
    )


@pytest.mark.parametrize("strict", [False, True])
def test_one_measured_run_among_skipped_ones_is_no_silent_skip(
    folder: Folder, slow: WholeRun, *, strict: bool
) -> None:
    folder.script({"*": {"step_ms": 11.0}})
    options = ("--gpuperf-strict",) if strict else ()
    for file in folder.path.glob("*.runs"):
        file.unlink()

    run = folder.run("-k", "but_the_first", *options)

    case = run.cases["test_is_skipped_in_each_run_but_the_first"]
    assert case.outcome == ("failure" if strict else "passed")
    assert "INCONCLUSIVE step time" in run.text
    assert "runs, which hides no verdict: the data set is gone" in run.text


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("test_leaves_python_in_its_teardown", "SystemExit"),
        ("test_breaks_in_its_teardown", "ZeroDivisionError"),
        ("test_fails_behind_the_call", "its own words"),
        ("test_fails_by_unittest", "1 != 0"),
    ],
)
def test_what_fails_in_its_second_run_says_both_and_its_own_failure_first(
    slow: WholeRun, name: str, words: str
) -> None:
    case = slow.cases[name]

    assert case.outcome == "failure"
    assert case.text.index(words) < case.text.index("OVER LIMIT mem_mb")


@pytest.mark.parametrize("name", names(EXPECTED))
def test_what_its_author_expects_is_forgiven(slow: WholeRun, name: str) -> None:
    assert slow.cases[name].outcome == "skipped"  # JUnit's word for an xfail


# What ends pytest.

ENDS: Final = {
    "pytest.exit": ("pytest.exit('enough')", "pytest.exit('enough')", 2),
    "pytest.exit with a status": (
        "pytest.exit('enough', returncode=7)",
        "pytest.exit('enough')",
        7,
    ),
    "pytest.exit with 0": (
        "pytest.exit('enough', returncode=0)",
        "pytest.exit('enough')",
        0,
    ),
    "KeyboardInterrupt": ("raise KeyboardInterrupt", "KeyboardInterrupt", 2),
}
TWO: Final = """
@pytest.fixture
def ends():
    yield
    {end}

@gpuperf.budget(ms={ms})
def test_ends(gpuperf, ends): gpuperf(int)

def test_ordinary(): pass
"""


@pytest.fixture
def ending(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return Folder(tmp_path_factory.mktemp("ending"))


@pytest.mark.parametrize("end", ENDS)
def test_a_teardown_that_ends_pytest_hides_no_failed_verdict(
    ending: Folder, end: str
) -> None:
    source, words, status = ENDS[end]
    ending.file(TWO.format(end=source, ms=5))

    run = ending.run()

    assert run.status == (status or pytest.ExitCode.TESTS_FAILED)
    assert run.cases["test_ends"].outcome == "failure"
    assert "OVER LIMIT ms" in run.cases["test_ends"].text
    assert f"test_it.py::test_ends: {words}" in run.text
    assert "test_ordinary" not in run.cases


def test_a_teardown_that_ends_pytest_does_so_behind_the_verdict(ending: Folder) -> None:
    source, words, status = ENDS["pytest.exit with 0"]
    ending.file(TWO.format(end=source, ms=50))

    run = ending.run()

    assert run.status == status
    assert run.cases["test_ends"].outcome == "passed"
    assert "test_ordinary" not in run.cases
    assert f"test_it.py::test_ends: {words}" in run.text


@pytest.mark.parametrize(
    ("end", "place"),
    [
        *(
            ("pytest.exit with 0", at)
            for at in ("before", "in", "behind", "setting up")
        ),
        ("KeyboardInterrupt", "in"),
    ],
)
def test_what_ends_pytest_before_the_verdict_fails_the_test(
    ending: Folder, end: str, place: str
) -> None:
    source, words, status = ENDS[end]
    body = {
        "before": f"{source}; gpuperf(int)",
        "in": f"gpuperf(lambda: exec({source!r}, {{'pytest': pytest}}))",
        "behind": f"gpuperf(int); {source}",
        "setting up": "gpuperf(int)",
    }[place]
    fixture = source if place == "setting up" else "pass"
    ending.file(
        f"@pytest.fixture\ndef first():\n    {fixture}\n\n"
        f"@gpuperf.budget(ms=50)\ndef test_ends(first, gpuperf): {body}\n"
    )

    run = ending.run()

    assert run.status == (status or pytest.ExitCode.TESTS_FAILED)
    assert run.cases["test_ends"].outcome == "failure"
    assert f"ended pytest before it had ended itself: {words}" in run.text
    assert "never called" not in run.text


def test_an_exit_in_a_later_run_hides_no_failed_verdict(ending: Folder) -> None:
    ending.file(
        "import pathlib\n"
        "@gpuperf.budget(mem_mb=60)\n"
        "def test_ends(gpuperf):\n"
        "    if pathlib.Path('ran').exists(): pytest.exit('enough', returncode=0)\n"
        "    pathlib.Path('ran').touch()\n"
        "    gpuperf(int)\n"
    )

    run = ending.run()

    assert run.status == pytest.ExitCode.TESTS_FAILED
    assert run.cases["test_ends"].outcome == "failure"


# The order of work, in pure code.


class Runs:
    """Plays how each run of a test ends, and whether it measured before."""

    def __init__(self, *ends: tuple[Ending, bool], stop: Stop | None = None) -> None:
        self._ends = ends
        self._stop = stop
        self.made = 0

    def __call__(self, groups: object, number: int) -> list[TestResult]:
        ending, measured = self._ends[min(number, len(self._ends) - 1)]
        self.made += 1
        call = StepCall(
            measurement=a_measurement(None, test="a", on=DeviceKind.SCRIPTED)
        )
        calls = (call,) if measured else ()
        return [
            a_result(test="a", ending=ending, calls=calls, seconds=1.0, stop=self._stop)
        ]


def judged_after(runs: int) -> TestVerdict:
    verdict = a_verdict("step_ms", Outcome.PASS, None, None, settled=runs >= 3)
    return a_test(verdict, test="a")


def worked(runs: Runs) -> Case:
    cases = screen([("a",)], runs)
    confirm([("a",)], runs, cases, lambda c: judged_after(len(c)), seconds=60)
    return cases["a"]


P, S, F, D, X = (
    *(Ending.PASSED, Ending.SKIPPED, Ending.FAILED),
    *(Ending.DIED, Ending.XFAILED),
)


@pytest.mark.parametrize(
    ("ends", "runs", "measured"),
    [
        ([(P, True)], 3, 3),
        ([(S, True)], 3, 3),
        ([(S, False)], 1, 0),
        ([(P, True), (S, False), (P, True)], 4, 3),
        ([(P, True), (S, False)], 8, 1),
        ([(P, True), (S, True), (P, True)], 3, 3),
        ([(P, True), (F, True)], 2, 2),
        ([(P, True), (D, False)], 2, 1),
        ([(F, True)], 1, 1),
        ([(X, True)], 1, 0),
        ([(P, True), (X, True), (P, True)], 4, 3),
    ],
)
def test_runs_that_measured_are_made_up_for_and_failed_ones_are_not(
    ends: list[tuple[Ending, bool]], runs: int, measured: int
) -> None:
    case = worked(Runs(*ends))

    assert len(case.results) == runs
    assert sum(map(len, case.measured.values())) == measured


def test_a_skipped_test_is_no_baseline(folder: Folder) -> None:
    case = worked(Runs((P, True), (S, True), (P, True)))

    assert case.calls == {}


def test_the_first_stop_of_a_test_is_its_stop() -> None:
    stop = Stop(reason="pytest.exit('enough')", status=3)

    assert worked(Runs((P, True), stop=stop)).stop == stop
    assert worked(Runs((P, True))).stop is None
