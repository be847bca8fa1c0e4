"""``gpuperf ab --lock=FILE --which``: the package that makes it worse; nothing is run here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from test_ab_packages import here

from pytest_gpuperf import environments as overlay
from pytest_gpuperf.cli import ab, main
from pytest_gpuperf.compare_commits.sides import Side
from pytest_gpuperf.model.ab import (
    AbRun,
    Comparison,
    ExactChange,
    Training,
    TrainingAnswer,
    Turn,
)


__all__ = ["here"]  # a fixture

NEW = ("fastops==1.0", "slowops==5.0", "thirdops==3.0")

NEEDED = "colorama==0.4.6"
"""What an old version asks for."""

WORSE = ExactChange(metric="syncs", before=0, after=3, turn=Turn.WORSE, gated=True)


OTHER = Training(
    answer=TrainingAnswer.DIFFERS, text="lr of weight: 0.1 before, 0.2 after"
)


class Everything:
    """An installer that has every version."""

    def needs(self, requirements: Sequence[str]) -> tuple[str, ...]:
        added = {*requirements, NEEDED}.difference(NEW)
        return tuple(sorted(each.replace("thirdops", "ThirdOps") for each in added))

    def install(self, packages: Sequence[str], folder: Path) -> None:
        assert NEEDED not in packages, "neither the lock nor this machine has it"
        folder.mkdir()


def compared(sides: tuple[Side, Side], **_: object) -> AbRun:
    """Find syncs wherever slowops is as it is here."""
    before, after = sides
    waits = not any(each.startswith("slowops") for each in after.packages.changes)
    call = Comparison(test="train.py", exact=(WORSE,) if waits else ())
    return AbRun(
        before=before.label, after=after.label, device="d", engine="e", calls=(call,)
    )


@pytest.fixture(autouse=True)
def _changed(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in NEW[1:]:
        name, _, version = package.partition("==")
        about = here.parent / "site-packages" / f"{name}-{version}.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    monkeypatch.setattr(overlay, "installer", Everything)
    monkeypatch.setattr(
        ab, "compare_program", lambda both, *_: compared(both, only=None)
    )
    Path("train.py").write_text("")
    Path("old.txt").write_text("fastops==0.9\nslowops==4.0\nthirdops==2.0\n")


def run(*options: str) -> int:
    return main(["ab", "--lock=old.txt", *options, "--", "train.py"])


def test_the_package_that_makes_it_worse_is_named_with_its_numbers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("--which") == 1

    said = " ".join(capsys.readouterr().out.split())
    assert "note: slowops 4.0 -> 5.0: train.py: syncs 0 -> 3 gpuperf: " in said
    assert "fastops 0.9 -> 1.0: " not in said


def test_the_package_that_changes_the_training_alone_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def trained(both: tuple[Side, Side], *_: object) -> AbRun:
        found = compared(both)
        training = (
            OTHER
            if found.is_worse
            else Training(answer=TrainingAnswer.SAME, text="all agree")
        )
        call = Comparison(test="train.py", training=training)
        return replace(found, calls=(call,))

    monkeypatch.setattr(ab, "compare_program", trained)

    assert run("--which") == 2

    said = " ".join(capsys.readouterr().out.split())
    assert (
        "note: slowops 4.0 -> 5.0: train.py: training differs: lr of weight: 0.1 before, "
        "0.2 after gpuperf: "
    ) in said


def test_without_the_option_a_note_says_how_to_ask_where_several_changed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run() == 1
    several = " ".join(capsys.readouterr().out.split())
    Path("old.txt").write_text("thirdops==2.0\n")
    assert run() == 1

    note = "note: 3 packages differ: --which names the one that did it gpuperf: 1 worse"
    assert note in several
    assert "--which" not in capsys.readouterr().out


def test_ctrl_c_says_what_is_known_so_far(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def interrupted(both: tuple[Side, Side], *_: object) -> AbRun:
        asked.append(both)
        if len(asked) > 1:
            raise KeyboardInterrupt
        return compared(both)

    monkeypatch.setattr(ab, "compare_program", interrupted)

    assert run("--which") == 130

    said = " ".join(capsys.readouterr().out.split())
    assert "interrupted: what did it is among fastops 0.9 -> 1.0, " in said
    assert said.endswith("gpuperf: 1 worse")


@pytest.mark.parametrize(
    "typed", [["--which"], ["--which", "--lock=old.txt", "--without=fastops"]]
)
def test_it_takes_a_lock_file_alone(
    typed: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ab", *typed]) == 125

    assert "--which: expected --lock=FILE and no other" in capsys.readouterr().err
