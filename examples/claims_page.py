"""The page of the examples: the ladder first, then a line a claim."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from claims import Claim, Claims, Rung, SpeedRung


HEAD: Final = """\
# Examples

<!-- Written by `python examples/claims.py --write` from claims.toml: edit that. -->

What five notes on fast training with PyTorch claim, as tests of 10 to 25 lines that this
plugin gates. The first claim is a ladder: GPT-2 large, a batch of 32, each rung needs less
memory than the one above.

"""

SPEED: Final = """
The second one is of speed: a small GPT, 8192 samples, in seconds.

"""

COMMANDS: Final = """
"Published" is what the note says, in MiB of a GPU; "predicted" is the peak of allocated
memory at that size, without a GPU. On two GPUs it is each one's, and without what NCCL takes. What a smaller model shows of speed
without a GPU is gated as it stands there.

```console
$ pytest examples --gpuperf                            # count and predict without a GPU
$ pytest examples --gpuperf --gpuperf-device=cpu       # measure on the host
$ pytest examples --gpuperf --gpuperf-claims           # and say what became of each claim
$ pytest examples/ladder --gpuperf                     # predict both ladders
```

What they say of each claim on two cores without a GPU is in `benchmarks/evidence`
([simulated](../benchmarks/evidence/examples-simulated.txt), [cpu](../benchmarks/evidence/examples-cpu.txt)).
Some need a package that is not there by default, or a C++ compiler, and say so where they
are skipped: `tox -e examples` installs the packages, `pip install --group examples` as well.
"""


def page(claims: Claims) -> str:
    """Return the whole page as Markdown."""
    shown = [row for row in claims.rows if row.example]
    missing = [row for row in claims.rows if row.not_shown]
    changed = [row for row in claims.rows if row.today]
    parts = (
        HEAD,
        _table(_ladder(claims.ladder)),
        SPEED,
        _table(_speed(claims.speed)),
        COMMANDS,
        f"\n## {len(shown)} of {len(claims.rows)} claims are shown\n\n",
        _legend(claims),
        _table(_examples(shown)),
        "\n## What no longer holds, and its form today\n\n",
        _table(_forms_of_today(changed)),
        f"\n## {len(missing)} are not, and why\n\n",
        _table(_reasons(missing)),
    )
    return "".join(parts)


Cells = tuple[str, ...]


def _table(rows: Iterator[Cells]) -> str:
    head, *body = rows
    ruled = (head, tuple("---" for _ in head), *body)
    return "".join(f"| {' | '.join(cells)} |\n" for cells in ruled)


def _ladder(rungs: Sequence[Rung]) -> Iterator[Cells]:
    yield "rung", "published", "", "a step", "predicted", ""
    above: Rung | None = None
    for rung in rungs:
        yield (
            rung.name,
            *_climbed(rung.published_mib, above and above.published_mib),
            f"{rung.published_s:g} s",
            *_climbed(rung.predicted_mib, above and above.predicted_mib),
        )
        above = rung


def _speed(rungs: Sequence[SpeedRung]) -> Iterator[Cells]:
    yield "rung", "published", "", "without a GPU"
    above: float | None = None
    for rung in rungs:
        change = (
            "" if above is None else f"{100 * (rung.published_s / above - 1):+.0f} %"
        )
        yield rung.name, f"{rung.published_s:g} s", change, "; ".join(_gated(rung))
        above = rung.published_s


def _gated(rung: SpeedRung) -> Iterator[str]:
    """Say what the example of *rung* is judged by."""
    if rung.what:
        both = [f"{n}" for n in (rung.before, rung.after) if n is not None]
        yield f"{' -> '.join(both)} {rung.what}"
    if rung.least is not None:
        yield f"at least {rung.least:g} times as fast"


def _climbed(mib: float | None, above: float | None) -> Cells:
    """Give a peak, and its change from the rung above."""
    if mib is None:
        return "", ""
    shown = f"{mib:.0f}" if mib >= 1000 else f"{mib:.1f}"
    return shown, "" if above is None else f"{100 * (mib / above - 1):+.0f} %"


def _examples(rows: Sequence[Claim]) -> Iterator[Cells]:
    yield "", "claim", "from", "its numbers", "judged by", "example"
    for row in rows:
        gates = ", ".join(gate.value for gate in row.gates)
        link = _link(row.example or "")
        yield row.id, row.text, _notes(row), row.numbers, gates, link


def _notes(row: Claim) -> str:
    return ", ".join(row.notes)


def _legend(claims: Claims) -> str:
    """Say what the column of notes means."""
    lines = (f"- {key}: {title}\n" for key, title in claims.notes.items())
    return "From which note a claim is:\n\n" + "".join(lines) + "\n"


def _link(example: str) -> str:
    """Link the file of ``folder/test_file.py::test_name``."""
    path, _, _ = example.partition("::")
    return f"[{path}]({path})"


def _forms_of_today(rows: Sequence[Claim]) -> Iterator[Cells]:
    yield "", "claim", "from", "today"
    for row in rows:
        yield row.id, row.text, _notes(row), row.today or ""


def _reasons(rows: Sequence[Claim]) -> Iterator[Cells]:
    yield "", "claim", "from", "why it is not shown"
    for row in rows:
        yield row.id, row.text, _notes(row), row.not_shown or ""
