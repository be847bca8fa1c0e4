"""The caches that a timed compiler has, and the seconds that torch says it took."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytest_gpuperf.devices.compile import INDUCTOR
from pytest_gpuperf.devices.compile import TRITON
from pytest_gpuperf.devices.compile import compiled_s
from pytest_gpuperf.devices.compile import compiling_in


def test_each_entry_into_the_compiler_counts_in_old_and_new_releases(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forward = SimpleNamespace(duration_us=15_000_000, entire_frame_compile_time_s=14.0)
    backward = SimpleNamespace(duration_us=1_500_000, entire_frame_compile_time_s=None)
    of_early_torch = SimpleNamespace(entire_frame_compile_time_s=2.0)
    refused = SimpleNamespace(duration_us=None, entire_frame_compile_time_s=None)
    dynamo = SimpleNamespace(
        get_compilation_metrics=lambda: [forward, backward, of_early_torch, refused]
    )
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", dynamo)

    assert compiled_s() == 18.5


def test_a_process_that_never_loaded_the_compiler_has_compiled_for_no_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "torch._dynamo.utils", raising=False)

    assert compiled_s() == 0.0


class FakeConfig(SimpleNamespace):
    """Settings of torch that are patched for a while."""

    @contextmanager
    def patch(self, changes: dict[str, object]) -> Iterator[None]:
        before = {name: getattr(self, name) for name in changes}
        vars(self).update(changes)
        yield
        vars(self).update(before)


def test_the_user_s_own_caches_are_out_of_reach_meanwhile_and_back_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = FakeConfig(fx_graph_remote_cache=True)
    emptied: list[str] = []
    for name, fake in {
        "_inductor.compile_fx": SimpleNamespace(),
        "_inductor.config": config,
        "_functorch.config": FakeConfig(),
        "_inductor.utils": SimpleNamespace(
            clear_inductor_caches=lambda: emptied.append(os.environ[INDUCTOR])
        ),
    }.items():
        monkeypatch.setitem(sys.modules, f"torch.{name}", fake)
    monkeypatch.setenv(INDUCTOR, "/of/the/user")
    monkeypatch.delenv(TRITON, raising=False)

    with compiling_in(tmp_path):
        inside = os.environ[INDUCTOR], os.environ[TRITON], config.fx_graph_remote_cache

    assert inside == (str(tmp_path), str(tmp_path / "triton"), False)
    assert emptied == [str(tmp_path)]
    after = os.environ[INDUCTOR], os.environ.get(TRITON), config.fx_graph_remote_cache
    assert after == ("/of/the/user", None, True)
