"""Every public name of torch that a GPU's owner calls is there on the simulated one."""

from __future__ import annotations

import gc
import inspect
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any, Final

import pytest


torch = pytest.importorskip("torch")

from pytest_gpuperf.devices.simulated import cuda_api, simulated_gpu


MODULES: Final = (
    "torch.accelerator",
    "torch.cuda",
    "torch.cuda.memory",
    "torch.cuda.nccl",
    "torch.cuda.nvtx",
    "torch.cuda.tunable",
    "torch.func",
    "torch.nested",
    "torch.nn.attention",
    pytest.param("torch.compiler", marks=pytest.mark.slow),
    pytest.param("torch.export", marks=pytest.mark.slow),
)

NOT_CALLED: Final = {
    "a library in C, or of others": (
        "CUDAPluggableAllocator",
        "change_current_allocator",
        "activate_flash_attention_impl",
        "register_flash_attention_impl",
        "restore_flash_attention_impl",
    ),
    "a driver of CUDA 12.8": ("GreenContext",),
    "a function that traces without what it closes over": ("precompile",),
    "it changes this process": ("set_default_backend", "set_stance"),
    "a file": (
        "export_dot",
        "export_graph_data",
        "load",
        "load_cache_artifacts",
        "load_compiled_function",
        "mgpu_tune_gemm_in_file",
        "save",
        "tune_gemm_in_file",
    ),
    "what another call returns": (
        "ExportBackwardSignature",
        "ExportedProgram",
        "ModuleCallSignature",
        "UnflattenedModule",
        "unflatten",
    ),
    "to be inherited, or an enumeration": (
        "FlatArgsAdapter",
        "SDPBackend",
        "register_dataclass",
    ),
    "arguments that its signature does not ask for": (
        "functional_call",
        "nested_tensor_from_jagged",
        "to_padded_tensor",
    ),
    # As ``torch.cuda.FloatStorage``: the core makes storages on the host alone.
    "a storage, which only moves to the device": tuple(
        f"{name}Storage"
        for name in (
            *("BFloat16", "Bool", "Byte", "Char", "ComplexDouble", "ComplexFloat"),
            *("Double", "Float", "Half", "Int", "Long", "Short"),
        )
    ),
}
"""Names that are not called, by what they would need."""


NAMES_OF_FUNCTIONS: Final = tuple(
    "callables f fn func original_fn traceable_fn".split()
)


def made_arguments() -> dict[str, Any]:
    """What each argument without a default is, by its name."""
    x = torch.ones(4, 4, device="cuda")
    net = torch.nn.Linear(4, 4).cuda()
    stream = torch.cuda.Stream()

    def function(*_: object) -> Any:
        return x.sin()

    return {
        **dict.fromkeys(NAMES_OF_FUNCTIONS, function),
        **dict.fromkeys(("peer_device", "seed", "stream_ptr"), 0),
        **dict.fromkeys(("input", "obj", "tensor", "values"), x),
        **dict.fromkeys(("mod", "model", "module", "root"), net),
        **{name: [x, x] for name in ("inputs", "outputs", "tensors", "ts")},
        **dict.fromkeys(("args", "primals", "sample_args", "tangents"), (x,)),
        **{n: [] for n in ("guard_entries", "input_specs", "output_specs")},
        **dict.fromkeys(("code", "data_ptr", "mem_ptr", "range_id", "res"), 0),
        **dict.fromkeys(("debug_mode", "dim", "mode", "rank", "start"), 0),
        **dict.fromkeys(("buffer_size", "duration", "iterations"), 1),
        **dict.fromkeys(("alloc_size", "count", "length", "num_ranks", "size"), 2),
        **dict.fromkeys(("filename", "fqn", "msg", "name"), "n"),
        "backends": torch.nn.attention.SDPBackend.MATH,
        "cuda_graph": torch.cuda.CUDAGraph(),
        "device": "cuda:0",
        "enable": True,
        "enabled": False,
        "fraction": 0.5,
        "mask": x > 0,
        "models": [net, net],
        "new_state": torch.get_rng_state(),
        "new_states": [torch.get_rng_state()],
        "pattern": "a b -> b a",
        "pool": torch.cuda.MemPool(),
        "stream": stream,
        "uid": b"",
    }


@pytest.fixture(scope="module")
def arguments() -> Iterator[dict[str, Any]]:
    with simulated_gpu():
        yield made_arguments()
        torch.cuda.set_per_process_memory_fraction(1.0)


def called_names(module: str) -> set[str]:
    """Names of *module* that can be called."""
    left_out = {each for names in NOT_CALLED.values() for each in names}
    return set(public(import_module(module))) - left_out


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODULES)
def test_every_name_can_be_called(name: str, arguments: dict[str, Any]) -> None:
    module = import_module(name)

    failed = {
        called: failure
        for called in called_names(name)
        if (failure := failure_of(getattr(module, called), arguments))
    }
    # `draft_export` leaves its log open; a later test would be blamed for it.
    gc.collect()

    assert failed == {}


def public(module: ModuleType) -> Iterator[str]:
    """Names of functions and classes of torch in *module*."""
    listed = set(getattr(module, "__all__", ()))
    for name in listed | vars(module).keys():
        value = getattr(module, name)
        home = getattr(value, "__module__", None) or ""
        is_torch = home.startswith(("torch", "pytest_gpuperf")) and name in listed
        is_own = is_torch or home == module.__name__
        if callable(value) and is_own and not name.startswith("_"):
            yield name


def failure_of(call: Any, arguments: dict[str, Any]) -> str:
    """What is wrong with *call*; nothing if it returns."""
    try:
        call(*(arguments[name] for name in asked_for(call)))
    except Exception as error:  # noqa: BLE001, whatever would end a program
        return f"{type(error).__name__}: {error}"
    return ""


def asked_for(call: Any) -> list[str]:
    """Names of the arguments without a default."""
    try:
        parameters = inspect.signature(call).parameters.values()
    except (TypeError, ValueError):  # some classes in C have none
        return []
    positional = (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    )
    return [
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty and parameter.kind in positional
    ]


def test_names_of_the_core_are_there_where_no_stub_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with simulated_gpu():
        monkeypatch.setattr(cuda_api, "names_of_cuda", frozenset)

        assert torch._C._cuda_emptyCache() is None
        assert torch._C._cuda_setDevice(0) is None
        assert not hasattr(torch._C, "_no_such_name")
