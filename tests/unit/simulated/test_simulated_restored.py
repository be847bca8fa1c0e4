"""Leaving the simulated GPU leaves torch as it was, whatever happened inside."""

from __future__ import annotations

import copy
import importlib
import logging
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


torch = pytest.importorskip("torch")

from pytest_gpuperf.devices.simulated import (
    dispatch,
    settings_against_allocated,
    settings_against_reserved,
    simulated_gpu,
)
from pytest_gpuperf.devices.simulated.errors import own_failure
from pytest_gpuperf.devices.simulated.op_plan import Flops, plan_of, schema_of
from pytest_gpuperf.errors import ErrorId, StepError


def owners() -> Iterator[tuple[str, Any]]:
    """Every module of torch that is loaded, and every class in it."""
    for name, module in list(sys.modules.items()):
        if isinstance(module, ModuleType) and name.partition(".")[0] == "torch":
            yield name, module
            for kind_name, kind in list(vars(module).items()):
                if issubclass(type(kind), type):
                    yield f"{name}.{kind_name}", kind


def snapshot() -> dict[tuple[str, str], Any]:
    return {
        (place, name): value
        for place, owner in owners()
        for name, value in list(vars(owner).items())
    }


def kernels() -> tuple[str, ...]:
    operations = ("aten::linear", "aten::empty.memory_format", "aten::_to_copy")
    return tuple(torch._C._dispatch_dump(name) for name in operations)


def lists() -> tuple[Any, ...]:
    optimizer = sys.modules["torch.optim.optimizer"]
    return (
        list(optimizer._foreach_supported_types),
        set(torch.jit._builtins._get_builtin_table()),
        torch.get_default_device(),
        torch._C._len_torch_function_stack(),
        torch._C._len_torch_dispatch_stack(),
    )


ONCE = {
    "_DEFAULT_DEVICE_TYPE",
    "_global_module_registration_hooks",
    "__warningregistry__",
}


def differences(before: dict[Any, Any], after: dict[Any, Any]) -> list[Any]:
    return [
        key
        for key, value in before.items()
        if key not in after or after[key] is not value
    ] + [key for key in after if key not in before and key[1] not in ONCE]


def train() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU()).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    with torch.autocast("cuda"):
        loss = model(torch.ones(2, 3, device="cuda")).sum()
    loss.backward()
    optimizer.step()
    torch.compile(model)(torch.ones(2, 3, device="cuda"))


@pytest.fixture(scope="module", autouse=True)
def _loaded() -> None:
    """Import what the first step of any optimizer or the first entry imports."""
    with simulated_gpu():
        train()


def test_torch_is_what_it_was() -> None:
    before, kernels_before, lists_before = snapshot(), kernels(), lists()

    with simulated_gpu():
        train()
        inside = snapshot()

    assert differences(before, snapshot()) == []
    assert (kernels(), lists()) == (kernels_before, lists_before)
    assert ("torch.cuda", "is_available") in differences(before, inside)


def test_torch_is_what_it_was_after_a_crash_in_the_middle() -> None:
    before, kernels_before, lists_before = snapshot(), kernels(), lists()

    def crash() -> None:
        with simulated_gpu(), torch.autocast("cuda"), torch.device("cuda"):
            train()
            msg = "the data ran out"
            raise RuntimeError(msg)

    with pytest.raises(RuntimeError, match="the data ran out"):
        crash()

    assert differences(before, snapshot()) == []
    assert (kernels(), lists()) == (kernels_before, lists_before)


def test_torch_is_what_it_was_after_a_crash_on_the_way_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before, kernels_before = snapshot(), kernels()
    from pytest_gpuperf.devices.simulated import gpu

    def broken() -> Iterator[Any]:
        yield from gpu.query_patches()
        msg = "no more patches"
        raise RuntimeError(msg)

    monkeypatch.setattr(gpu, "_patches", broken)

    with pytest.raises(RuntimeError, match="no more patches"), simulated_gpu():
        pass

    assert differences(before, snapshot()) == []
    assert kernels() == kernels_before


def test_contexts_nest_and_each_records_what_happens_inside_it() -> None:
    with simulated_gpu() as outer:
        with simulated_gpu() as inner:
            torch.ones((), device="cuda").item()
            inside = inner.end_step()
        assert torch.cuda.is_available()
        torch.ones((), device="cuda").item()
        outside = outer.end_step()

    assert (inside.totals.syncs, outside.totals.syncs) == (1, 2)


def test_a_name_taken_out_of_torch_before_is_replaced_and_put_back() -> None:
    module = ModuleType("taken")
    module.zeros = torch.zeros  # type: ignore[attr-defined]
    sys.modules["taken"] = module
    try:
        with simulated_gpu():
            made = module.zeros(2, device="cuda")
    finally:
        del sys.modules["taken"]

    assert made.is_cuda
    assert module.zeros is torch.zeros


def test_a_function_kept_from_before_does_not_start_cuda() -> None:
    kept = [torch.zeros]

    with simulated_gpu(), pytest.raises(StepError) as raised:
        kept[0](2, device="cuda")

    assert raised.value.error_id is ErrorId.GP306


def test_a_tensor_that_outlives_the_pretence_still_computes() -> None:
    with simulated_gpu():
        left = torch.ones(2, device="cuda")

    assert (left + 1).cpu().tolist() == [2.0, 2.0]


def multiply() -> None:
    torch.ones(2, 3, device="cuda") @ torch.ones(2, 3, device="cuda")


def test_an_error_is_the_users_own_without_frames_of_ours() -> None:
    def fail() -> None:
        with simulated_gpu():
            multiply()

    with pytest.raises(RuntimeError, match="cannot be multiplied") as raised:
        fail()

    frames = traceback.extract_tb(raised.value.__traceback__)
    assert frames[-1].name == "multiply"
    assert not [
        f for f in frames if "devices/simulated" in f.filename.replace("\\", "/")
    ]


def test_errors_that_users_show_themselves_have_no_frames_of_ours(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def raised_while_inside() -> str:
        try:
            try:
                multiply()
            except RuntimeError as error:
                raise ValueError from error
        except ValueError as error:
            logging.getLogger("run").exception("caught")
            names = [
                f.name for f in traceback.extract_tb(error.__cause__.__traceback__)
            ]
            return f"{traceback.format_exc()}{names}"

    with simulated_gpu():
        shown = raised_while_inside()

    assert "mat1 and mat2 shapes cannot be multiplied" in shown
    assert shown.endswith("['raised_while_inside', 'multiply']")
    assert f"devices{os.sep}simulated" not in shown
    assert "in multiply" in caplog.text
    assert f"devices{os.sep}simulated" not in caplog.text


def test_frames_of_ours_hide_from_pytest_while_inside() -> None:
    with simulated_gpu(), pytest.raises(RuntimeError) as raised:
        multiply()

    shown = raised.traceback.filter(raised)
    assert shown[-1].name == "multiply"


def test_a_frame_of_ours_that_nothing_stands_below_is_shown() -> None:
    with simulated_gpu(), pytest.raises(RuntimeError) as raised:
        multiply()

    last = raised.tb
    while last.tb_next is not None:
        last = last.tb_next
    with simulated_gpu():
        (frame,) = traceback.extract_tb(last, limit=1)
    assert f"devices{os.sep}simulated" in frame.filename


def test_an_operation_without_any_kernel_says_what_to_do() -> None:
    library = torch.library.Library("gpuperf_nowhere", "DEF")
    library.define("lost(Tensor x) -> Tensor")
    try:
        with simulated_gpu(), pytest.raises(StepError) as raised:
            torch.ops.gpuperf_nowhere.lost(torch.ones(2, device="cuda"))
    finally:
        library._destroy()

    assert raised.value.error_id is ErrorId.GP308


def broken(*_: object, **__: object) -> Any:
    return multiply.no_such_name


def of_addition(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The plan of an addition, which fails in *name*."""
    plan = copy.copy(plan_of(torch.ops.aten.add.Tensor))
    failing = {"rules": [SimpleNamespace(when=broken)], "flops": Flops(broken)}
    monkeypatch.setattr(plan, name, failing.get(name, kernel))
    monkeypatch.setattr(dispatch, "plan_of", lambda _: plan)


def kernel(*_: object) -> Any:
    return own_failure(None)


@pytest.mark.parametrize("name", ["rules", "flops", "kernel"])
def test_a_bug_of_ours_is_named_as_ours_and_the_program_goes_on(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with simulated_gpu() as gpu:
        one = torch.ones(2, device="cuda")
        gpu.begin_step()
        with monkeypatch.context() as patching:
            of_addition(name, patching)
            two = one + one
        audit = gpu.end_step()
        assert two.tolist() == [2.0, 2.0]

    (unchecked,) = audit.not_checked
    assert unchecked.op == "aten::add"
    assert unchecked.reason.startswith(
        "the simulated GPU failed here by a bug of its own, not of your code: please "
        "report AttributeError at "
    )


def test_a_bug_of_ours_that_ends_the_program_is_named_as_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with simulated_gpu():
        one = torch.ones(2, device="cuda")
        monkeypatch.setattr(dispatch, "wrap", broken)
        with pytest.raises(StepError, match="aten::add: the simulated GPU") as raised:
            one + one

    assert raised.value.error_id is ErrorId.GP310


def test_an_error_in_a_kernel_of_the_user_is_the_users_own() -> None:
    @torch.library.custom_op("gpuperf_test::wrong", mutates_args=())
    def wrong(x: torch.Tensor) -> torch.Tensor:
        return x.no_such_name

    with simulated_gpu(), pytest.raises(AttributeError, match="no_such_name"):
        wrong(torch.ones(2, device="cuda"))


def test_a_kernel_of_triton_launches_nothing_while_inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = tmp_path / "triton" / "runtime"
    runtime.mkdir(parents=True)
    (runtime.parent / "__init__.py").touch()
    (runtime / "__init__.py").touch()
    (runtime / "jit.py").write_text(
        "class JITFunction:\n    def run(self):\n        return 'launched'\n"
    )
    loaded = {name for name in sys.modules if name.partition(".")[0] == "triton"}
    for name in loaded:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    finders = list(sys.meta_path)

    with simulated_gpu() as gpu:
        jit = importlib.import_module("triton.runtime.jit")
        launched = jit.JITFunction().run()
        unchecked = [u.op for u in gpu.end_step().not_checked]
    for name in ("triton", "triton.runtime", "triton.runtime.jit"):
        del sys.modules[name]  # for good: monkeypatch would put the false one back

    assert launched is None
    assert unchecked == ["triton kernel kernel"]
    assert jit.JITFunction().run() == "launched"
    assert type(jit.__loader__).__name__ == "SourceFileLoader"
    assert sys.meta_path == finders


def test_importing_the_package_does_not_import_torch() -> None:
    code = "import sys, pytest_gpuperf.devices.simulated as _; print('torch' in sys.modules)"
    import subprocess

    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout

    assert printed == "False\n"


def test_schemas_are_read_off_overloads() -> None:
    assert schema_of(torch.ops.aten.add.Tensor).name == "aten::add"


@pytest.mark.filterwarnings("ignore")
def test_settings_of_the_allocator_that_code_makes_leave_reserved_memory_unchecked() -> (
    None
):
    with simulated_gpu():
        torch.cuda.memory._set_allocator_settings("expandable_segments:True")
        said = settings_against_reserved({})

        assert settings_against_allocated({}) is None
    assert said is not None
    assert said.startswith("torch.cuda.memory._set_allocator_settings sets expandable")
    assert settings_against_reserved({}) is None
