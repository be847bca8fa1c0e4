"""When a step waits for its loader, by the ranges that torch's DataLoader leaves."""

from __future__ import annotations

import re
from collections.abc import Iterable
from collections.abc import Iterator
from typing import Final

from ..devices.protocol import TraceEvent
from .trace import ANNOTATIONS
from .trace import Span
from .trace import number


LOADER: Final = re.compile(r"enumerate\(DataLoader\)#.*__next__")
"""As ``torch.utils.data.dataloader`` names the range around each batch that it hands out."""


def loader_spans(events: Iterable[TraceEvent]) -> Iterator[Span]:
    """Yield the ranges in which somebody waits for a batch; broken ones are left out."""
    for event in events:
        if str(event.get("cat")).lower() not in ANNOTATIONS or event.get("ph") != "X":
            continue
        name = str(event.get("name"))
        start_us, duration_us = number(event.get("ts")), number(event.get("dur"))
        if LOADER.fullmatch(name) and start_us is not None and duration_us:
            thread = (str(event.get("pid")), str(event.get("tid")))
            yield Span(name, thread, start_us, start_us + max(0.0, duration_us))
