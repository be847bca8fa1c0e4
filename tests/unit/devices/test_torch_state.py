"""What a process has once, and where its random numbers stand."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from pytest_gpuperf.devices.torch_state import RandomState
from pytest_gpuperf.devices.torch_state import settings


torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def kept() -> Iterator[None]:
    """Torch's settings and the random numbers as they were."""
    state, dtype, threads = RandomState.now(), torch.get_default_dtype(), None
    threads = torch.get_num_threads()
    yield
    state.restore()
    torch.set_default_dtype(dtype)
    torch.set_num_threads(threads)
    torch.set_flush_denormal(False)
    torch.backends.cudnn.benchmark = False
    sys.modules["torch._dynamo.config"].recompile_limit = 8


def changed(before: Any) -> dict[str, str]:
    return {name: value for name, value in settings().items() if before[name] != value}


def test_settings_that_are_changed_show() -> None:
    import torch._dynamo.config

    torch.set_num_threads(1)
    before = settings()
    torch.set_num_threads(2)
    torch.set_default_dtype(torch.float64)
    torch.backends.cudnn.benchmark = True
    torch.set_flush_denormal(True)
    torch._dynamo.config.recompile_limit = 3
    hook = torch.nn.modules.module.register_module_forward_hook(print)

    found = changed(before)
    hook.remove()

    assert found == {
        "torch.get_num_threads()": "2",
        "torch.get_default_dtype()": "torch.float64",
        "torch.backends.cudnn": "(True, True, False)",
        "torch.set_flush_denormal()": "True",
        "torch._dynamo.config": "torch._dynamo.config.recompile_limit = 3",
        "global hooks of modules": "1",
    }


def test_random_numbers_go_on_where_they_stood() -> None:
    def drawn() -> tuple[object, ...]:
        return random.getrandbits(64), torch.rand(3).tolist()

    state = RandomState.now()
    first, second = drawn(), drawn()
    state.restore()

    assert [drawn(), drawn()] == [first, second]
