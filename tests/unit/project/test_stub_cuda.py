"""The build of stub CUDA, as far as it needs neither CUDA's torch nor a compiler."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest


RIG = Path(__file__).parents[2] / "stub_cuda"
sys.path.insert(0, str(RIG))

import check
import cuda_examples
import torches
from build import OWN, SOURCES


def test_without_a_compiler_the_check_says_so_and_ends_well(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(RIG / "check.py"), str(tmp_path / "out")],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (
        0,
        "not run on real torch over stub CUDA: there is no gcc on this machine\n",
    )


def test_each_example_that_cannot_pass_there_exists_and_has_its_reason() -> None:
    for test, reason in cuda_examples.CANNOT_PASS.items():
        path, _, name = test.partition("::")
        assert path.split("/")[1] in cuda_examples.ALL_FOLDERS
        assert f"\ndef {name.partition('[')[0]}(" in (RIG.parents[1] / path).read_text(
            "utf-8"
        )
        assert len(reason.split()) > 5, test


def test_each_folder_of_examples_with_tests_is_run_there() -> None:
    examples = RIG.parents[1] / "examples"
    folders = {path.parent.name for path in examples.glob("*/test_*.py")}

    assert sorted(folders) == sorted(cuda_examples.ALL_FOLDERS)


def test_the_evidence_has_the_reason_of_each_example_that_cannot_pass() -> None:
    folder = RIG.parents[1] / "benchmarks" / "evidence"
    recorded = (folder / "examples-stub-cuda.txt").read_text("utf-8")

    for test, reason in cuda_examples.CANNOT_PASS.items():
        name = test.partition("::")[2]
        assert f"\n{name}: {reason}\n" in recorded


@pytest.mark.parametrize("wrong", ["laws", "examples", "tests-gpu", "bytes", None])
def test_the_check_fails_if_one_part_does_not_pass(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wrong: str | None
) -> None:
    results = tmp_path / "results"
    results.mkdir()
    # What had no time has no exit status: it has not passed.
    code = {wrong: None if wrong == "bytes" else 1}
    parts = [{"part": p, "exit_status": code.get(p, 0)} for p in check.PARTS]
    (results / "status.json").write_text(json.dumps({"parts": parts}))
    tarfile.open(results / "results.tar.gz", "w:gz").close()
    monkeypatch.setattr("resource.setrlimit", lambda *_: None)
    monkeypatch.setattr("subprocess.run", lambda *_, **__: None)
    monkeypatch.setattr(check, "run_pytest", lambda name, *_: int(name == wrong))

    assert check.run_parts(tmp_path) == int(wrong is not None)


def test_the_check_fails_where_the_script_for_a_gpu_left_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("resource.setrlimit", lambda *_: None)
    monkeypatch.setattr("subprocess.run", lambda *_, **__: None)
    monkeypatch.setattr(check, "run_pytest", lambda *_: 0)

    assert check.run_parts(tmp_path) == 1


def test_the_last_release_of_each_minor_version_is_as_new_as_the_first() -> None:
    def minors(versions: Sequence[str]) -> list[str]:
        return [version.rpartition(".")[0] for version in versions]

    pinned = torches.pinned_torch().rpartition(".")[0]
    newest = minors(torches.NEWEST_TORCHES)
    assert [minor for minor in newest if minor != pinned] == minors(
        torches.MINOR_TORCHES
    )
    assert pinned in newest


def test_each_source_belongs_to_one_library() -> None:
    sources = [name for names in OWN.values() for name in names]

    assert sorted(sources) == sorted(p.stem for p in SOURCES.glob("*.c"))


def test_each_switch_stands_in_the_table_of_the_readme() -> None:
    sources = "".join(p.read_text("utf-8") for p in SOURCES.glob("*.[ch]"))
    readme = (RIG / "README.md").read_text("utf-8")

    switches = set(re.findall(r'"(GPUPERF_STUB_\w+)"', sources))
    assert switches
    assert {name for name in switches if f"`{name}`" not in readme} == set()
