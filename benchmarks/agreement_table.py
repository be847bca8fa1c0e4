"""What the simulated GPU and a real one say of the same code, side by side."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final


if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest brings it there


KNOWN: Final[Mapping[str, Mapping[str, str]]] = tomllib.loads(
    Path(__file__).with_name("known_differences.toml").read_text("utf-8")
)
"""Why snippets and operations differ, or cannot be asked."""

UNKNOWN: Final = "?"
"""The line of what a trace knows no line of."""


class Standing(Enum):
    """How two devices' answers to one case stand to each other."""

    AGREE = "agree"
    OTHER_COUNT = "other count"
    """Both wait in the same samples, and not equally often."""
    OTHER_PLACE = "other place"
    """Both wait equally often, and not on the same lines, or copy otherwise."""
    OPEN = "open"
    """The simulated GPU says that only a real one can decide, and it has decided."""
    UNCHECKED = "not checked"
    DIFFER = "differ"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What one device saw in one case: syncs by sample, ``None`` where it cannot say.

    ``inconclusive`` counts what only a real GPU can decide, ``silent`` is why a sample, or the
    whole case, has no answer. ``lines`` are the syncs by line, ``pageable`` the copies
    from and to pageable memory.
    """

    syncs: tuple[int | None, ...] = ()
    inconclusive: int = 0
    silent: str = ""
    lines: Mapping[str, int] = field(default_factory=dict)
    pageable: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        known = [count for count in self.syncs if count is not None]
        parts = [str(sum(known))] if known else []
        if len(known) > 1:
            parts = [f"{sum(known)} in {sum(map(bool, known))} of {len(known)} samples"]
        if self.inconclusive:
            parts.append(f"inconclusive {self.inconclusive}")
        if self.pageable:
            parts.append(f"{sum(self.pageable.values())} pageable")
        if self.silent:
            parts.append(f"no answer: {self.silent}")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One case and both answers."""

    case: str
    simulated: Seen
    cuda: Seen

    @property
    def standing(self) -> Standing:
        """Whether the samples that both judged wait on both, and equally often."""
        pairs = [
            (simulated, cuda)
            for simulated, cuda in zip(
                self.simulated.syncs, self.cuda.syncs, strict=False
            )
            if simulated is not None and cuda is not None
        ]
        if not pairs:
            return Standing.UNCHECKED
        if all(simulated == cuda for simulated, cuda in pairs):
            return Standing.AGREE if self._is_alike() else Standing.OTHER_PLACE
        if all(bool(simulated) == bool(cuda) for simulated, cuda in pairs):
            return Standing.OTHER_COUNT
        return Standing.OPEN if self.simulated.inconclusive else Standing.DIFFER

    def _is_alike(self) -> bool:
        """Whether lines and copies are the same, too; what one side could not run is not asked."""
        if self.simulated.silent or self.cuda.silent:
            return True
        return is_same(self.simulated.lines, self.cuda.lines) and is_same(
            self.simulated.pageable, self.cuda.pageable
        )


def is_same(said: Mapping[str, int], true: Mapping[str, int]) -> bool:
    """Whether counts by line are the same; a trace may not know the line."""
    unknown = true.get(UNKNOWN, 0)
    for line in {*said, *true} - {UNKNOWN}:
        missing = said.get(line, 0) - true.get(line, 0)
        if missing < 0:
            return False
        unknown -= missing
    return unknown == said.get(UNKNOWN, 0)


def rows_of(simulated: Mapping[str, Seen], cuda: Mapping[str, Seen]) -> list[Row]:
    """Pair the answers by case, in the order of the simulated GPU's."""
    absent = Seen(silent="it was not asked")
    cases = dict.fromkeys((*simulated, *cuda))
    return [
        Row(
            case=case,
            simulated=simulated.get(case, absent),
            cuda=cuda.get(case, absent),
        )
        for case in cases
    ]


def differences(rows: Iterable[Row]) -> Iterator[str]:
    """A line for each case in which the devices do not say the same, worst first."""
    order = list(Standing)
    for row in sorted(rows, key=lambda row: -order.index(row.standing)):
        if row.standing is not Standing.AGREE:
            yield (
                f"{row.standing.value}: {row.case}: "
                f"simulated {row.simulated}; cuda {row.cuda}"
            )


def unexplained(rows: Iterable[Row], causes: Mapping[str, str]) -> list[Row]:
    """Those that do not agree and have no cause, except for what the simulated GPU leaves open."""
    fine = {Standing.AGREE, Standing.OPEN}
    return [r for r in rows if r.standing not in fine and r.case not in causes]


def as_markdown(
    title: str,
    machine: Mapping[str, str],
    rows: Sequence[Row],
    causes: Mapping[str, str],
) -> str:
    """A page: the machine, how many cases stand how, and why each does not agree."""
    counts = Counter(row.standing for row in rows)
    lines = [
        f"# {title}",
        "",
        f"Read with {', '.join(f'{k} {v}' for k, v in sorted(machine.items()))}.",
        "",
        "| standing | cases |",
        "|---|---|",
        *(f"| {standing.value} | {counts[standing]} |" for standing in Standing),
    ]
    others = [row for row in rows if row.standing is not Standing.AGREE]
    if others:
        lines += [
            "",
            "| case | standing | simulated | CUDA | cause |",
            "|---|---|---|---|---|",
        ]
    for row in others:
        seen = (row.standing.value, str(row.simulated), str(row.cuda))
        cells = (f"`{row.case}`", *seen, causes.get(row.case, "not known"))
        lines.append(f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |")
    return "\n".join(lines) + "\n"
