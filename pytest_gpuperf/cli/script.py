"""Runs a script or module with its arguments as ``python`` would."""

from __future__ import annotations

import builtins
import linecache
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import decode_source, find_spec
from pathlib import Path
from socket import socket
from traceback import extract_tb
from types import CodeType, MappingProxyType, ModuleType
from typing import Any, Final

from ..errors import ErrorId, UsageError
from ..files import read_regular
from ..sharing.processes import EXIT_INTERRUPTED


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A script, or a module if ``is_module``, and the arguments it gets.

    One that torchrun would start is run ``as_rank``: as the only rank of its group.
    """

    name: str
    is_module: bool
    arguments: tuple[str, ...]
    as_rank: bool = False

    @property
    def typed(self) -> tuple[str, ...]:
        """How it is named on a command line, after torchrun if it was."""
        named = ("-m", self.name) if self.is_module else (self.name,)
        if self.as_rank:
            return ("torchrun", *named, *self.arguments)
        return (*named, *(("--", *self.arguments) if self.arguments else ()))


Loaded = tuple[CodeType, dict[str, Any]]
"""A program that can be run: its code and what ``__main__`` says of itself."""


def check_script(path: str) -> None:
    """Raise ``UsageError`` if no script can be read from *path*."""
    with warnings.catch_warnings():
        # Python would print each SyntaxWarning of the script twice.
        warnings.simplefilter("ignore")  # they come when it is loaded
        _script_code(path)


def load(program: Program, edited: Mapping[str, str] = MappingProxyType({})) -> Loaded:
    """Make ``sys`` as the program expects it and load it, a file as it is *edited*.

    A package on the way to a module is imported. Raises ``UsageError`` if there is
    no such program.
    """
    sys.argv = [program.name, *program.arguments]
    if program.as_rank:
        os.environ.update(only_rank())
    if program.is_module:
        _begin_path_with(Path.cwd())
        return _loaded_module(program.name)
    _begin_path_with(Path(program.name).resolve().parent)
    return _loaded_script(program.name, edited)


# Programs that torchrun starts.

WITHOUT_VALUE: Final = frozenset(
    {"--standalone", "--no-python", "--run-path", "--use-env", "--use_env"}
)
"""Options of torchrun that stand alone; all others take a value."""


def launched(launcher: str, words: Sequence[str]) -> Program:
    """Return the program that *launcher* starts with *words*, as its only rank.

    Raises ``UsageError`` if there is none.
    """
    is_module = False
    rest = list(words)
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        is_module = is_module or option in {"-m", "--module"}
        alone = option in {"-m", "--module", *WITHOUT_VALUE} or "=" in option
        del rest[: 0 if alone else 1]
    if not rest:
        msg = f"{launcher}: found no script among its arguments; expected one"
        raise UsageError(msg, ErrorId.GP110)
    name, *arguments = rest
    return Program(
        name=name, is_module=is_module, arguments=tuple(arguments), as_rank=True
    )


ONE_RANK: Final = {
    "RANK": "0",
    "LOCAL_RANK": "0",
    "GROUP_RANK": "0",
    "WORLD_SIZE": "1",
    "LOCAL_WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
}


def only_rank() -> Mapping[str, str]:
    """Return what torchrun sets for a single process."""
    with closing(socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return {**ONE_RANK, "MASTER_PORT": str(port)}


AS_RANK: Final = (
    "it ran as one rank of one, with RANK=0, LOCAL_RANK=0 and WORLD_SIZE=1: nothing of "
    "other ranks is counted"
)
"""What must be known of a program that torchrun would start several times."""


RENDEZVOUS: Final = re.compile(r"environment variable (\w+) expected, but not set")
"""How torch.distributed says that nobody launched this process."""


def rank_variable(error: BaseException) -> str:
    """Name what torchrun sets and the program that raised *error* lacks; mostly nothing."""
    named = RENDEZVOUS.search(str(error)) if isinstance(error, ValueError) else None
    if named is not None:
        return named.group(1)
    key = str(error.args[0]) if isinstance(error, KeyError) and error.args else ""
    return key if key in SET_BY_TORCHRUN else _rank_that_is_none(error)


SET_BY_TORCHRUN: Final = (*ONE_RANK, "MASTER_PORT")


def _rank_that_is_none(error: BaseException) -> str:
    """Name what torchrun sets if *error* is about the ``None`` that was read in its place."""
    if "None" not in str(error):
        return ""
    lines = [(f.filename, f.line or "") for f in extract_tb(error.__traceback__)]
    missing = (name for name in SET_BY_TORCHRUN if name not in os.environ)
    return next((name for name in missing if _is_read(name, lines)), "")


def _is_read(variable: str, lines: Iterable[tuple[str, str]]) -> bool:
    """Whether one of *lines*, of a file each, has the *variable* or what it was read into."""
    # With a default, as in ``getenv("RANK", 0)``, it is never ``None``.
    quoted = rf"""(?<=['"]){variable}(?=['"]\s*(?:,\s*None\s*)?\))"""
    for file, line in lines:
        assigned = re.findall(
            rf"^\s*(\w+)\s*=.*{quoted}", "".join(linecache.getlines(file)), re.MULTILINE
        )
        if re.search("|".join((quoted, *(rf"\b{name}\b" for name in assigned))), line):
            return True
    return False


def needs_launcher(variable: str, script: str) -> str:
    """Say how a program gets the *variable* that it reads.

    It is not set unasked: a program that finds it may train with DDP, and so another way
    than ``python script.py`` does.
    """
    name = Path(script).name
    return (
        f"gpuperf: {variable} is what torchrun sets: write torchrun before {name}, as "
        f"`torchrun {name}` does, and it runs as one rank of one"
    )


def notes_of(program: Program) -> tuple[str, ...]:
    """Return what must be known of how *program* was run."""
    return (AS_RANK,) if program.as_rank else ()


def run(loaded: Loaded, tidy: Callable[[BaseException], None]) -> None:
    """Run it as ``__main__``; a failure is shown after *tidy* and ends the process."""
    main = ModuleType("__main__")
    code, attributes = loaded
    vars(main).update(attributes, __builtins__=builtins)
    sys.modules["__main__"] = main
    try:
        # In a new module: `pickle` and `multiprocessing` look names up in
        # `sys.modules["__main__"]`.
        exec(code, vars(main))  # noqa: S102, running it is the point
    # As in `python script.py`: an exit is no failure, and its code is the process's.
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001, python catches as much
        tidy(error)
        sys.excepthook(type(error), error, error.__traceback__)
        if missing := rank_variable(error):
            sys.stderr.write(f"{needs_launcher(missing, sys.argv[0])}\n")
        status = EXIT_INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1
        raise SystemExit(status) from None


def _begin_path_with(folder: Path) -> None:
    # `python -P` leaves this entry out.
    if not getattr(sys.flags, "safe_path", False):
        sys.path.insert(0, str(folder))


def _loaded_script(path: str, edited: Mapping[str, str]) -> Loaded:
    file = str(Path(path).absolute())
    attributes = {
        "__file__": file,
        "__cached__": None,
        "__loader__": SourceFileLoader("__main__", file),
    }
    return _script_code(path, edited.get(os.path.realpath(path))), attributes


def _content(path: str) -> bytes:
    expected = "expected a Python script"
    if Path(path).is_dir():
        msg = f"{path}: is a folder; {expected}"
        raise UsageError(msg, ErrorId.GP110)
    if path.endswith(".ipynb"):
        msg = f"{path}: is a notebook; `jupyter nbconvert --to script {path}` makes a script"
        raise UsageError(msg, ErrorId.GP110)
    try:
        return read_regular(Path(path))
    except OSError as error:
        msg = f"{path}: cannot be read ({error.strerror}); {expected}"
        raise UsageError(msg, ErrorId.GP110) from error


def _script_code(path: str, edited: str | None = None) -> CodeType:
    source = _content(path) if edited is None else b""
    try:
        # Decoded as Python does: `compile` takes bytes in comments that are no text.
        text = decode_source(source) if edited is None else edited
        return compile(text, str(Path(path).absolute()), "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise UsageError(_no_python(path, error), ErrorId.GP110) from error


def _loaded_module(name: str) -> Loaded:
    spec = _spec(name)
    try:
        code = spec.loader.get_code(spec.name)  # type: ignore[union-attr]
    except SyntaxError as error:
        raise UsageError(_no_python(str(spec.origin), error), ErrorId.GP110) from error
    except (AttributeError, ImportError):
        code = None
    if code is None:
        raise _no_module(name)
    sys.argv[0] = str(spec.origin)
    attributes = {
        "__file__": spec.origin,
        "__cached__": spec.cached,
        "__loader__": spec.loader,
        "__package__": spec.parent,
        "__spec__": spec,
    }
    return code, attributes


def _spec(name: str) -> ModuleSpec:
    """Find what ``python -m`` runs: of a package, its module ``__main__``."""
    try:
        spec = find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = find_spec(f"{name}.__main__")
    except ModuleNotFoundError as error:
        # Another module is missing: the program exists, and its own import failed.
        if not f"{name}.__main__.".startswith(f"{error.name}."):
            raise
        spec = None
    except ValueError:  # of a name that is none
        spec = None
    if spec is None:
        raise _no_module(name)
    return spec


def _no_module(name: str) -> UsageError:
    msg = f"-m {name}: found no such module; expected one that `python -m {name}` runs"
    return UsageError(msg, ErrorId.GP111)


def _no_python(path: str, error: Exception) -> str:
    where, what = path, str(error)
    if isinstance(error, SyntaxError):
        where = f"{path}:{error.lineno}" if error.lineno else path
        what = error.msg
    elif isinstance(error, UnicodeDecodeError):
        before = error.object[: error.start + 1].splitlines()
        where = f"{path}:{len(before)}"
        what = f"Non-UTF-8 code starting with '\\x{error.object[error.start]:02x}'"
    return f"{where}: cannot be compiled ({what}); expected a Python script"
