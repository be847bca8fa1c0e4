"""What no verdict saw is said: unmeasured calls, stored tests, reports made green."""

from __future__ import annotations

from typing import Final

import pytest
from whole_run import Folder, WholeRun, names

from pytest_gpuperf.baselines.refresh import unmeasured


MODES: Final = {
    "in children": (),
    "with workers": ("-p", "xdist.plugin", "-n2"),
}

UNSEEN: Final = """
def helper(request):
    return request.getfixturevalue("gpuperf")

@pytest.fixture
def dynamic(request):
    return request.getfixturevalue("gpuperf")

@pytest.fixture
def late(request):
    gpuperf = request.getfixturevalue("gpuperf")
    yield
    gpuperf(int)

def test_in_the_body(request):
    request.getfixturevalue("gpuperf")(int)

def test_through_a_helper(request):
    helper(request)(int)

def test_through_a_fixture(dynamic):
    dynamic(int)

def test_within_a_teardown(late):
    pass

def test_with_a_budget(request):
    helper(request)(int, mem_mb=1)

def test_a_comparison(request):
    helper(request).compare(int, int, speedup=1.5)

def test_a_loader(request):
    helper(request).loader([1, 2], print)

def test_a_mark_that_comes_too_late(request):
    request.node.add_marker(pytest.mark.gpuperf)
    helper(request)(int)

class TestClass:
    def test_in_a_class(self, request):
        helper(request)(int)

class TestUnit(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def take(self, request):
        self.gpuperf = request.getfixturevalue("gpuperf")

    def test_in_a_test_case(self):
        self.gpuperf(int)
"""
SWALLOWED: Final = """
def test_swallows(request):
    try:
        request.getfixturevalue("gpuperf")(int)
    except BaseException:
        pass

def test_expects_it(request):
    with pytest.raises(BaseException):
        request.getfixturevalue("gpuperf")(int)

def test_skips_for_it(request):
    try:
        request.getfixturevalue("gpuperf")(int)
    except BaseException:
        pytest.skip("no gpuperf here")
"""
SEEN: Final = """
@pytest.fixture
def indirect(gpuperf):
    return gpuperf

def test_seen_in_the_signature(gpuperf):
    gpuperf(int)

def test_seen_through_a_fixture(indirect):
    indirect(int)

@pytest.mark.usefixtures("gpuperf")
def test_seen_by_usefixtures(request):
    request.getfixturevalue("gpuperf")(int)

@pytest.mark.gpuperf
def test_seen_by_the_mark(request):
    request.getfixturevalue("gpuperf")(int)

@gpuperf.budget(ms=12)
def test_seen_by_a_budget(request):
    request.getfixturevalue("gpuperf")(int)

@pytest.mark.usefixtures("gpuperf")
class TestSeen:
    def test_seen_by_its_class(self, request):
        request.getfixturevalue("gpuperf")(int)

class TestAuto(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def take(self, gpuperf):
        self.gpuperf = gpuperf

    def test_seen_by_an_autouse_fixture(self):
        self.gpuperf(int)

    def test_that_never_calls_it(self):
        assert self.gpuperf

    def test_that_fails_by_itself(self):
        assert self.gpuperf is None

    def test_that_skips_by_itself(self):
        self.skipTest("not here")

class TestPlainAuto:
    @pytest.fixture(autouse=True)
    def take(self, gpuperf):
        self.gpuperf = gpuperf

    def test_of_a_plain_class_that_never_calls_it(self):
        assert self.gpuperf

    @gpuperf.budget(ms=12)
    def test_with_a_budget_that_never_calls_it(self):
        pass

    def test_that_asks_and_never_calls_it(self, gpuperf):
        pass

    def test_that_asks_through_a_fixture_and_never_calls_it(self, indirect):
        pass

    @pytest.mark.gpuperf
    def test_that_is_marked_and_never_calls_it(self):
        pass
"""


@pytest.fixture(scope="module", params=MODES)
def mode(request: pytest.FixtureRequest) -> tuple[str, ...]:
    if request.param == "with workers":
        pytest.importorskip("xdist")
    return MODES[request.param]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    made = Folder(tmp_path_factory.mktemp("unseen"))
    made.file(UNSEEN + SEEN)
    made.file(SWALLOWED, "test_swallowed.py")
    return made


@pytest.fixture(scope="module")
def enabled(folder: Folder, mode: tuple[str, ...]) -> WholeRun:
    return folder.run("test_it.py", *mode)


@pytest.mark.parametrize("name", names(UNSEEN))
def test_a_call_that_nothing_measures_fails_its_test(
    enabled: WholeRun, name: str
) -> None:
    case = enabled.cases[name]

    assert case.outcome in {"failure", "error"}
    assert "nothing measured this test: it was collected without" in case.text
    assert "take gpuperf as an argument of the test, or mark the test" in case.text


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        *((name, "passed") for name in names(SEEN) if "_seen_" in name),
        ("test_that_never_calls_it", "passed"),
        ("test_that_fails_by_itself", "failure"),
        ("test_that_skips_by_itself", "skipped"),
        ("test_of_a_plain_class_that_never_calls_it", "passed"),
    ],
)
def test_what_was_collected_with_the_fixture_reports_itself(
    enabled: WholeRun, name: str, outcome: str
) -> None:
    case = enabled.cases[name]

    assert case.outcome == outcome
    assert "budget never judged" not in case.text


@pytest.mark.parametrize(
    "name",
    [
        "test_with_a_budget_that_never_calls_it",
        "test_that_asks_and_never_calls_it",
        "test_that_asks_through_a_fixture_and_never_calls_it",
        "test_that_is_marked_and_never_calls_it",
    ],
)
def test_who_asks_and_never_calls_is_never_judged(enabled: WholeRun, name: str) -> None:
    assert enabled.cases[name].outcome == "failure"
    assert "budget never judged" in enabled.cases[name].text


@pytest.fixture(scope="module")
def swallowed(folder: Folder, mode: tuple[str, ...]) -> WholeRun:
    return folder.run("test_swallowed.py", *mode)


@pytest.mark.parametrize("name", names(SWALLOWED))
def test_a_refusal_that_the_test_swallows_fails_it(
    swallowed: WholeRun, name: str
) -> None:
    assert swallowed.cases[name].outcome == "failure"
    assert "nothing measured this test" in swallowed.cases[name].text
    assert "nothing was measured" in swallowed.last


# Tests that own a baseline, and do not measure any more.

REFACTORED: Final = """
@pytest.fixture
def trainer(): return None

def test_argument_gone(): int()
def test_fixture_gone(trainer): int()
@pytest.mark.parametrize("x", ["a#b"])
def test_parameter(x): int()
def test_two_calls(gpuperf):
    gpuperf(int)
def test_numbered(gpuperf):
    gpuperf(int)
class TestAuto:
    @pytest.fixture(autouse=True)
    def take(self, gpuperf): self.gpuperf = gpuperf
    def test_autouse(self): int()
@pytest.mark.skip(reason="later")
def test_skipped(): int()
def test_skips_itself(): pytest.skip("later")
@pytest.mark.xfail
def test_expected(): 1 / 0
def test_fails(): {fails}

@pytest.fixture
def breaks():
    yield
    {fails}

def test_fails_in_its_teardown(breaks): int()
@pytest.mark.skip(reason="later")
def test_skipped_and_measured(gpuperf): gpuperf(int)
def test_kept(gpuperf): gpuperf(int)
"""
NAMED: Final = (
    "test_argument_gone",
    "test_fixture_gone",
    "test_parameter[a#b]#n",
    "test_two_calls#eval",
    "test_numbered#2",
    "TestAuto::test_autouse",
)
NOT_NAMED: Final = (
    "test_two_calls",
    "test_numbered",
    "test_skipped",
    "test_skips_itself",
    "test_expected",
    "test_fails",
    "test_fails_in_its_teardown",
    "test_skipped_and_measured",
    "test_kept",
)
LIST: Final = " STORED AND NOT MEASURED: "


def listed(run: WholeRun) -> set[str]:
    _, found, calls = run.last.partition(LIST)
    return (
        {call.rpartition(".py::")[2] for call in calls.split(", ")} if found else set()
    )


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    made = Folder(tmp_path_factory.mktemp("stored"))
    made.store({*NAMED, *NOT_NAMED, "test_gone"})
    made.file(REFACTORED.format(fails="assert 0"))
    return made


@pytest.fixture(scope="module")
def refactored(stored: Folder, mode: tuple[str, ...]) -> WholeRun:
    return stored.run(*mode)


@pytest.mark.parametrize("call", NAMED)
def test_a_stored_call_that_passed_unmeasured_is_named(
    refactored: WholeRun, call: str
) -> None:
    assert call in listed(refactored)
    assert f"test_it.py::{call}" in refactored.text


@pytest.mark.parametrize("call", NOT_NAMED)
def test_what_was_measured_skipped_or_failed_is_not_named(
    refactored: WholeRun, call: str
) -> None:
    assert call not in listed(refactored)


def test_a_test_that_is_there_is_not_said_to_be_gone(refactored: WholeRun) -> None:
    gone = (
        "has no test any more, --gpuperf-update=all removes it: test_it.py::test_gone"
    )

    assert "any more" not in refactored.text.replace(gone, "")


@pytest.fixture
def lonely(stored: Folder) -> Folder:
    """All that is left fails nothing by itself."""
    stored.file(REFACTORED.format(fails="pass"))
    return stored


@pytest.mark.parametrize(
    ("arguments", "ci", "status"),
    [
        ((), "", 0),
        (("--gpuperf-strict",), "", 1),
        ((), "true", 1),
        (("-qq",), "true", 1),
        (("test_it.py::test_argument_gone",), "true", 1),
        (("-k", "kept"), "true", 0),
        (("-k", "skipped or skips or expected"), "true", 0),
        (("-m", "not gpuperf", "-k", "skips_itself"), "true", 0),
        (("--deselect=test_it.py::test_argument_gone", "-k", "argument"), "true", 5),
        (("test_it.py::test_kept",), "true", 0),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else str(value),
)
def test_it_warns_here_and_fails_in_ci_where_it_was_selected(
    lonely: Folder, arguments: tuple[str, ...], ci: str, status: int
) -> None:
    run = lonely.run(*arguments, ci=ci)

    assert run.status == status
    assert ("STORED AND NOT MEASURED" in run.last) == (status == 1 or not ci)
    assert ("which fails in CI" in run.text) == (status == 0 and not ci)


# A run that measured nothing.


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    made = Folder(tmp_path_factory.mktemp("bare"))
    made.file("def test_a(): pass\ndef test_b(): pass\n")
    made.file("def test_c(gpuperf): gpuperf(int)\n", "test_taking.py")
    return made


NONE_TAKES: Final = "none of the 2 tests collected takes the gpuperf fixture"


@pytest.mark.parametrize(
    ("arguments", "status", "why"),
    [
        (("test_it.py",), 0, NONE_TAKES),
        (("test_it.py", "-qq", "--gpuperf-strict"), 0, NONE_TAKES),
        (("test_it.py", "-p", "xdist.plugin", "-n2"), 0, NONE_TAKES),
        (
            ("-k", "test_a"),
            0,
            "the 1 test that takes the gpuperf fixture was deselected",
        ),
        (
            ("-k", "nothing"),
            5,
            "the 1 test that takes the gpuperf fixture was deselected",
        ),
        (
            ("--ignore=test_it.py", "--ignore=test_taking.py"),
            5,
            "no test was collected",
        ),
        (
            ("test_it.py::test_a",),
            0,
            "the 1 test collected does not take the gpuperf fixture",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_a_run_that_measured_nothing_says_why(
    bare: Folder, arguments: tuple[str, ...], status: int, why: str
) -> None:
    if "xdist.plugin" in arguments:
        pytest.importorskip("xdist")

    run = bare.run(*arguments, ci="true")  # which is no reason to fail here

    assert run.status == status
    assert run.last == f"gpuperf: nothing was measured: {why}"


# Reports that another hook made green.

RED: Final = """
@gpuperf.budget(ms=5)
def test_over(gpuperf): gpuperf(int)
"""
GREEN_BY: Final = {
    "a wrapper of makereport": (
        "@pytest.hookimpl(wrapper=True)\n"
        "def pytest_runtest_makereport():\n"
        "    report = yield\n"
        "    if MAIN: report.outcome = 'passed'\n"
        "    return report\n"
    ),
    "a late logreport": (
        "def pytest_runtest_logreport(report):\n"
        "    if MAIN: report.outcome = 'passed'\n"
    ),
    "a call whose failure is swallowed": (
        "@pytest.hookimpl(wrapper=True)\n"
        "def pytest_runtest_call():\n"
        "    try:\n"
        "        yield\n"
        "    except BaseException:\n"
        "        if not MAIN: raise\n"
    ),
}
STATUS_BY: Final = {
    "a wrapper of sessionfinish": (
        "@pytest.hookimpl(wrapper=True, tryfirst=True)\n"
        "def pytest_sessionfinish(session):\n"
        "    ended = yield\n"
        "    if MAIN: session.exitstatus = 0\n"
        "    return ended\n"
    ),
    "pytest.exit with 0 behind the test": (
        "def pytest_runtest_logfinish():\n"
        "    if MAIN: pytest.exit('all fine', returncode=0)\n"
    ),
    "no failure counted": (
        "@pytest.hookimpl(trylast=True)\n"
        "def pytest_runtest_logreport(report):\n"
        "    pass\n"
        "@pytest.hookimpl(wrapper=True)\n"
        "def pytest_runtestloop(session):\n"
        "    try:\n"
        "        return (yield)\n"
        "    except BaseException:\n"
        "        return True\n"
        "    finally:\n"
        "        session.testsfailed = 0\n"
    ),
}
MAIN: Final = (
    "import sys\nimport pytest\n"
    "MAIN = not any('pytest_gpuperf.runner.fork_server_process' in word for word in sys.orig_argv)\n"
)


@pytest.fixture
def red(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    made = Folder(tmp_path_factory.mktemp("red"))
    made.file(RED)
    return made


@pytest.mark.parametrize("hook", GREEN_BY)
def test_a_failed_verdict_that_a_hook_made_green_fails_the_run(
    red: Folder, hook: str
) -> None:
    (red.path / "conftest.py").write_text(MAIN + GREEN_BY[hook])

    run = red.run()

    assert run.status == pytest.ExitCode.TESTS_FAILED
    assert run.last.endswith("; 1 FAILED AND NOT REPORTED SO: test_it.py::test_over")
    results = red.results()
    assert results["unreported"] == ["test_it.py::test_over"]
    assert results["exit_status"] == 1


@pytest.mark.parametrize("hook", STATUS_BY)
def test_an_exit_status_that_another_hook_set_is_not_green(
    red: Folder, hook: str
) -> None:
    (red.path / "conftest.py").write_text(MAIN + STATUS_BY[hook])

    assert red.run().status == pytest.ExitCode.TESTS_FAILED


@pytest.mark.parametrize(
    ("source", "arguments", "status"),
    [
        ("@pytest.mark.xfail(strict=True)\n" + RED.strip(), (), 0),
        (RED, ("-p", "pytest_rerunfailures", "--reruns=1"), 1),
        (RED, ("-x",), 1),
    ],
    ids=["strict xfail", "reruns", "-x"],
)
def test_what_pytest_knows_already_is_not_said_twice(
    red: Folder, source: str, arguments: tuple[str, ...], status: int
) -> None:
    if "--reruns=1" in arguments:
        pytest.importorskip("pytest_rerunfailures")
    red.file(source)

    run = red.run(*arguments)

    assert run.status == status
    assert "NOT REPORTED" not in run.text


# In pure code.


@pytest.mark.parametrize(
    ("stored", "passed", "measured", "named"),
    [
        (["t"], {"t"}, set(), ("t",)),
        (["t"], {"t"}, {"t"}, ()),
        (["t"], set(), set(), ()),
        (["t#eval"], {"t"}, {"t"}, ("t#eval",)),
        (["t[a#b]"], {"t[a#b]"}, set(), ("t[a#b]",)),
        (["t[a#b]"], {"t[a"}, set(), ("t[a#b]",)),
        (["t2"], {"t"}, set(), ()),
        (["t#2", "t"], {"t"}, {"t"}, ("t#2",)),
    ],
)
def test_stored_calls_whose_test_passed_without_them(
    stored: list[str], passed: set[str], measured: set[str], named: tuple[str, ...]
) -> None:
    assert unmeasured(stored, passed, measured) == named
