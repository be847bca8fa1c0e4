"""How long a step compiles, with empty caches and with filled ones, as budgets and baselines."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from scripted_project import ScriptedProject


pytest.importorskip("torch")

COMPILES = {"step_ms": 10.0, "compile_s": 40.0, "compile_warm_s": 5.0}


def test_each_of_both_times_over_its_budget_fails_and_within_it_passes(
    project: ScriptedProject,
) -> None:
    project.file(
        "@gpuperf.budget(compile_s=20, on='scripted')\n"
        "def test_cold(gpuperf): gpuperf(int)\n"
        "def test_warm(gpuperf): gpuperf(int, compile_warm_s=3, on='scripted')\n"
        "@gpuperf.budget(compile_s=50, compile_warm_s=7, on='scripted')\n"
        "def test_quick(gpuperf): gpuperf(int)\n"
    )
    project.script({"*": COMPILES})

    result = project.run("-rA")

    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(
        [
            "*40 s against 20 s, over in each of 2 runs*",
            "*5 s against 3 s, over in each of 2 runs*",
            "FAILED *test_cold - OVER LIMIT compile_s: 40.00 s, limit 20.00 s",
            "FAILED *test_warm - OVER LIMIT compile_warm_s: 5.000 s, limit 3.000 s",
        ]
    )
    result.stdout.no_fnmatch_line("*not judged*")


def test_a_step_that_compiles_nothing_is_not_judged_and_says_why(
    project: ScriptedProject,
) -> None:
    project.file(
        "@gpuperf.budget(compile_s=20, compile_warm_s=3, on='scripted')\n"
        "def test_eager(gpuperf): gpuperf(int)\n"
    )

    said = " ".join(project.run("-rA", "-v").stdout.str().split())

    for name in ("compile_s", "compile_warm_s"):
        assert name in said
    assert "nothing was compiled: the step uses no torch.compile, or has run" in said


def test_no_compiler_is_timed_that_nothing_asks_for(project: ScriptedProject) -> None:
    project.file(
        "def test_step(gpuperf):\n"
        "    gpuperf(int)\n"
        "    assert 'compile_s' not in gpuperf.measurement.times\n"
        "@gpuperf.budget(compile_s=20, on='cpu')\n"
        "def test_limited_elsewhere(gpuperf):\n"
        "    gpuperf(int)\n"
        "    assert 'compile_s' not in gpuperf.measurement.times\n"
    )
    project.script({"*": COMPILES})

    project.run().assert_outcomes(passed=2)


def test_an_ini_key_asks_for_all_tests_and_a_baseline_blames_what_each_run_confirms(
    project: ScriptedProject,
) -> None:
    project.file("def test_step(gpuperf): gpuperf(int)\n")
    project.script({"*": COMPILES})
    project.refresh("-o", "gpuperf_compile_times=true").assert_outcomes(passed=1)
    (run, *_) = project.entries()["test_it.py::test_step"]["runs"]  # type: ignore[misc, has-type]
    assert {"compile_s", "compile_warm_s"} <= run["times"].keys()

    def said(**changed: object) -> str:
        project.script({"*": {**COMPILES, **changed}})
        return project.run().stdout.str()

    assert "1 passed on scripted" in said(compile_s=43.0), "10 % are tolerated"
    assert "undecided on scripted" in said(compile_s=[60.0, 40.0])
    assert "SLOWER TO COMPILE: 60.00 s, was 40.00 s (+50.0 %)" in said(compile_s=60.0)
    assert "SLOWER TO LOAD FROM CACHES: 9.000 s, was 5.000 s" in said(
        compile_warm_s=9.0
    )


def test_inline_there_is_no_second_process_and_the_reason_says_so(
    project: ScriptedProject,
) -> None:
    project.file(
        "@gpuperf.budget(compile_s=50, compile_warm_s=3, on='scripted')\n"
        "def test_step(gpuperf): gpuperf(int)\n"
    )
    project.script({"*": COMPILES})

    result = project.run("--gpuperf-inline", "-rA")

    said = " ".join(result.stdout.str().split())
    assert "compile_warm_s=3 was not judged: only a second process can" in said


def test_a_test_that_fails_when_it_is_compiled_again_says_so(
    project: ScriptedProject,
) -> None:
    project.file(
        "import pathlib\n"
        "@gpuperf.budget(compile_warm_s=3, on='scripted')\n"
        "def test_step(gpuperf):\n"
        "    assert not pathlib.Path('been').exists(), 'I was here before'\n"
        "    gpuperf(int)\n"
        "    pathlib.Path('been').touch()\n"
    )
    project.script({"*": COMPILES})

    said = " ".join(project.run("-rA").stdout.str().split())

    assert "the test failed where it was compiled again" in said
    assert "I was here before" in said


@pytest.mark.parametrize("wrong", ["0", "-1", "'fast'"])
def test_a_budget_of_seconds_must_be_above_zero(
    project: ScriptedProject, wrong: str
) -> None:
    project.file(
        f"def test_step(gpuperf): gpuperf(int, compile_s={wrong}, on='scripted')\n"
    )

    result = project.run()

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*compile_s=*expected*"])


def test_on_the_simulated_gpu_no_compiler_runs_and_the_budget_says_so(
    project: ScriptedProject,
) -> None:
    project.file(
        "@gpuperf.budget(compile_s=20, syncs=0)\n"
        "def test_step(gpuperf):\n"
        "    import torch\n"
        "    x = torch.ones(3, device=gpuperf.device)\n"
        "    gpuperf(lambda: x + 1)\n"
    )

    result = project.pytester.runpytest_inprocess(
        "--gpuperf", "--gpuperf-device=pretend", "-v"
    )

    said = " ".join(result.stdout.str().split())
    assert "compile_s=20 binds on cuda only, the simulated GPU has no clock" in said


@pytest.mark.slow
@pytest.mark.skipif(
    not shutil.which("g++"), reason="Inductor compiles with g++ on a CPU"
)
def test_a_real_compiler_is_timed_with_caches_of_its_own_and_loads_them_in_a_second_process(
    project: ScriptedProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_the_user = tmp_path / "of_the_user"
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(of_the_user))
    project.file(
        "import os, pathlib, torch\n"
        "@gpuperf.budget(compile_s=900, compile_warm_s=900, on='cpu')\n"
        "def test_step(gpuperf):\n"
        "    compiled = torch.compile(lambda x: (x * 2).relu().exp())\n"
        "    x = torch.ones(8, 8, requires_grad=True)\n"
        "    gpuperf(lambda: compiled(x).sum().backward())\n"
        "    hits = torch._dynamo.utils.counters['inductor']['fxgraph_cache_hit']\n"
        "    with pathlib.Path('hits').open('a') as file: file.write(f'{hits} ')\n"
    )

    result = project.pytester.runpytest_subprocess(
        "--gpuperf", "--gpuperf-device=cpu", "--gpuperf-seconds=20"
    )

    result.assert_outcomes(passed=1)
    cold, warm, *more = map(int, (project.path / "hits").read_text().split())
    assert (cold, warm > 0, more) == (0, True, [])
    results = json.loads((project.path / ".gpuperf/results.json").read_text())
    (call,) = results["tests"]["test_it.py::test_step"]["verdicts"]
    now = {v["metric"]: v["now"] for v in call["verdicts"]}
    assert 0 < now["compile_warm_s"] < now["compile_s"]
    assert list(of_the_user.rglob("*")) == []
