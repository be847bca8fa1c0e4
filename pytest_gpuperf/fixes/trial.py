"""Tries edits before anybody sees them: the program is run with each, then with all that helped.

Nothing but these runs says that an edit is good: the finding is gone, no count is worse, and
the program ends as before, prints the same and trains the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ..judge.training import apart, judge_training
from ..model.ab import TrainedStep, Training, TrainingAnswer
from .counts import Counted, Fall, Ran, Texts, objection
from .edits import Edit, combined


Run = Callable[[Mapping[str, str]], Ran]
"""Runs the program from its beginning to its end, with these texts in place of files."""

CLOSE: Final = 1e-6
"""How far apart the numbers of the same training may be."""

OTHER_DRAWS: Final = "not compared, because it makes random numbers on the GPU, which has others than the CPU"

UNCOMPARED: Final = "not compared, because the program trains nothing, prints nothing and leaves no numbers"

VARIES: Final = "not compared, because the program makes other steps in each run"


class Same(NamedTuple):
    """How far the training is the same, or why that is not known."""

    words: str
    is_compared: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What came of an edit: what it lowers and how it trains, or ``why`` it is not shown."""

    edit: Edit
    fall: Fall | None = None
    same: Same | None = None
    why: str = ""

    @property
    def helps(self) -> bool:
        """Whether it lowers something, and nothing speaks against it."""
        return self.fall is not None

    @property
    def is_safe(self) -> bool:
        """Whether it needs nobody's judgement."""
        return self.same is not None and self.same.is_compared and not self.edit.says


class Trial:
    """Runs of one program, as it is and with edits."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._original = [run({})]
        self._runs: dict[tuple[tuple[str, str], ...], Ran] = {}

    @property
    def before(self) -> Ran:
        """What came of the program as it is."""
        return self._original[0]

    def of_finding(self, candidates: Sequence[Edit]) -> Iterator[Tried]:
        """Try what one finding has until an edit helps; yield what came of each."""
        for edit in candidates:
            (tried,) = self.at_once([edit])
            yield tried
            if tried.helps:
                return

    def of_all(self, helped: Sequence[Edit]) -> tuple[Sequence[Edit], Ran]:
        """Return those of *helped* that help together, and the program with them."""
        edits = fitting(helped)
        if not self._help(edits):
            edits = _kept(edits, self._help)
        return edits, self._with(texts_of(edits))

    def _help(self, edits: Sequence[Edit]) -> bool:
        return all(tried.helps for tried in self.at_once(edits))

    def at_once(self, edits: Sequence[Edit]) -> tuple[Tried, ...]:
        """Run the program with *edits*, which fit, and return what came of each."""
        texts = texts_of(edits)
        after = self._with(texts)
        lines = [(str(edit.file), edit.line) for edit in edits]
        why = objection(self.before, after, texts, lines)
        same = None if why else self._trains(after)
        if same is None:
            why = why or "the program trains otherwise"
        elif not any(edit.says for edit in edits):
            other = self._other_output(after) or self._other_result(after)
            why = f"{other} differs" if other else ""
        if why or not (self.before.audit and after.audit):
            return tuple(Tried(edit=edit, why=why) for edit in edits)
        counted = Counted(self.before.audit, after.audit, texts)
        return tuple(
            Tried(edit=edit, fall=counted.fall(*line), same=same)
            for edit, line in zip(edits, lines, strict=True)
        )

    def _with(self, texts: Texts) -> Ran:
        key = tuple(sorted((file, text) for file, (_, text) in texts.items()))
        if key and key not in self._runs:
            self._runs[key] = self._run(dict(key))
        return self._runs[key] if key else self.before

    def _twice(self) -> Sequence[Ran]:
        """Return two runs of the program as it is: does it repeat itself?"""
        if len(self._original) == 1:
            self._original.append(self._run({}))
        return self._original

    def _trains(self, after: Ran) -> Same | None:
        """Say how far the training is the same; nothing if it is another one."""
        if after.gpu_draws != self.before.gpu_draws:
            return Same(OTHER_DRAWS, is_compared=False)
        if not _alike(self.before, after):
            varies = not _alike(*self._twice())
            return Same(VARIES, is_compared=False) if varies else None
        judged = _judged([self.before], after)
        if judged.answer is TrainingAnswer.DIFFERS:
            judged = _judged(self._twice(), after)
        return self._in_words(judged, after)

    def _in_words(self, judged: Training, after: Ran) -> Same | None:
        if judged.answer is TrainingAnswer.SAME:
            return Same(_digits(exact="in every digit" in judged.text))
        if judged.answer is TrainingAnswer.NOT_COMPARED:
            return Same(f"not compared, because {judged.text}", is_compared=False)
        return None if judged.answer is TrainingAnswer.DIFFERS else self._ends(after)

    def _ends(self, after: Ran) -> Same:
        """Say how far a program that trains nothing leaves and prints the same."""
        apart_by = self._results_apart(after)
        near = [name for name, ratio in apart_by.items() if ratio <= CLOSE]
        same = ["the same is printed"] * any(self.before.outputs.values())
        if near:
            digits = _digits(exact=not any(map(apart_by.__getitem__, near)))
            verb = "ends" if len(near) == 1 else "end"
            same += [f"{', '.join(near[:NAMED_RESULTS])} {verb} the same {digits}"]
        words = f"nothing is trained, and {' and '.join(same)}" if same else UNCOMPARED
        return Same(words, is_compared=bool(same))

    def _results_apart(self, after: Ran) -> Mapping[str, float]:
        """Return how far apart the results are that both have."""
        were, are = self.before.results, after.results
        return {name: apart(were[name], are[name]) for name in were if name in are}

    def _other_output(self, after: Ran) -> str:
        """Name an output of *after* that is another one, but for what no two runs share."""
        for name, text in after.outputs.items():
            now, was = map(_timeless, (text, self.before.outputs.get(name, text)))
            if now == was:
                continue
            one, two = (_timeless(ran.outputs.get(name, "")) for ran in self._twice())
            if not _agrees(one, two, now, strictly=name == STANDARD_OUTPUT):
                return name
        return ""

    def _other_result(self, after: Ran) -> str:
        """Name a result of *after* that is another one, but for what no two runs share."""
        apart_by = self._results_apart(after)
        far = [name for name, ratio in apart_by.items() if ratio > CLOSE]
        for name in far:
            one, two = (ran.results.get(name) for ran in self._twice())
            if one == two:
                return name
        return ""


def _digits(*, exact: bool) -> str:
    return "in every digit" if exact else f"within {CLOSE:g}"


NAMED_RESULTS: Final = 3
"""Results that are named."""

STANDARD_OUTPUT: Final = "standard output"


def _timeless(text: str) -> str:
    """Leave out times and rates, which are the same in two runs by chance alone."""
    return _TIME.sub("", text)


_TIME: Final = re.compile(
    r"\d[\d.,]*\s?(?:[mun]?s|secs?|seconds?|minutes?|\w+/s)\b|\d+:\d\d\b"
)


def _agrees(one: str, two: str, now: str, *, strictly: bool) -> bool:
    """Whether *now* has all that *one* and *two* have in common, word by word.

    A text of which no two runs have as many lines is what it is, unless it is judged
    *strictly*.
    """
    lines = [text.splitlines() for text in (one, two, now)]
    if len(lines[0]) != len(lines[1]):
        return not strictly
    return len(lines[0]) == len(lines[2]) and all(
        _has_common_words(*(line.split() for line in each))
        for each in zip(*lines, strict=True)
    )


def _has_common_words(one: list[str], two: list[str], now: list[str]) -> bool:
    if len(one) != len(two):
        return True
    return len(now) == len(one) and all(
        new in {first, second} or first != second
        for first, second, new in zip(one, two, now, strict=True)
    )


def _alike(one: Ran, two: Ran) -> bool:
    """Whether as many steps go backward from as many losses."""
    steps, others = one.training.steps, two.training.steps
    return [*map(_shape, steps)] == [*map(_shape, others)]


def _shape(step: TrainedStep) -> tuple[object, ...]:
    return len(step.losses), step.returned and step.returned.shape


def _judged(before: Sequence[Ran], after: Ran) -> Training:
    runs = [ran.training for ran in before]
    return judge_training(runs, [after.training], tolerated=CLOSE, drifts=False)


def texts_of(edits: Sequence[Edit]) -> Texts:
    """Return by file the text before and after all *edits*, which fit."""
    return {
        str(edit.file): (edit.before, _joined(edits, edit) or edit.before)
        for edit in edits
    }


def _joined(edits: Sequence[Edit], of: Edit) -> str | None:
    return combined(of.before, [each for each in edits if each.file == of.file])


def fitting(edits: Sequence[Edit]) -> list[Edit]:
    """Leave out what changes a line that an earlier one changes otherwise."""
    return _kept(edits, lambda fit: _joined(fit, fit[-1]) is not None)


def _kept(edits: Sequence[Edit], fit: Callable[[Sequence[Edit]], bool]) -> list[Edit]:
    """Return those of *edits* that *fit* the ones kept before them."""
    kept: list[Edit] = []
    for edit in edits:
        kept += [edit] if fit([*kept, edit]) else []
    return kept


# All findings of a program.


@dataclass(frozen=True, slots=True, kw_only=True)
class Proven:
    """All that was ``tried``, what was ``chosen`` of it, and the program ``after`` that.

    If it was ``interrupted``, each was tried alone, and ``after`` is the program before.
    """

    tried: Sequence[Tried]
    chosen: Sequence[Tried]
    after: Ran
    interrupted: bool = False

    @property
    def texts(self) -> Texts:
        """The files that are edited, before and after."""
        return texts_of([each.edit for each in self.chosen])


def proven(
    trial: Trial,
    candidates: Sequence[Sequence[Edit]],
    announce: Callable[[str], None],
    *,
    unsafe: bool = False,
) -> Proven:
    """Try the *candidates* of each finding, then together what helped.

    What needs a judgement is chosen only if *unsafe* edits are asked for.
    """
    tried: list[Tried] = []

    def helped() -> list[Edit]:
        taken = (each for each in tried if each.helps and (unsafe or each.is_safe))
        return [each.edit for each in taken]

    try:
        for number, edits in enumerate(candidates, start=1):
            place = f"{edits[0].file.name}:{edits[0].line}"
            announce(f"tries an edit of {place}, {number} of {len(candidates)}")
            tried += trial.of_finding(edits)
        edits, after, interrupted = *trial.of_all(helped()), False
    except KeyboardInterrupt:
        edits, after, interrupted = fitting(helped()), trial.before, True
    chosen = [each for each in tried if each.edit in edits]
    return Proven(tried=tried, chosen=chosen, after=after, interrupted=interrupted)
