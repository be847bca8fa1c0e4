"""``--gpuperf-watch``: ordinary tests on the simulated GPU, with their own outcomes."""

from __future__ import annotations

import json

import pytest
from watched_suite import watched_suite


pytest.importorskip("torch")

PACKAGE = """
import torch

CACHE = []

def accuracy(x):
    right = (x > 0).sum()
    return right.item()

def remember(x):
    CACHE.append(x * 2)
"""

TESTS = """
import package, pytest, torch

HAS_GPU = torch.cuda.is_available()
DEVICE = "cuda" if HAS_GPU else "cpu"
needs_gpu = pytest.mark.skipif(not HAS_GPU, reason="needs CUDA")

def test_cpu():
    assert package.accuracy(torch.ones(3)) == 3

@needs_gpu
def test_gpu():
    assert package.accuracy(torch.ones(3, device="cuda")) == 3

@needs_gpu
def test_gpu_is_wrong():
    assert torch.ones(3, device="cuda").sum().item() == 4

def test_leak():
    package.remember(torch.ones(1000, device=DEVICE))

@pytest.mark.skipif(HAS_GPU, reason="not with CUDA")
def test_without_gpu():
    assert not HAS_GPU

@pytest.fixture
def without_gpu():
    assert not torch.cuda.is_available()

def test_set_up_without_gpu(without_gpu):
    assert DEVICE == "cpu"

@pytest.fixture(scope="module")
def shared():
    return torch.ones(1000, device=DEVICE)

def test_shared(shared):
    assert shared.sum().item() == 1000
"""


GPU_IS_WRONG = "test_suite.py::test_gpu_is_wrong"


@pytest.fixture
def suite(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> pytest.Pytester:
    return watched_suite(pytester, monkeypatch, package=PACKAGE, test_suite=TESTS)


@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n2")], ids=str)
def test_outcomes_stay_and_what_runs_only_there_is_said(
    suite: pytest.Pytester, workers: tuple[str, ...]
) -> None:
    plain = suite.runpytest_subprocess(*workers)
    watched = suite.runpytest_subprocess("--gpuperf-watch", *workers)

    plain.assert_outcomes(passed=5, skipped=2)
    watched.assert_outcomes(passed=6, skipped=1)
    assert watched.ret == 0
    watched.stdout.fnmatch_lines(
        [
            "* used it; 1 wait on 1 line; 1 test left device memory to the next",
            "*package.py:7 in accuracy",
            "  fix *",
            "  test_suite.py::test_leak: 1 tensor, 4.000 KiB",
            "  --> package.py:10 in remember",
            "  kept by  package.CACHE[[]...]",
            "2 tests ran only because of the simulated GPU; 1 failed there*",
            "  test_suite.py::test_gpu_is_wrong: failed: *",
            "  test_suite.py::test_without_gpu: skipped: not with CUDA",
            "  test_suite.py::test_set_up_without_gpu: failed: *",
        ],
        consecutive=False,
    )


def test_gates_name_the_test_the_line_and_the_fix(suite: pytest.Pytester) -> None:
    result = suite.runpytest_subprocess("--gpuperf-watch=max-syncs:0,leak:0")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "2 counts failed:",
            "  test_suite.py::test_gpu: 1 wait, limit 0",
            "  --> package.py:7 in accuracy",
            "  fix *",
            "  test_suite.py::test_leak: 1 tensor left, limit 0",
        ]
    )


def test_github_marks_the_lines_that_fail(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    gates = "--gpuperf-watch=max-syncs:0,leak:0"
    red = suite.runpytest_subprocess(gates)
    warned = suite.runpytest_subprocess(gates, "-o", "gpuperf_warn=true")

    fix = "%0Afix: add it up on the GPU with .detach(), read it every N steps"
    said = f"title=gpuperf%3A watch::test_suite.py::test_gpu: 1 wait, limit 0{fix}"
    assert f"::error file=package.py,line=7,{said}" in red.outlines
    assert [
        line
        for line in red.outlines
        if line.startswith("::error file=package.py,line=10,")
    ]
    assert not [line for line in warned.outlines if line.startswith("::error ")]
    assert [
        line
        for line in warned.outlines
        if line.startswith("::warning file=package.py,line=7,")
    ]


def test_a_count_may_not_rise_above_what_is_stored(suite: pytest.Pytester) -> None:
    stored = suite.runpytest_subprocess("--gpuperf-watch", "--gpuperf-update=missing")
    counts = json.loads((suite.path / "baselines/watch/counts.json").read_text())
    again = suite.runpytest_subprocess("--gpuperf-watch")
    suite.makepyfile(package=PACKAGE.replace("right = ", "right = bool(x.any()) + "))
    worse = suite.runpytest_subprocess("--gpuperf-watch")

    assert (stored.ret, again.ret, worse.ret) == (0, 0, 1)
    assert counts.pop("tests")[:2] == ["test_suite.py::test_gpu", GPU_IS_WRONG]
    assert counts == {
        "format": 2,
        "leaks": {"test_suite.py::test_leak": {"tensors": 1}},
        "lines": {
            "package.py accuracy: return right.item()": {
                "test_suite.py::test_gpu": {"waits": 1}
            }
        },
    }
    worse.stdout.fnmatch_lines(
        [
            "  test_suite.py::test_gpu: 1 wait in one test, by a new line",
            "  accept   pytest --gpuperf-watch --gpuperf-update=all",
            "*passed*1 count failed in*",
        ]
    )


def test_a_run_of_one_file_leaves_the_counts_of_the_others(
    suite: pytest.Pytester,
) -> None:
    suite.makepyfile(
        test_more="""
        import torch
        from package import accuracy

        def test_more():
            accuracy(torch.ones(3, device="cuda"))
        """
    )
    place = suite.path / "baselines/watch/counts.json"
    suite.runpytest_subprocess("--gpuperf-watch", "--gpuperf-update=missing")
    before = place.read_text()

    for kind in ("improved", "all", "missing"):
        some = ("test_more.py", "--gpuperf-watch", f"--gpuperf-update={kind}")
        assert suite.runpytest_subprocess(*some).ret == 0
        assert place.read_text() == before
    assert "test_more.py::test_more" in before


def test_a_gate_that_has_nothing_to_judge_fails_in_ci_and_says_so_elsewhere(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = suite.runpytest_subprocess("--gpuperf-watch")
    monkeypatch.setenv("CI", "true")
    in_ci = suite.runpytest_subprocess("--gpuperf-watch")
    key = "gpuperf_missing_baseline=warn"
    told = suite.runpytest_subprocess("--gpuperf-watch", "-o", key)

    assert (here.ret, in_ci.ret, told.ret) == (0, 1, 0)
    for result in (here, in_ci, told):
        text = " ".join(result.stdout.str().split())
        assert "counts.json: there is no baseline, so nothing is judged" in text


@pytest.mark.parametrize(
    ("until", "ret", "said"),
    [("2999-01-01", 0, "would have failed"), ("2020-01-01", 1, "failed")],
)
def test_until_the_last_day_what_rose_is_a_warning(
    suite: pytest.Pytester, until: str, ret: int, said: str
) -> None:
    warn = f"gpuperf_warn=until {until}"
    result = suite.runpytest_subprocess("--gpuperf-watch=leak:0", "-o", warn)

    assert result.ret == ret
    result.stdout.fnmatch_lines([f"1 count {said}*:", f"*passed*1 count {said}*"])


def test_a_day_that_is_none_is_a_usage_error(suite: pytest.Pytester) -> None:
    result = suite.runpytest_subprocess("--gpuperf-watch", "-o", "gpuperf_warn=soon")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*gpuperf_warn*found 'soon'*"])


def test_a_line_that_was_edited_keeps_its_count(suite: pytest.Pytester) -> None:
    suite.runpytest_subprocess("--gpuperf-watch", "--gpuperf-update=missing")

    suite.makepyfile(package=PACKAGE.replace("right", "hits"))
    edited = suite.runpytest_subprocess("--gpuperf-watch")
    stored = suite.runpytest_subprocess("--gpuperf-watch", "--gpuperf-update=improved")
    counts = json.loads((suite.path / "baselines/watch/counts.json").read_text())

    assert (edited.ret, stored.ret) == (0, 0)
    assert [*counts["lines"]] == ["package.py accuracy: return hits.item()"]


def test_a_failure_without_the_simulated_gpu_fails_the_run(
    suite: pytest.Pytester,
) -> None:
    suite.makepyfile(test_other="def test_wrong(): assert 1 == 2")

    result = suite.runpytest_subprocess("--gpuperf-watch")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=6, skipped=1, failed=1)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["--gpuperf-watch=syncs:0"],
            (
                "--gpuperf-watch: found 'syncs:0', expected max-syncs:N, leak:N or "
                "both, such as max-syncs:0,leak:0; put paths before it [GP101]"
            ),
        ),
        (
            ["--gpuperf-watch", "--gpuperf-device=cpu"],
            (
                "--gpuperf-device: found cpu, expected cuda or pretend with "
                "--gpuperf-watch [GP101]"
            ),
        ),
        (
            ["--gpuperf-watch", "--gpuperf-update=drifted"],
            (
                "--gpuperf-update: found 'drifted', expected missing, improved or all "
                "with --gpuperf-watch [GP101]"
            ),
        ),
    ],
)
def test_a_wrong_value_is_a_usage_error(
    suite: pytest.Pytester, arguments: list[str], sentence: str
) -> None:
    result = suite.runpytest_subprocess(*arguments)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert f"ERROR: {sentence}" in result.errlines


@pytest.mark.parametrize("device", ["cpu", "cuda", "pretend", "other"])
def test_the_device_that_a_project_measures_on_does_not_keep_it_from_being_watched(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    suite.makeini(f"[pytest]\ngpuperf_device = {device}\n")

    result = suite.runpytest_subprocess("--gpuperf-watch", "-k", "test_leak")

    assert result.ret == 0
    result.stdout.fnmatch_lines(["* gpuperf: tests on the simulated GPU *"])


def test_a_gpu_that_is_not_there_is_a_usage_error(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")

    result = suite.runpytest_subprocess("--gpuperf-watch", "--gpuperf-device=cuda")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: --gpuperf-device=cuda was asked for, but torch * [[]GP401]"]
    )


def test_measuring_and_watching_in_one_run_is_refused(suite: pytest.Pytester) -> None:
    result = suite.runpytest_subprocess("--gpuperf-watch", "--gpuperf")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --gpuperf-watch and --gpuperf *GP116]"])


def test_a_conftest_may_import_what_torch_scripts_itself(
    suite: pytest.Pytester,
) -> None:
    suite.makeconftest("import torch.distributed.optim")

    result = suite.runpytest_subprocess("--gpuperf-watch", "-k", "test_cpu")

    result.assert_outcomes(passed=1, deselected=len(TESTS.split("def test_")) - 2)


def test_a_line_of_the_checkout_beside_the_rootdir_is_named_and_stored(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = watched_suite(pytester, monkeypatch, package=PACKAGE)
    suite.mkdir(".git")
    project = suite.mkdir("one")
    (project / "pytest.ini").write_text("[pytest]\npythonpath = ..\n")
    test = "import package, torch\ndef test_gpu():\n    package.accuracy(torch.ones(3, device='cuda'))\n"
    (project / "test_gpu.py").write_text(test)
    monkeypatch.chdir(project)

    watched = suite.runpytest_subprocess("--gpuperf-watch", "--gpuperf-update=all")

    watched.stdout.fnmatch_lines(["*../package.py:7 in accuracy"])
    stored = project / "baselines" / "watch" / "counts.json"
    assert "../package.py" in stored.read_text()


def test_memory_of_a_test_that_only_the_collector_frees_is_told_with_its_cycle(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = watched_suite(pytester, monkeypatch, test_suite=GARBAGE)

    result = suite.runpytest_subprocess("--gpuperf-watch")

    result.assert_outcomes(passed=5)
    told = [line for line in result.outlines if line.startswith("  test_suite.py::")]
    assert told == ["  test_suite.py::test_cycle: 1.000 MiB"]
    result.stdout.fnmatch_lines(
        [
            "tests with device memory that only Python's garbage collector frees:",
            "  test_suite.py::test_cycle: 1.000 MiB",
            "  --> test_suite.py:7 in __init__",
            '  source   self.me, self.big = self, torch.ones(2**18, device="cuda")',
            "  kept     in a cycle of Node.me",
            "  fix      break the cycle *",
        ]
    )


GARBAGE = """
import gc
import pytest
import torch

class Node:
    def __init__(self):
        self.me, self.big = self, torch.ones(2**18, device="cuda")

@pytest.fixture
def tensor(request, tmp_path):
    return torch.ones(2**18, device="cuda")

def test_cycle():
    Node()

@pytest.mark.parametrize("number", [1])
def test_clean(tensor, number, monkeypatch):
    tensor + number

def test_collects():
    Node()
    gc.collect()

def test_error(tensor):
    with pytest.raises(ZeroDivisionError) as error:
        tensor.numel() / 0
    assert error

def test_torch_imports_what_it_wraps(tensor):
    here = tensor + 1
    exec("import torch.fx; torch.fx.wrap('len')", {}, {"here": here})
"""
