"""Does the judge keep its word? False blame, power and cost, beside their bars.

    python benchmarks/verdicts.py [--quick] [--only NAME]

Simulated GPUs and recorded CPU noise are judged by the product in the order in which
its gate would ask for runs, and by the rules of pytest-benchmark on the same times. Exits
with 1 where a bar is missed. ``--quick`` draws fewer tests and leaves each bar four
standard errors of so many.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final

import bars_days
import bars_recorded
import bars_stored
from order_of_work import FULL, QUICK, Effort, Table


SECTIONS: Final[dict[str, Callable[[Effort], list[Table]]]] = {
    "stored": bars_stored.tables,
    "days": bars_days.tables,
    "ab": bars_days.tables_of_ab,
    "recorded": bars_recorded.tables,
    "pairs": bars_recorded.tables_of_pairs,
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer tests, in a minute")
    parser.add_argument("--only", choices=SECTIONS, help="one section")
    chosen = parser.parse_args(arguments)
    effort = QUICK if chosen.quick else FULL
    if effort.hurried:
        print("quick: each bar is given four standard errors of so few tests\n")
    missed = []
    for name in [chosen.only] if chosen.only else SECTIONS:
        missed += _show(name, effort)
    for title, figure in missed:
        print(f"NOT MET: {title}: {figure}")
    return 1 if missed else 0


def _show(name: str, effort: Effort) -> list[tuple[str, str]]:
    start_s = time.perf_counter()
    tables = SECTIONS[name](effort)
    for table in tables:
        print(f"\n{table}", flush=True)
    print(f"{name}: {time.perf_counter() - start_s:.0f} s", flush=True)
    return [(table.title, figure.name) for table in tables for figure in table.missed]


if __name__ == "__main__":
    sys.exit(main())
