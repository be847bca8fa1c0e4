"""What keeps two versions of a project from standing in one process."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pytest_gpuperf.compare_commits.module_view import Guest
from pytest_gpuperf.compare_commits.module_view import View
from pytest_gpuperf.compare_commits.one_process import Beginning
from pytest_gpuperf.compare_commits.one_process import alone
from pytest_gpuperf.compare_commits.one_process import changed
from pytest_gpuperf.compare_commits.one_process import together
from pytest_gpuperf.compare_commits.one_process import unlike
from pytest_gpuperf.devices.torch_state import RandomState
from pytest_gpuperf.measure.step import Subject
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.runner.relocation import Relocation
from pytest_gpuperf.runner.request import RunRequest


torch = pytest.importorskip("torch")

SHARED = "shared_by_both"


def module(name: str, file: str | None = None, **attributes: object) -> ModuleType:
    made = ModuleType(name)
    made.__file__ = file
    vars(made).update(attributes)
    return made


def function(file: str, body: str = "pass") -> Any:
    """Return a function that stands in *file*."""
    space: dict[str, Any] = {}
    exec(compile(f"def made(*given): {body}", file, "exec"), space)  # noqa: S102
    return space["made"]


def view(folder: Path, name: str, **modules: ModuleType) -> View:
    root = str(folder / name)
    relocation = Relocation(origin=str(folder / "after"), root=root)
    request = RunRequest(tests=(), device=DeviceKind.CPU)
    return View(
        name=name,
        guest=Guest(run=request, relocation=relocation, environment={}),
        directory=root,
        path=[],
        finders=[],
        environment={},
        random=RandomState.now(),
        modules=modules,
    )


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module of both, with a class."""
    made = module(SHARED, Thing=type("Thing", (), {"__module__": SHARED}))
    monkeypatch.setitem(sys.modules, SHARED, made)
    return made


@pytest.fixture
def beginning(shared: ModuleType) -> Beginning:
    return Beginning.now()


class TestAlone:
    def test_pure_python_is_welcome(self, tmp_path: Path, beginning: Beginning) -> None:
        own = view(tmp_path, "before", pkg=module("pkg", f"{tmp_path}/before/pkg.py"))

        assert alone(own, beginning) is None

    def test_compiled_code(self, tmp_path: Path, beginning: Beginning) -> None:
        fast = module("pkg.fast", f"{tmp_path}/before/fast.abi3.so")
        own = view(tmp_path, "before", **{"pkg": module("pkg"), "pkg.fast": fast})

        assert alone(own, beginning) == (
            "before has its own compiled code, pkg.fast, and a process can load only one version"
        )

    def test_a_module_inside_of_one_that_both_share(
        self, tmp_path: Path, beginning: Beginning
    ) -> None:
        inside = f"{SHARED}.inside"
        own = view(tmp_path, "after", **{inside: module(inside)})

        assert alone(own, beginning) == (
            f"{inside} of after is inside of {SHARED}, which both share"
        )

    def test_an_operation_of_torch(self, tmp_path: Path, beginning: Beginning) -> None:
        file = f"{tmp_path}/before/ops.py"
        define = torch.library.custom_op("gpuperf_test::alone", mutates_args=())
        made = eval(  # noqa: S307 - its code must say that it stands in the file
            compile("lambda x: x.clone()", file, "eval")
        )
        made.__annotations__ = {"x": torch.Tensor, "return": torch.Tensor}
        define(made)
        own = view(tmp_path, "before", ops=module("ops", file))

        assert alone(own, beginning) == (
            "before registers the operation gpuperf_test::alone, and a process can register it only once"
        )

    @pytest.mark.parametrize(
        ("context", "called"),
        [
            (torch.no_grad, "torch.no_grad()"),
            (torch.inference_mode, "torch.inference_mode()"),
            (lambda: torch.autocast("cpu"), "torch.autocast"),
            (
                lambda: torch.device("meta"),
                "a mode of torch.overrides, such as a default device",
            ),
            (
                lambda: torch.autograd.graph.saved_tensors_hooks(id, id),
                "torch.autograd.graph.saved_tensors_hooks",
            ),
        ],
    )
    def test_a_context(
        self, tmp_path: Path, beginning: Beginning, context: Any, called: str
    ) -> None:
        own = view(tmp_path, "before")

        with context():
            found = alone(own, beginning)

        assert found == (
            f"before calls gpuperf(step) inside {called}, where the other version "
            "would be set up as well"
        )

    @pytest.fixture
    def thread(self, beginning: Beginning) -> Iterator[None]:
        end = threading.Event()
        made = threading.Thread(target=end.wait, name="prefetch")
        made.start()
        yield
        end.set()
        made.join()

    @pytest.mark.usefixtures("thread")
    def test_a_thread_at_work(self, tmp_path: Path, beginning: Beginning) -> None:
        assert alone(view(tmp_path, "after"), beginning) == (
            "after keeps a thread running, prefetch, beside the other"
        )


class TestTogether:
    @pytest.fixture
    def files(self, tmp_path: Path) -> tuple[str, str]:
        return f"{tmp_path}/before/pkg.py", f"{tmp_path}/after/pkg.py"

    @pytest.fixture
    def both(self, tmp_path: Path, files: tuple[str, str]) -> tuple[View, View]:
        before, after = files
        return (
            view(tmp_path, "before", pkg=module("pkg", before)),
            view(tmp_path, "after", pkg=module("pkg", after)),
        )

    def said(
        self, both: tuple[View, View], beginning: Beginning, *steps: Any
    ) -> str | None:
        for view_of_one, step in zip(both, steps or (int, int), strict=True):
            view_of_one.subject = Subject(step=step)
        return together(both, {SHARED: sys.modules[SHARED]}, beginning)

    def test_versions_that_leave_what_they_share_alone(
        self, both: tuple[View, View], beginning: Beginning, files: tuple[str, str]
    ) -> None:
        own = (function(files[0]), function(files[1]))

        assert self.said(both, beginning, *own) is None

    def test_a_function_in_the_place_of_another(
        self,
        both: tuple[View, View],
        shared: ModuleType,
        beginning: Beginning,
        files: tuple[str, str],
    ) -> None:
        vars(shared)["linear"] = function(files[1])

        assert self.said(both, beginning) == (
            f"after replaces {SHARED}.linear, which both use"
        )

    @pytest.mark.parametrize("wrapped", [lambda f: f, staticmethod, property])
    def test_a_method_in_the_place_of_another(
        self,
        both: tuple[View, View],
        shared: ModuleType,
        beginning: Beginning,
        files: tuple[str, str],
        wrapped: Any,
    ) -> None:
        shared.Thing.method = wrapped(function(files[0]))

        assert self.said(both, beginning) == (
            f"before replaces {SHARED}.Thing.method, which both use"
        )

    def test_state_in_a_module_of_both(
        self, both: tuple[View, View], shared: ModuleType, beginning: Beginning
    ) -> None:
        vars(shared)["registry"] = []

        assert self.said(both, beginning) == (
            f"{SHARED}.registry was set there, so both versions see it"
        )

    def test_a_step_that_uses_code_of_the_other(
        self, both: tuple[View, View], beginning: Beginning, files: tuple[str, str]
    ) -> None:
        other = function(files[1])

        def step() -> object:
            return other()

        assert self.said(both, beginning, step, int) == (
            f"before uses code of the other version, from {files[1]}"
        )

    def test_a_module_of_the_other_version(
        self, both: tuple[View, View], beginning: Beginning, files: tuple[str, str]
    ) -> None:
        before, after = both
        before.modules["pkg"] = after.modules["pkg"]

        assert self.said(both, beginning) == f"before imported pkg from {files[1]}"


def test_settings_that_differ() -> None:
    assert unlike({"a": "1"}, {"a": "1"}) is None
    assert unlike({"a": "1"}, {"a": "1", "b": "2"}) == (
        "b is nothing before and 2 after, and a process has it once"
    )
    assert changed({"a": "1"}, {"a": "1"}) is None
    assert changed({"a": "1"}, {"a": "2"}) == (
        "a is 1 for each by itself and 2 for both together"
    )
