"""Texts that leave this machine hold no absolute path."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pytest_gpuperf.measure.profile import portable_from


ROOT = Path("/work of ann/project")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/work of ann/project/train.py(12): step", "train.py(12): step"),
        ("gpuperf.sync|/work of ann/project/a/b.py|7|f", "gpuperf.sync|a/b.py|7|f"),
        ("gpuperf.sync|/home of bob/lib/b.py|7|f", "gpuperf.sync|b.py|7|f"),
        ("/home/bob/train.py(3): <lambda>", "train.py(3): <lambda>"),
        ("load /home/bob/x.pt and /home/bob/y.pt", "load x.pt and y.pt"),
        ("in=/home/bob/x.pt", "in=x.pt"),
        ("/home/bob/", "home/bob"),
        ("aten::div", "aten::div"),
        ("Torch-Compiled Region: 0/0", "Torch-Compiled Region: 0/0"),
        ("torch/nn/functional.py(1): linear", "torch/nn/functional.py(1): linear"),
        ("see https://example.com/a/b", "see https://example.com/a/b"),
    ],
)
def test_a_path_is_named_from_the_project_on_or_by_its_file(
    text: str, shown: str
) -> None:
    assert portable_from(ROOT)(text) == shown


def test_an_installed_file_is_named_from_its_package_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "path", ["", "relative", "/", "/venv/site-packages"])

    portable = portable_from(ROOT)

    assert portable("/venv/site-packages/torch/optim/adam.py") == "torch/optim/adam.py"
    assert portable("relative/a.py") == "relative/a.py"


def test_a_link_to_the_project_is_followed(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    link = tmp_path / "link"
    link.symlink_to(real)

    assert portable_from(link)(f"{real}/train.py") == "train.py"
    assert portable_from(link)(f"{link}/sub/train.py") == "sub/train.py"
