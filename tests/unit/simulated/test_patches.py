"""Names that are replaced while the simulated GPU is there, and what must not see that."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from pytest_gpuperf.devices.simulated.patches import (
    NOT_PATCHED,
    Patch,
    patched,
    when_loaded,
)


@pytest.fixture
def owner(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return a module with a function, and make it one that can be imported."""
    module = ModuleType("owner_of_names")
    vars(module)["name"] = lambda: "own"
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def seen(module: ModuleType) -> str:
    found = vars(module).get("name", NOT_PATCHED)
    return str(found()) if callable(found) else "missing"


def test_suspended_patches_are_undone_and_come_back(owner: ModuleType) -> None:
    with patched([Patch(owner, "name", lambda: "patched")]) as suspended:
        with suspended():
            inside = seen(owner)
        after = seen(owner)

    assert (inside, after, seen(owner)) == ("own", "patched", "own")


def test_a_module_that_is_loaded_late_runs_without_the_patches_and_gets_them_after(
    owner: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "late_of_names", raising=False)
    (tmp_path / "late_of_names.py").write_text(
        "from owner_of_names import name\nfirst = name()\n", "utf-8"
    )
    loaded: list[str] = []

    with (
        patched([Patch(owner, "name", lambda: "patched")]) as suspended,
        when_loaded("late_of_names", lambda m: loaded.append(m.first), suspended),
    ):
        import late_of_names

        now = seen(late_of_names)

    assert (loaded, now, seen(late_of_names)) == (["own"], "patched", "own")
