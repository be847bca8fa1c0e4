"""Both devices' answers about each operation, side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Of one sample: how often what happened, or why that is not known.

    ``counts`` has waits by the function of the step whose line waits, and copies.
    ``maybe`` counts, by the same names, what only a real GPU can decide. ``causes`` are
    for who reads: the calls, or the rules.
    """

    counts: Mapping[str, int]
    maybe: Mapping[str, int]
    silent: str = ""
    causes: Sequence[str] = ()


class Standing(Enum):
    """How two devices' answers to one operation stand to each other."""

    AGREE = "agree"
    DIFFER = "differ"
    UNJUDGED = "not judged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """An operation, and the answers about its samples; ``silent`` if there are none."""

    name: str
    pretend: Sequence[Answer] = ()
    cuda: Sequence[Answer] = ()
    silent: str = ""

    @property
    def pairs(self) -> list[tuple[Answer, Answer]]:
        """The samples that both sides judged."""
        both = zip(self.pretend, self.cuda, strict=False)
        return [(p, c) for p, c in both if not p.silent and not c.silent]

    @property
    def standing(self) -> Standing:
        if not self.pairs:
            return Standing.UNJUDGED
        differ = any(map(_differ, self.pairs))
        return Standing.DIFFER if differ else Standing.AGREE

    @property
    def why_unjudged(self) -> str:
        reasons = Counter(
            f"{side}: {answer.silent}"
            for side, answers in (("pretend", self.pretend), ("cuda", self.cuda))
            for answer in answers
            if answer.silent
        )
        most = [reason for reason, _ in reasons.most_common(1)]
        return self.silent or "".join(most) or "it has no samples"

    def differences(self) -> Iterator[str]:
        """Each kind of difference, and how many samples show it."""
        found: Counter[str] = Counter()
        for pair in self.pairs:
            found.update(_named(pair))
        for text, samples in found.items():
            yield f"{text} ({samples} of {len(self.pairs)})"

    @property
    def shown(self) -> str:
        """What differs, or why nothing is known, in a line."""
        return "; ".join(self.differences()) if self.pairs else self.why_unjudged


Pair = tuple[Answer, Answer]


def _differ(pair: Pair) -> bool:
    return next(_named(pair), None) is not None


def _named(pair: Pair) -> Iterator[str]:
    pretend, cuda = pair
    for name in {**pretend.counts, **cuda.counts, **pretend.maybe}:
        ours, real = pretend.counts.get(name, 0), cuda.counts.get(name, 0)
        more = pretend.maybe.get(name, 0)
        if more:
            yield f"{name}: {ours} to {ours + more}, in fact {real}"
        elif ours != real:
            yield f"{name}: {ours}, in fact {real}"


# What the table has, and what it should have.


def news(
    rows: Sequence[Row], differences: Mapping[str, str], unjudged: Mapping[str, str]
) -> Iterator[str]:
    """Yield a line for each operation that differs from what is known."""
    for row in rows:
        known = Standing.AGREE
        if row.name in differences:
            known = Standing.DIFFER
        elif row.name in unjudged:
            known = Standing.UNJUDGED
        if row.standing is not known:
            yield f"{row.name}: {row.standing.value}, known as {known.value}: {row.shown}"


def as_markdown(
    rows: Sequence[Row],
    title: str,
    differences: Mapping[str, str],
    unjudged: Mapping[str, str],
) -> str:
    """A page: how many operations stand how, and each that does not agree."""
    counts = Counter(row.standing for row in rows)
    sections = (
        (Standing.DIFFER, "Differing", differences),
        (Standing.UNJUDGED, "Not judged", unjudged),
    )
    numbers = (
        len(rows),
        *(counts[standing] for standing in Standing),
        sum(len(row.pairs) for row in rows),
    )
    lines = [
        f"# Operations: the simulated GPU and {title}",
        "",
        HEAD,
        "",
        "| operations | of them agree | differ | not judged | samples judged |",
        "|---|---|---|---|---|",
        f"| {' | '.join(map(str, numbers))} |",
    ]
    for standing, heading, causes in sections:
        found = [row for row in rows if row.standing is standing]
        found.sort(key=lambda row: row.name)
        if found:
            lines += ["", f"## {heading}", "", "| operation | what | cause |"]
            lines += ["|---|---|---|"]
        lines += [_line(row, causes.get(row.name, "not known")) for row in found]
    return "\n".join(lines) + "\n"


HEAD: Final = """\
Run on real torch over stub CUDA, by `benchmarks/agreement_operations.py`, which
`make agreement` runs: no GPU. Each operation of torch's OpInfo database ran on up to twelve of its samples, spread evenly, forward and backward.
An operation agrees where in each sample that both sides ran the waits of the line that runs
it, those of the line that differentiates it, its pageable copies and the bytes that tensors
are copied in each direction are the same."""


def _line(row: Row, cause: str) -> str:
    cells = (f"`{row.name}`", row.shown, cause)
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"
