"""The build of stub CUDA, as far as it needs neither CUDA's torch nor a compiler."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest


RIG = Path(__file__).parents[2] / "stub_cuda"
sys.path.insert(0, str(RIG))

import check
import cuda_examples
import torches
from build import HEADERS, OWN, SOURCES, CannotBuildError, Torch, having
from imports import TRITON_NAMES, home_of, looked_up
from stubs import stub, stub_file, written


KNOWN = {"libcudart.so.13", "libcuda.so.1", "libnccl.so.2", "libcusparseLt.so.0"}


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


def test_a_folder_that_fails_is_shown_and_makes_all_of_them_fail(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "results").mkdir()

    def run(name: str, out: Path, *_: object, **__: object) -> int:
        (out / "results" / f"{name}.txt").write_text("1 passed in 0.1s\n", "utf-8")
        return int(name == "examples-kernels")

    monkeypatch.setattr("resource.setrlimit", lambda *_: None)
    monkeypatch.setattr(check, "run_pytest", run)

    assert check.run_all_examples(tmp_path) == 1
    shown = capsys.readouterr().out.splitlines()
    assert "  examples-kernels: exit status 1" in shown
    assert "  examples-memory: passed" in shown


def test_a_folder_of_all_examples_has_longer_than_a_part(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limits: list[float] = []
    quiet = SimpleNamespace(outlasted_by=lambda _: None)
    passed = SimpleNamespace(pid=0, wait=lambda: 0)
    monkeypatch.setattr("resource.setrlimit", lambda *_: None)
    monkeypatch.setattr("subprocess.Popen", lambda *_, **__: passed)
    monkeypatch.setattr(check, "patience_for", lambda s: limits.append(s) or quiet)

    assert check.run_all_examples(tmp_path) == 0
    assert set(limits) == {check.FOLDER_SECONDS}
    assert check.FOLDER_SECONDS > check.PART_SECONDS
    assert "== examples-memory: 0 s of CPU time" in capsys.readouterr().out


def test_a_part_that_outlasts_its_own_time_is_killed_and_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    killed: list[int] = []
    late = SimpleNamespace(outlasted_by=lambda _: "used 9 s of CPU in 12 s")
    monkeypatch.setattr(
        "subprocess.Popen", lambda *_, **__: SimpleNamespace(pid=7, wait=lambda: -9)
    )
    monkeypatch.setattr(check, "patience_for", lambda _: late)
    monkeypatch.setattr(check, "kill_group", killed.append)

    assert check.run_pytest("laws", tmp_path, []) == -9
    assert killed == [7]
    assert "laws: ended, it used 9 s of CPU in 12 s\n" in capsys.readouterr().out


def test_the_record_of_all_folders_has_their_results_and_claims() -> None:
    printed = (
        "gpuperf: 1 inconclusive, 2 passed on NVIDIA H100; 3 metrics without baseline\n"
        "=== claims ===\nclaim  measured here  verdict  device\nY6  4 -> 1  passed  cuda\n"
        "=== short test summary info ===\nSKIPPED [1] slow\n2 passed, 1 skipped in 0.5s\n"
    )

    ran, _, left_out = cuda_examples.record({"memory": printed}).partition(
        "\ncannot pass there\n"
    )

    assert ran == (
        f"{cuda_examples.HEAD}\n== memory: 2 passed, 1 skipped, 1 inconclusive\n"
        "claim  measured here  verdict  device\nY6  4 -> 1  passed  cuda\n"
    )
    assert len(left_out.splitlines()) == len(cuda_examples.CANNOT_PASS)


def test_what_is_inconclusive_is_no_silent_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "examples.txt").write_text(
        "gpuperf: 2 inconclusive, 40 passed on NVIDIA H100; 3 metrics without baseline\n"
        "42 passed, 1 skipped in 0.03s\n"
    )

    assert check.show({"examples": 0, "laws": 0}, tmp_path) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "  examples: passed, 2 inconclusive",
        "  laws: passed",
    ]


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


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (
            "ERROR: ResolutionImpossible: for help visit",
            "lift it, or go past it with PIP_CONFIG_FILE=/dev/null",
        ),
        ("no network", "the CUDA build of torch 2.15.0 cannot be fetched"),
    ],
)
def test_a_torch_that_cannot_be_had_says_whether_pip_s_configuration_is_why(
    monkeypatch: pytest.MonkeyPatch, said: str, why: str
) -> None:
    monkeypatch.setattr(torches, "pip_install", lambda *_: said)
    monkeypatch.setattr(torches, "has_cuda_build", lambda _: False)

    with pytest.raises(CannotBuildError, match=re.escape(why)):
        torches.install_torch("2.15.0")


@pytest.mark.parametrize("wanted", [None, "2.9.1"])
def test_each_minor_version_is_asked_what_waits_or_the_one_that_is_wanted(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    wanted: str | None,
) -> None:
    asked: list[str] = []

    def prepare(version: str, _: Path) -> None:
        if version == "2.7.1":
            msg = "the CUDA build of torch 2.7.1 cannot be fetched"
            raise CannotBuildError(msg)

    def run(_: list[str], **options: dict[str, str]) -> object:
        asked.append(options["env"]["LD_LIBRARY_PATH"])
        return subprocess.CompletedProcess((), 0)

    if wanted:
        monkeypatch.setenv("TORCH", wanted)
    else:
        monkeypatch.delenv("TORCH", raising=False)
    monkeypatch.setattr(check, "prepare", prepare)
    monkeypatch.setattr("subprocess.run", run)

    assert check.ask_what_waits(tmp_path) == 0
    had = [wanted] if wanted else [v for v in torches.NEWEST_TORCHES if v != "2.7.1"]
    assert asked == [str(tmp_path / f"torch-{version}" / "libs") for version in had]
    missing = "not run: the CUDA build of torch 2.7.1 cannot be fetched"
    assert (missing in capsys.readouterr().out) is (wanted is None)


def test_the_last_release_of_each_minor_version_is_as_new_as_the_first() -> None:
    def minors(versions: Sequence[str]) -> list[str]:
        return [version.rpartition(".")[0] for version in versions]

    pinned = torches.pinned_torch().rpartition(".")[0]
    newest = minors(torches.NEWEST_TORCHES)
    assert [minor for minor in newest if minor != pinned] == minors(
        torches.MINOR_TORCHES
    )
    assert pinned in newest


@pytest.mark.parametrize(
    ("name", "include"),
    [
        ("nvidia/cu13/include/cuda_runtime_api.h", "nvidia/cu13/include"),
        ("nvidia/cuda_nvcc/include/crt/host_defines.h", "nvidia/cuda_nvcc/include"),
    ],
)
def test_headers_are_found_where_cuda_12_and_13_have_them(
    tmp_path: Path, name: str, include: str
) -> None:
    header = tmp_path / name
    header.parent.mkdir(parents=True)
    header.touch()

    (wanted,) = [each for each in HEADERS if name.endswith(f"include/{each}")]
    assert [*having(tmp_path, wanted)] == [tmp_path / include]


@pytest.mark.parametrize(
    ("metadata", "triton"),
    [
        ('Requires-Dist: triton==3.7.1; platform_system == "Linux"', "triton==3.7.1"),
        ('Requires-Dist: triton~=3.9.0; python_version < "3.16"', "triton~=3.9.0"),
        ("Requires-Dist: triton (==3.2.0) ; x", "triton==3.2.0"),
        ("Requires-Dist: filelock", ""),
    ],
)
def test_triton_is_the_one_that_torch_requires(metadata: str, triton: str) -> None:
    assert Torch(libraries=Path(), metadata=metadata).triton() == triton


@pytest.mark.parametrize(
    ("metadata", "cudnn"),
    [
        ("Requires-Dist: nvidia-cudnn-cu13==9.20.0.48; x", ("9", "20", "0")),
        ("Requires-Dist: nvidia-cudnn-cu12 (==9.1.0.70) ; x", ("9", "1", "0")),
        ("Requires-Dist: filelock", ("9", "0", "0")),
    ],
)
def test_cudnn_says_the_version_that_torch_requires(
    metadata: str, cudnn: tuple[str, ...]
) -> None:
    assert Torch(libraries=Path(), metadata=metadata).cudnn() == cudnn


def test_what_triton_calls_and_looks_up_in_the_driver_is_read_from_its_source(
    tmp_path: Path,
) -> None:
    source = tmp_path / "driver.c"
    source.write_text(
        "typedef CUresult (*cuLaunchKernelEx_t)(void);\n"
        "defineGetFunctionHandle(getHandle, cuTensorMapEncodeTiled);\n"
        "check(cuCtxSetLimit(limit, value));\n",
        encoding="utf-8",
    )

    names = looked_up(source, TRITON_NAMES)

    assert names == {"cuTensorMapEncodeTiled", "cuCtxSetLimit"}


@pytest.mark.parametrize(
    ("name", "version", "home"),
    [
        ("cudaMalloc", "libcudart.so.13", "libcudart.so.13"),
        ("ncclAllReduce", "", "libnccl.so.2"),
        ("cusparseLtInit", "", "libcusparseLt.so.0"),
        ("cuLaunchKernel", "", "libcuda.so.1"),
    ],
)
def test_a_symbol_lies_in_the_library_of_its_version_or_family(
    name: str, version: str, home: str
) -> None:
    assert home_of(name, version, KNOWN) == home


@pytest.mark.parametrize(
    ("metadata", "packages"),
    [
        (
            "Requires-Dist: cuda-toolkit[cublas,cudart]==13.0.3; x",
            ["cuda-toolkit[cudart,cupti,crt]==13.0.3"],
        ),
        (
            (
                "Requires-Dist: nvidia-cuda-runtime-cu12==12.6.77; x\n"
                "Requires-Dist: nvidia-cuda-cupti-cu12 (==12.6.80) ; x"
            ),
            [
                "nvidia-cuda-runtime-cu12==12.6.77",
                "nvidia-cuda-nvcc-cu12==12.6.*",
                "nvidia-cuda-cupti-cu12==12.6.80",
            ],
        ),
    ],
)
def test_the_headers_are_those_of_the_packages_that_torch_requires(
    metadata: str, packages: list[str]
) -> None:
    torch = Torch(libraries=Path(), metadata=metadata)

    assert torch.header_packages() == packages


def test_a_question_for_a_workspace_is_answered_by_its_stub() -> None:
    assert "*(int *)a5 = 1024;" in stub("cusolverDnSpotrf_bufferSize")


def test_a_stub_says_its_name_and_what_makes_something_makes_it() -> None:
    assert 'stub_unhandled("cusparseCreate"); *out = calloc' in stub("cusparseCreate")
    assert "stub_cublas" in stub("cublasSgemm_v2")


def test_nvml_can_be_loaded_without_the_runtime() -> None:
    assert "static void stub_unhandled" in stub_file("libnvidia-ml", ["nvmlX"])


def test_each_source_belongs_to_one_library() -> None:
    sources = [name for names in OWN.values() for name in names]

    assert sorted(sources) == sorted(p.stem for p in SOURCES.glob("*.c"))


def test_bodies_of_functions_are_found_also_where_macros_write_them() -> None:
    found = written([SOURCES / "cudnn.c", SOURCES / "cudnn_rnn.c"])

    assert {
        "cudnnSetStream",
        "cudnnRNNForward",
        "cudnnCreateRNNDescriptor",
        "cudnnDestroyTensorDescriptor",
    } <= found


def test_each_switch_stands_in_the_table_of_the_readme() -> None:
    sources = "".join(p.read_text("utf-8") for p in SOURCES.glob("*.[ch]"))
    readme = (RIG / "README.md").read_text("utf-8")

    switches = set(re.findall(r'"(GPUPERF_STUB_\w+)"', sources))
    assert switches
    assert {name for name in switches if f"`{name}`" not in readme} == set()
