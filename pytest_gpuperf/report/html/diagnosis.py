"""What a step waits for: a list, what to look at first on top."""

from __future__ import annotations

from collections.abc import Iterator

from ...model.diagnosis import Diagnosis
from ..diagnosis import heading
from ..diagnosis import sentences
from .markup import Markup
from .markup import tag


def diagnosis_list(diagnosis: Diagnosis | None) -> Iterator[Markup]:
    """Yield a titled list of the parts; nothing where there is no diagnosis."""
    if diagnosis is None:
        return
    items = [
        tag("li", tag("b", amount), f" {text}") for amount, text in sentences(diagnosis)
    ]
    title = heading(diagnosis).rstrip(":")
    yield tag("h3", f"{title[0].upper()}{title[1:]}")
    yield tag("ol", *items, class_="findings diagnosis")
