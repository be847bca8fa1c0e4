"""The maintainers' list of sync sites is read off a disassembly rightly."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


SCRIPT = Path(__file__).parents[3] / "tools" / "sync_sites.py"

ITEM = "_ZN2at6native24_local_scalar_dense_cudaERKNS_6TensorE"
WRAPPER = "_ZN2at12_GLOBAL__N_133wrapper_CUDA___local_scalar_denseERKNS_6TensorE"
HISTC = "_ZN2at6native10histc_cudaERKNS_6TensorElRKN3c106ScalarES7_"
FILL = "_ZN2at6native10fill_cuda_ERNS_6TensorERKN3c106ScalarE"
CALL_ITEM = "_ZN2at4_ops4item4callERKNS_6TensorE"

DISASSEMBLY = f"""
libtorch_cuda.so:     file format elf64-x86-64


Disassembly of section .text:

0000000000001000 <{ITEM}>:
    1000:\tpush   %rbp
    1001:\tcall   5000 <cudaMemcpyAsync@plt>
    1006:\tcall   5010 <cudaStreamSynchronize@plt>
    100b:\tje     100f <{ITEM}+0xf>
    100d:\tcall   *0x8(%rax)
    100f:\tret

0000000000002000 <{WRAPPER}>:
    2000:\tjmp    1000 <{ITEM}>

0000000000003000 <{HISTC}>:
    3000:\tcall   5020 <{CALL_ITEM}@plt>
    3005:\tcall   5020 <{CALL_ITEM}@plt>
    300a:\tcall   3000 <{HISTC}>

0000000000004000 <{FILL}>:
    4000:\tcall   5000 <cudaMemcpyAsync@plt>
"""
NAMES = {
    ITEM: "at::native::_local_scalar_dense_cuda(at::Tensor const&)",
    WRAPPER: (
        "at::(anonymous namespace)::wrapper_CUDA___local_scalar_dense(at::Tensor const&)"
    ),
    HISTC: (
        "at::native::histc_cuda(at::Tensor const&, long, c10::Scalar const&, "
        "c10::Scalar const&)"
    ),
    f"{CALL_ITEM}@plt": "at::_ops::item::call(at::Tensor const&)@plt",
}


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sync_sites", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_calls_are_read_and_jumps_inside_a_function_are_not(tool: ModuleType) -> None:
    calls = tool.calls_of(DISASSEMBLY.splitlines(keepends=True))

    assert calls == {
        ITEM: {"cudaMemcpyAsync@plt", "cudaStreamSynchronize@plt"},
        WRAPPER: {ITEM},
        HISTC: {f"{CALL_ITEM}@plt"},
        FILL: {"cudaMemcpyAsync@plt"},
    }


def test_the_report_compares_what_waits_with_the_table(tool: ModuleType) -> None:
    calls = tool.calls_of(DISASSEMBLY.splitlines(keepends=True))

    lines = list(tool.report(calls, NAMES, REGISTERED, TABLE))

    assert lines == [
        "2 functions call what waits:",
        f"  {NAMES[ITEM]}: cudaStreamSynchronize@plt",
        f"  {NAMES[HISTC]}: at::_ops::item::call(at::Tensor const&)@plt",
        "1 operations reach a sync and have no rule: histc",
        "1 have a rule and reach none by name: nonzero",
    ]


TABLE = ["_local_scalar_dense", "nonzero"]
REGISTERED = {
    "__local_scalar_dense": "_local_scalar_dense",
    "_nonzero": "nonzero",
    "out_nonzero": "nonzero",
    "__unique2": "_unique2",
    "_histc": "histc",
    "_masked_fill": "masked_fill",
    "Tensor_mode": "mode",
    "_bmm": "bmm",
}


@pytest.mark.parametrize(
    ("function", "operation"),
    [
        ("at::native::nonzero_out_cuda(at::Tensor const&, at::Tensor&)", "nonzero"),
        ("at::native::masked_fill__cuda(at::Tensor&)", "masked_fill"),
        ("at::native::_unique2_cuda(at::Tensor const&, bool)", "_unique2"),
        ("at::native::_histc_cuda(at::Tensor const&, long)", "histc"),
        ("std::tuple<at::Tensor> at::native::mode_cuda<float>(int)", "mode"),
        ("at::(anonymous namespace)::wrapper_CUDA__histc(int)", "histc"),
        ("at::(anonymous namespace)::wrapper_CUDA_out_nonzero(int)", "nonzero"),
        ("Functor_<&at::(anonymous namespace)::wrapper_CUDA__histc>::call()", "histc"),
        ("at::(anonymous namespace)::wrapper_CUDA_Tensor_mode()", "mode"),
        ("at::(anonymous namespace)::wrapper_CUDA___unique2(int)", "_unique2"),
        ("at::(anonymous namespace)::wrapper_SparseCUDA__bmm(int)", "bmm"),
    ],
)
def test_an_operation_is_known_by_its_kernel(
    function: str, operation: str, tool: ModuleType
) -> None:
    assert tool.operations([function], REGISTERED) == {operation}
