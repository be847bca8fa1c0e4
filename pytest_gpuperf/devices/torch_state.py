"""Global state of torch: settings that a training step depends on, GPUs in use."""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from typing import Final


# The state of every random number generator that a step may use.


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomState:
    """States of Python, torch with its CUDA devices, and NumPy, if it is loaded."""

    python: Any
    torch: Any = None
    cuda: Any = None
    numpy: Any = None

    @classmethod
    def now(cls) -> RandomState:
        """Read them all, loading nothing for the question."""
        torch: Any = sys.modules.get("torch")
        numpy: Any = sys.modules.get("numpy.random")
        return cls(
            python=random.getstate(),
            torch=None if torch is None else torch.get_rng_state(),
            cuda=torch.cuda.get_rng_state_all() if _has_cuda(torch) else None,
            numpy=None if numpy is None else numpy.get_state(legacy=False),
        )

    def restore(self) -> None:
        """Restore them all; a source that was not loaded then is left as it is."""
        random.setstate(self.python)
        if self.torch is not None:
            sys.modules["torch"].set_rng_state(self.torch)
        if self.cuda is not None:
            sys.modules["torch"].cuda.set_rng_state_all(self.cuda)
        if self.numpy is not None:
            sys.modules["numpy.random"].set_state(self.numpy)


def _has_cuda(torch: Any) -> bool:
    # Reading the state of a CUDA generator would create a context on the GPU.
    return torch is not None and bool(torch.cuda.is_initialized())


def wait_for_gpus(torch: Any) -> None:
    """Wait for the current GPU and each other one that this process has used.

    No context is made on a GPU that has none: it would take memory of others.
    """
    cuda = torch.cuda
    # Asked before anything is waited for, while the GPUs work: it takes no time then.
    others = [index for index in range(cuda.device_count()) if _is_used(torch, index)]
    cuda.synchronize()
    for index in others:
        cuda.synchronize(index)


def _is_used(torch: Any, index: int) -> bool:
    return index != torch.cuda.current_device() and bool(
        torch._C._cuda_hasPrimaryContext(index)  # noqa: SLF001  there is no public name
    )


CONFIGURED: Final = ("torch._dynamo.config", "torch._inductor.config")
"""Modules of settings."""

HOOKS: Final = (
    "_global_backward_pre_hooks",
    "_global_backward_hooks",
    "_global_forward_pre_hooks",
    "_global_forward_hooks",
    "_global_buffer_registration_hooks",
    "_global_module_registration_hooks",
    "_global_parameter_registration_hooks",
)
"""Of ``torch.nn.modules.module``: they run for every module of the process."""


def process_settings() -> Mapping[str, str]:
    """Return the global state of this process that a step depends on, by name."""
    return {**settings(), **contexts()}


def settings() -> Mapping[str, str]:
    """Return the settings of this process by name; nothing is loaded for it."""
    found = {
        "garbage collection": f"{gc.isenabled()} {gc.get_threshold()}",
        "recursion limit": str(sys.getrecursionlimit()),
    }
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        found |= {name: str(ask(torch)) for name, ask in _SETTINGS.items()}
        found |= {name: _unusual(name) for name in CONFIGURED if name in sys.modules}
    return found


def contexts() -> Mapping[str, str]:
    """Return, by name, the contexts of torch in which this thread is."""
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return {}
    return {name: str(ask(torch)) for name, ask in _CONTEXTS.items()}


def operations_from(files: Collection[str]) -> list[str]:
    """Return the operations of ``torch.library`` that code in *files* defines.

    A second definition of a name replaces the first without a warning.
    """
    known: Any = sys.modules.get("torch._library.custom_ops")
    found = getattr(known, "OPDEFS", {}).items()
    return [name for name, operation in found if _file(operation) in files]


def loaded_libraries() -> frozenset[str]:
    """Return the files of compiled operations that were loaded by hand."""
    torch: Any = sys.modules.get("torch")
    found = () if torch is None else torch.ops.loaded_libraries
    return frozenset(map(str, found))


def _file(operation: Any) -> str:
    code = getattr(getattr(operation, "_init_fn", None), "__code__", None)
    return str(getattr(code, "co_filename", ""))


def _unusual(name: str) -> str:
    """Return the settings of a module that are not its defaults, as code."""
    ask = getattr(sys.modules[name], "codegen_config", None)
    return "" if ask is None else str(ask())


def _hooks(torch: Any) -> int:
    module = torch.nn.modules.module
    return sum(len(getattr(module, name, ())) for name in HOOKS)


_SETTINGS: Final[Mapping[str, Callable[[Any], object]]] = {
    "torch.get_default_dtype()": lambda torch: torch.get_default_dtype(),
    "torch.get_num_threads()": lambda torch: torch.get_num_threads(),
    "deterministic algorithms": lambda torch: (
        torch.get_deterministic_debug_mode(),
        torch.utils.deterministic.fill_uninitialized_memory,
    ),
    "float32 matmul precision": lambda torch: torch.get_float32_matmul_precision(),
    "torch.backends.cudnn": lambda torch: (
        torch.backends.cudnn.enabled,
        torch.backends.cudnn.benchmark,
        torch.backends.cudnn.deterministic,
    ),
    "torch.backends.mkldnn.enabled": lambda torch: torch.backends.mkldnn.enabled,
    "fused attention": lambda torch: (
        torch.backends.cuda.flash_sdp_enabled(),
        torch.backends.cuda.mem_efficient_sdp_enabled(),
        torch.backends.cuda.math_sdp_enabled(),
        torch.backends.cuda.cudnn_sdp_enabled(),
    ),
    "torch.set_flush_denormal()": lambda torch: (
        # torch can set this flag and cannot read it. A denormal number times 1 is zero
        # if it is on; ``device`` is named so that a default device changes nothing.
        not torch.full((), 1e-310, dtype=torch.float64, device="cpu").mul(1.0).item()
    ),
    "global hooks of modules": _hooks,
}

_CONTEXTS: Final[Mapping[str, Callable[[Any], object]]] = {
    "torch.inference_mode()": lambda torch: torch.is_inference_mode_enabled(),
    "torch.no_grad()": lambda torch: not torch.is_grad_enabled(),
    "torch.autocast": lambda torch: tuple(
        kind for kind in ("cuda", "cpu") if torch.is_autocast_enabled(kind)
    ),
    "a mode of torch.overrides, such as a default device": lambda torch: (
        torch._C._len_torch_function_stack()  # noqa: SLF001, there is no other way
    ),
    "torch.autograd.graph.saved_tensors_hooks": lambda torch: (
        torch._C._autograd._top_saved_tensors_default_hooks(True)  # noqa: FBT003, SLF001
        is not None
    ),
}
