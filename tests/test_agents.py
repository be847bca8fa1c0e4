"""What agents read: short, with every command and option as it is."""

from __future__ import annotations

import re
from typing import Final

import pytest
from documents import ROOT

from pytest_gpuperf.cli import COMMANDS
from pytest_gpuperf.model.ab import AbOutcome


PAGE: Final = (ROOT / "docs/agents.md").read_text("utf-8")
SKILL: Final = (ROOT / "skills/gpuperf/SKILL.md").read_text("utf-8")

MOST_WORDS: Final = 600
MOST_LINES: Final = 60


def test_they_are_short() -> None:
    assert len(PAGE.split()) <= MOST_WORDS
    assert len(SKILL.splitlines()) <= MOST_LINES


def test_a_skill_says_its_name_and_when_to_use_it() -> None:
    front = re.match(r"---\nname: gpuperf\ndescription: >-\n((?:  .+\n)+)---\n", SKILL)

    assert front is not None
    assert "Use it" in front[1]


@pytest.mark.parametrize("text", [PAGE, SKILL], ids=["page", "skill"])
def test_each_command_that_an_agent_reads_exists(text: str) -> None:
    named = set(re.findall(r"`(?:gpuperf|    gpuperf) ([a-z-]+)", text))

    assert named
    assert named <= set(COMMANDS)


@pytest.mark.parametrize("outcome", AbOutcome, ids=lambda o: o.name)
def test_the_page_says_what_each_answer_means(outcome: AbOutcome) -> None:
    assert f"| `{outcome.value}` |" in PAGE
