"""Print the tests of tests/features.md, for pytest.

pytest $(python tools/features.py)        # all
pytest $(python tools/features.py ranks)  # below headings with one of the words
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final


PAGE: Final = Path(__file__).parents[1] / "tests" / "features.md"


def tests_below(words: list[str]) -> list[str]:
    """Each test below a heading with one of *words*, or below any; a name of none if none."""
    _, *sections = PAGE.read_text(encoding="utf-8").split("\n## ")
    wanted = re.compile("|".join(map(re.escape, words)), re.IGNORECASE)
    chosen = [s for s in sections if wanted.search(s.partition("\n")[0])]
    found = re.findall(r"`(tests/[^`]+::\w+)`", "".join(chosen))
    # Without an argument pytest would run everything.
    return list(dict.fromkeys(found)) or [f"no-heading-has-{'-or-'.join(words)}"]


if __name__ == "__main__":
    print(*tests_below(sys.argv[1:]), sep="\n")
