"""Requests to, and answers of, a process that has both versions loaded."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from dataclasses import replace
from functools import partial
from importlib.machinery import EXTENSION_SUFFIXES
from types import FunctionType
from types import MethodType
from types import ModuleType
from typing import Any
from typing import Final

from ..compare_steps.isolation import files_of
from ..devices.torch_state import contexts
from ..devices.torch_state import loaded_libraries
from ..devices.torch_state import operations_from
from ..errors import RunError
from ..judge.ab import Schedule
from ..judge.process_pairs import INSTANCE_LOOKS
from ..judge.process_pairs import judge_together
from ..judge.process_pairs import schedule_together
from ..model.ab import AbResult
from ..model.ab import Answer
from ..model.codec import decode
from ..model.codec import encode
from ..runner.fork_server import Job
from ..runner.relocation import OWN_PACKAGE
from ..runner.relocation import moved_path
from ..runner.relocation import stranger
from ..runner.screening import Case
from .module_view import Guest
from .module_view import View
from .pairs import Both
from .side_server import SideServer
from .side_server import patience


# Reasons why two versions of a project cannot be measured in one process.
#
# Each function returns a sentence, or ``None`` without an objection. What a process has
# once, and one version changes, would also change the other one.

NO_SIDE: Final = "nothing"

UNWATCHED: Final = frozenset({"__main__", "_pytest", "pluggy", "pytest", OWN_PACKAGE})
"""Packages with what the test runner registers, and no training step uses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """A process before it has imported either version."""

    contexts: Mapping[str, str]
    libraries: frozenset[str]
    threads: frozenset[int | None]
    attributes: Mapping[str, frozenset[str]]

    @classmethod
    def now(cls) -> Beginning:
        return cls(
            contexts=contexts(),
            libraries=loaded_libraries(),
            threads=frozenset(thread.ident for thread in threading.enumerate()),
            attributes={n: frozenset(vars(m)) for n, m in _watched(sys.modules)},
        )


def alone(view: View, beginning: Beginning) -> str | None:
    """Object to what the version of *view*, which is shown, did before its call."""
    return (
        _compiled(view, beginning)
        or _entangled(view)
        or _registered(view)
        or _in_context(view.name, beginning)
        or _at_work(view.name, beginning)
    )


def together(
    views: tuple[View, View], shared: Mapping[str, ModuleType], beginning: Beginning
) -> str | None:
    """Object to what either version did to the other; *shared* are modules of both."""
    for view, other in zip(views, reversed(views), strict=True):
        found = _stranger(view) or _patched(view, shared) or _uses(view, other)
        if found:
            return found
    return _left_behind(shared, beginning)


def unlike(before: Mapping[str, str], after: Mapping[str, str]) -> str | None:
    """Object to a setting that differs between both versions, each by itself."""
    return _differing(
        "{} is {} before and {} after, and a process has it once", before, after
    )


def changed(alone: Mapping[str, str], now: Mapping[str, str]) -> str | None:
    """Object to a setting that is another one when both have set it."""
    return _differing(
        "{} is {} for each by itself and {} for both together", alone, now
    )


def _differing(
    sentence: str, first: Mapping[str, str], second: Mapping[str, str]
) -> str | None:
    for name in sorted(first.keys() | second.keys()):
        one, other = first.get(name, NO_SIDE), second.get(name, NO_SIDE)
        if one != other:
            return sentence.format(name, one, other)
    return None


def _compiled(view: View, beginning: Beginning) -> str | None:
    compiled = [m for m in view.modules if _is_compiled(view.modules[m])]
    loaded = sorted(loaded_libraries() - beginning.libraries)
    if not compiled and not loaded:
        return None
    which = compiled[0] if compiled else loaded[0]
    return f"{view.name} has its own compiled code, {which}, and a process can load only one version"


def _is_compiled(module: ModuleType | None) -> bool:
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and file.endswith(tuple(EXTENSION_SUFFIXES))


def _entangled(view: View) -> str | None:
    for own in view.modules:
        # Importing a submodule sets it as an attribute of its package: in a shared
        # package both versions would find the last one.
        package = own.rpartition(".")[0]
        if package and package not in view.modules and package in sys.modules:
            return f"{own} of {view.name} is inside of {package}, which both share"
    return None


def _registered(view: View) -> str | None:
    found = operations_from(view.files)
    if not found:
        return None
    return f"{view.name} registers the operation {found[0]}, and a process can register it only once"


def _in_context(name: str, beginning: Beginning) -> str | None:
    now = contexts()
    for context, state in now.items():
        if beginning.contexts.get(context, state) != state:
            return (
                f"{name} calls gpuperf(step) inside {context}, where the other version "
                "would be set up as well"
            )
    return None


def _at_work(name: str, beginning: Beginning) -> str | None:
    # A thread of one version would compute during the other's turn.
    for thread in threading.enumerate():
        if thread.ident not in beginning.threads:
            return f"{name} keeps a thread running, {thread.name}, beside the other"
    multiprocessing: Any = sys.modules.get("multiprocessing")
    if multiprocessing is not None and multiprocessing.active_children():
        return f"{name} keeps processes running, beside the other"
    return None


def _stranger(view: View) -> str | None:
    found = stranger(view.modules, view.guest.relocation)
    return f"{view.name} imported {found[0]} from {found[1]}" if found else None


def _patched(view: View, shared: Mapping[str, ModuleType]) -> str | None:
    """Object to code of a version in a place where the other one finds it."""
    is_own = partial(_is_from, files=view.files, modules=view.modules)
    for place, module in _watched(shared):
        for attribute, value in list(vars(module).items()):
            if is_own(value):
                return f"{view.name} replaces {place}.{attribute}, which both use"
            if isinstance(value, type) and value.__module__ == place:
                for inside, held in list(vars(value).items()):
                    if is_own(held):
                        where = f"{place}.{attribute}.{inside}"
                        return f"{view.name} replaces {where}, which both use"
    return None


def _is_from(value: object, files: Collection[str], modules: Collection[str]) -> bool:
    if isinstance(value, (staticmethod, classmethod, MethodType)):
        value = value.__func__
    if isinstance(value, property):
        value = value.fget
    if isinstance(value, FunctionType):
        return value.__code__.co_filename in files
    if isinstance(value, type):
        return value.__module__ in modules
    return False


def _uses(view: View, other: View) -> str | None:
    step = None if view.subject is None else view.subject.step
    found = sorted(files_of(step) & other.files)
    return (
        f"{view.name} uses code of the other version, from {found[0]}"
        if found
        else None
    )


def _left_behind(shared: Mapping[str, ModuleType], beginning: Beginning) -> str | None:
    """Object to what has been put into a module that was there from the beginning."""
    for place, module in _watched(shared):
        known = beginning.attributes.get(place)
        # A module that was imported later has nothing to compare with.
        if known is None:
            continue
        for attribute in sorted(vars(module).keys() - known):
            if _is_state(attribute, vars(module)[attribute]):
                return f"{place}.{attribute} was set there, so both versions see it"
    return None


def _is_state(attribute: str, value: object) -> bool:
    """Whether it may be more than a module or a function that was imported late.

    Dynamo leaves attributes that begin with underscores, one per compiled function.
    """
    code = isinstance(value, (ModuleType, FunctionType, type))
    return not code and not attribute.startswith("__")


def _watched(modules: Mapping[str, Any]) -> Iterator[tuple[str, ModuleType]]:
    # A copy: to look at a module's attributes may import another one.
    for name, module in list(modules.items()):
        if isinstance(module, ModuleType) and name.partition(".")[0] not in UNWATCHED:
            yield name, module


TRACEBACK: Final = "Traceback (most recent call last):"

LEAST_SHARE: Final = 0.5
"""Least share of a test's time cap for both versions in turns, after their pair."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TogetherRequest:
    """Asks for a comparison of one *call* of both versions.

    ``settings`` are what both found when they made it, each by itself. ``number`` counts
    the processes that are asked from 0.
    """

    before: Guest
    after: Guest
    call: str
    tolerance: float
    detect: float
    seconds: float
    settings: Mapping[str, str] = field(default_factory=dict)
    number: int = 0


class Together:
    """Measures the calls of a test that passed on both sides, each in one process.

    A change is confirmed in other processes, which draw other random numbers.
    """

    def __init__(self, before: SideServer, after: SideServer, seconds: float) -> None:
        """*seconds* cap what one test may cost, its first pair included."""
        self._before = before
        self._after = after
        self._seconds = seconds

    def __call__(self, both: Both) -> Mapping[str, AbResult]:
        """Return how each call compares that has a time; without a ratio, why it does not."""
        found: dict[str, AbResult] = {}
        for call in both.after.calls.keys() & both.before.calls.keys():
            schedule = schedule_together(
                both.newest_pair(call), both.tolerance_of(call)
            )
            if schedule is not None:
                found[call] = self._compared(both, call, schedule)
        return found

    def _compared(self, both: Both, call: str, schedule: Schedule) -> AbResult:
        alone = self._before.settings[call]
        different = unlike(alone, self._after.settings[call])
        if different:
            return AbResult.unknown(different)
        left = max(LEAST_SHARE * self._seconds, self._seconds - both.seconds)
        found: list[AbResult] = []
        while True:
            number = len(found)
            request = TogetherRequest(
                before=_guest(self._before, both.before, number),
                after=_guest(self._after, both.after, number),
                call=call,
                tolerance=schedule.tolerance,
                detect=schedule.detect,
                seconds=left / INSTANCE_LOOKS[0] if found else left,
                settings=alone,
                number=number,
            )
            answer = self._answer(request)
            if answer.ratio is None:
                break
            found.append(answer)
            said = judge_together(found, schedule)
            if said.answer is not Answer.MORE:
                return said
        if not found:
            return answer
        ended = judge_together(found, schedule, last=True)
        return replace(ended, why=f"{ended.why}; the next one: {answer.why}")

    def _answer(self, request: TogetherRequest) -> AbResult:
        """Ask a process forked from the server of a side, of both sides in turn."""
        side = self._before if request.number % 2 else self._after
        if request.number:
            side.renew(request.number)
        entry = "pytest_gpuperf.compare_commits.one_process_child:compare"
        job = Job(entry=entry, request=encode(request))
        try:
            return decode(AbResult, side.ask(job, patience(self._seconds)))
        except RunError as error:
            return AbResult.unknown(_briefly(str(error)))


def _guest(side: SideServer, case: Case, number: int) -> Guest:
    return Guest(
        run=side.request((case.test,), number),
        relocation=side.relocation,
        environment=moved_path(os.environ, side.relocation),
        measured=tuple(call.measurement for call in case.last.calls),
    )


def _briefly(text: str) -> str:
    """Leave out all lines of a traceback but the last."""
    first, *rest = text.splitlines()
    return f"{first.removesuffix(TRACEBACK)}{rest[-1]}" if rest else first
