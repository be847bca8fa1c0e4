"""Reads a notebook of Jupyter as the program that its code cells are together."""

from __future__ import annotations

import ast
import json
import linecache
import re
import sys
import warnings
from bisect import bisect_left
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from json.decoder import scanstring  # type: ignore[attr-defined]
from json.scanner import py_make_scanner  # type: ignore[attr-defined]
from pathlib import Path
from types import CodeType
from typing import Any
from typing import Final
from typing import NoReturn

from ..errors import ErrorId
from ..errors import UsageError
from ..model.finding import Location


NOTEBOOK_FORMAT: Final = 4
"""The major version of nbformat that is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A code cell, with its number among the code cells from 1 on.

    Line n of ``text`` is in line ``file_lines[n - 1]`` of the notebook's file.
    """

    number: int
    text: str
    file_lines: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Notebook:
    """The code cells of the notebook at ``path``, which is named as it was typed."""

    path: str
    cells: tuple[Cell, ...]

    def code_name(self, cell: Cell) -> str:
        """Return the name of the *cell* in place of a file's."""
        return f"{Path(self.path).absolute()} cell {cell.number}"


def is_notebook(path: str) -> bool:
    """Whether *path* names a notebook, by its ending."""
    return path.endswith(".ipynb")


def notebook_of(path: str, data: bytes) -> Notebook:
    """Return the notebook in *data*, read from *path*.

    Raises ``UsageError`` if it is no notebook of Python in nbformat 4.
    """
    try:
        text = data.decode("utf-8-sig")
        document = _PlacingDecoder().decode(text)
    except (ValueError, RecursionError) as error:
        _refuse(path, f"cannot be read as JSON ({error})")
    if not isinstance(document, dict):
        _refuse(path, "is JSON without cells")
    _check_format(path, document)
    breaks = [found.start() for found in re.finditer("\n", text)]

    def line_at(place: int) -> int:
        return bisect_left(breaks, place) + 1

    cells = tuple(_code_cells(path, document["cells"], line_at))
    if not cells:
        _refuse(path, "has no code cells")
    return Notebook(path=path, cells=cells)


def _refuse(path: str, what: str) -> NoReturn:
    msg = (
        f"{path}: {what}; expected a notebook with Python in nbformat {NOTEBOOK_FORMAT}"
    )
    raise UsageError(msg, ErrorId.GP110) from None


def _check_format(path: str, document: dict[str, Any]) -> None:
    version = document.get("nbformat")
    if "worksheets" in document or version in {1, 2, 3}:
        _refuse(path, "is in an older nbformat: save it again with Jupyter")
    if not isinstance(document.get("cells"), list):
        _refuse(path, "is JSON without cells")
    language = _language(document.get("metadata"))
    if "python" not in language.lower():
        _refuse(path, f"is for a kernel of {language}")


def _language(metadata: object) -> str:
    """Return the language of the kernel; a notebook without one is for Python."""
    if not isinstance(metadata, dict):
        return "python"
    for part, key in (("kernelspec", "language"), ("language_info", "name")):
        found = metadata.get(part)
        if isinstance(found, dict) and isinstance(found.get(key), str):
            return str(found[key])
    return "python"


def _code_cells(
    path: str, cells: Sequence[Any], line_at: Callable[[int], int]
) -> Iterator[Cell]:
    codes = [c for c in cells if isinstance(c, dict) and c.get("cell_type") == "code"]
    for number, cell in enumerate(codes, 1):
        source = cell.get("source")
        parts: list[Any] = source if isinstance(source, list) else [source]
        if not all(isinstance(part, _Placed) for part in parts):
            _refuse(path, f"has no text as the source of cell {number}")
        yield Cell(
            number=number,
            text="".join(parts),
            file_lines=tuple(_lines_of(parts, line_at)),
        )


def _lines_of(parts: Sequence[_Placed], line_at: Callable[[int], int]) -> Iterator[int]:
    """Yield the line of the file in which each line of the joined *parts* begins."""
    is_begin = True
    for part in parts:
        for piece in re.findall(r"[^\n]*\n|[^\n]+", part):
            if is_begin:
                yield line_at(part.place)
            is_begin = piece.endswith("\n")


class _Placed(str):
    """A string with its place in the JSON text that it was read from."""

    __slots__ = ("place",)
    place: int


class _PlacingDecoder(json.JSONDecoder):
    """Reads strings as ``_Placed``: only the scanner written in Python can."""

    def __init__(self) -> None:
        super().__init__()
        self.parse_string = _placed
        self.scan_once = py_make_scanner(self)


def _placed(text: str, begin: int, strict: bool) -> tuple[_Placed, int]:  # noqa: FBT001, as json calls it
    found, end = scanstring(text, begin, strict)
    placed = _Placed(found)
    placed.place = begin
    return placed, end


# What IPython understands, and Python does not.

MAGIC: Final = re.compile(r"\s*(?:[%!?]|[\w., ]+=\s*[%!]|[\w.*\[\]-]+\?\??\s*$)")
TIMING_MAGIC: Final = re.compile(
    r"(?P<indent>\s*)%(?:time|timeit)\s+(?:-\S+\s+(?:\d+\s+)?)*"
)
"""What precedes code that runs all the same."""

TIMED_CELLS: Final = frozenset({"%%capture", "%%time", "%%timeit"})
"""First lines of cells with Python; a cell with another is for another program."""


def without_magics(text: str) -> tuple[str, tuple[str, ...]]:
    """Return *text* for Python, with as many lines, and the magics left out.

    Only a line that Python cannot read is one: ``% b`` may continue an expression.
    """
    lines = text.split("\n")
    magics = list(_cell_magic(lines))
    while (number := _unreadable(lines)) is not None:
        timed = TIMING_MAGIC.match(lines[number])
        if timed:
            lines[number] = timed["indent"] + lines[number][timed.end() :]
        elif MAGIC.match(lines[number]):
            magics.append(_taken(lines, number))
        else:
            break
    return "\n".join(lines), tuple(magics)


def _cell_magic(lines: list[str]) -> Iterator[str]:
    """Blank what the first line takes from Python; yield it if that is the whole cell."""
    first = next((i for i, line in enumerate(lines) if line.strip()), 0)
    magic = lines[first]
    if magic.startswith("%%"):
        is_timed = magic.split()[0] in TIMED_CELLS
        end = first + 1 if is_timed else len(lines)
        lines[first:end] = [""] * (end - first)
        if not is_timed:
            yield magic.strip()


def _unreadable(lines: Sequence[str]) -> int | None:
    """Return the index of the line that Python objects to, if there is one."""
    with warnings.catch_warnings():
        # They come when the cell is compiled.
        warnings.simplefilter("ignore")
        try:
            ast.parse("\n".join(lines))
        except SyntaxError as error:
            number = error.lineno or 0
            return number - 1 if 0 < number <= len(lines) else None
        except ValueError:  # of a character that no source has
            return None
    return None


def _taken(lines: list[str], number: int) -> str:
    """Return the magic there; ``pass`` takes its place, as a block may need a line."""
    magic = lines[number]
    lines[number] = f"{magic[: len(magic) - len(magic.lstrip())]}pass"
    last = magic
    while last.endswith("\\") and number + 1 < len(lines):
        number += 1
        last, lines[number] = lines[number], ""
    return magic.strip()


MAGICS_NAMED: Final = 3


def note_on_magics(notebook: Notebook) -> str:
    """Say which magics are not run, or nothing if there are none."""
    magics = [
        f"{magic} (cell {cell.number})"
        for cell in notebook.cells
        for magic in without_magics(cell.text)[1]
    ]
    if not magics:
        return ""
    more = len(magics) - MAGICS_NAMED
    named = [*magics[:MAGICS_NAMED], *([f"{more} more"] if more > 0 else [])]
    were = "1 magic was" if len(magics) == 1 else f"{len(magics)} magics were"
    return f"{were} not run: {', '.join(named)}"


# The program.


def codes_of(notebook: Notebook) -> tuple[CodeType, ...]:
    """Compile the cells, and let tracebacks and reports read their lines.

    What a cell imports from ``__future__`` is in force in those after it, as in IPython.
    Raises ``UsageError`` if one is no Python.
    """
    codes: list[CodeType] = []
    flags = 0
    for cell in notebook.cells:
        name = notebook.code_name(cell)
        # Without a time of change: no file can be asked for one.
        lines = [f"{line}\n" for line in cell.text.split("\n")]
        linecache.cache[name] = (len(cell.text), None, lines, name)
        codes.append(_compiled(notebook, cell, flags))
        flags |= codes[-1].co_flags & annotations.compiler_flag
    return tuple(codes)


def _compiled(notebook: Notebook, cell: Cell, flags: int) -> CodeType:
    source, _ = without_magics(cell.text)
    name = notebook.code_name(cell)
    try:
        code: CodeType = compile(source, name, "exec", flags=flags, dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        where, what = f"{notebook.path} cell {cell.number}", str(error)
        if isinstance(error, SyntaxError):
            where += f", line {error.lineno}" if error.lineno else ""
            what = error.msg
        msg = f"{where}: cannot be compiled ({what}); expected Python"
        raise UsageError(msg, ErrorId.GP110) from error
    return code


def names_of_ipython() -> dict[str, Any]:
    """Return what a cell finds without an import."""
    return {"display": _display, "get_ipython": _no_ipython}


def _display(*objects: object, **_: object) -> None:
    for each in objects:
        sys.stdout.write(f"{each!r}\n")


def _no_ipython() -> None:
    """Return nothing, as IPython's own does outside of a session."""


def in_file(notebook: Notebook, place: Location) -> Location:
    """Return *place* in a cell as the line of the notebook's file, others as they are."""
    for cell in notebook.cells:
        if place.file == notebook.code_name(cell):
            file = str(Path(notebook.path).absolute())
            return replace(place, file=file, line=cell.file_lines[place.line - 1])
    return place
