"""Counts what makes the package easy or hard to find one's way in.

    python tools/house.py [FOLDER]

FOLDER is the package's own (default: the one of this checkout), so that an older
checkout is counted with the same rules.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final


PACKAGE: Final = Path(__file__).parents[1] / "pytest_gpuperf"

SHORT_LINES: Final = 60

DIALECT: Final = re.compile(
    r"\b(told|holds?|stands?|lets go|foretold|whose|seats?|levers?|climate|saying|party"
    r"|meeting|story)\b",
    re.IGNORECASE,
)
"""Words that say in a private way what the field has a term for."""


def names_defined(trees: dict[str, ast.Module]) -> Iterator[tuple[str, str]]:
    """Yield the kind and name of each public class and constant of each module."""
    for tree in trees.values():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield "class", node.name
            elif isinstance(node, ast.AnnAssign | ast.Assign):
                targets = (
                    node.targets if isinstance(node, ast.Assign) else [node.target]
                )
                names = [t.id for t in targets if isinstance(t, ast.Name)]
                yield from (("constant", n) for n in names if n.isupper())


def twice(trees: dict[str, ast.Module], kind: str) -> int:
    """Count the names of *kind* that more than one module defines."""
    names = Counter(name for found, name in names_defined(trees) if found == kind)
    return sum(count > 1 for name, count in names.items() if not name.startswith("_"))


def comment_lines(text: str) -> int:
    """Count the comments of *text*, without those for tools."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    comments = (t.string for t in tokens if t.type == tokenize.COMMENT)
    return sum(not re.match(r"#\s*(noqa|type:)", comment) for comment in comments)


def imports_pytest(tree: ast.Module) -> bool:
    """Whether the module of *tree* imports pytest, wherever in it."""
    imports = (n for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom))
    return any(
        "pytest"
        in ([a.name for a in n.names] if isinstance(n, ast.Import) else [n.module])
        for n in imports
    )


def counts(package: Path) -> dict[str, float]:
    """Return each figure of *package* by what it counts."""
    texts = {
        path.relative_to(package).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(package.rglob("*.py"))
    }
    trees = {name: ast.parse(text) for name, text in texts.items()}
    lines = sum(text.count("\n") for text in texts.values())
    comments = sum(map(comment_lines, texts.values()))
    own = Counter(Path(name).name for name in texts if "__" not in name)
    return {
        "modules": len(texts),
        "modules at the top": sum("/" not in name for name in texts),
        "lines": lines,
        "lines of the longest module": max(t.count("\n") for t in texts.values()),
        "modules under 60 lines": sum(
            t.count("\n") < SHORT_LINES for t in texts.values()
        ),
        "modules that import pytest": sum(map(imports_pytest, trees.values())),
        "file names in two rooms or more": sum(count > 1 for count in own.values()),
        "class names defined twice": twice(trees, "class"),
        "constant names defined twice": twice(trees, "constant"),
        "words of a private dialect": sum(
            len(DIALECT.findall(text)) for text in texts.values()
        ),
        "comments per 1,000 lines": round(1000 * comments / lines, 1),
    }


def main() -> None:
    package = Path(sys.argv[1]) if sys.argv[1:] else PACKAGE
    for name, figure in counts(package).items():
        print(f"{figure:>8,} {name}")


if __name__ == "__main__":
    main()
