"""Edits are shown only if runs of the program prove them: of a made-up program, line by line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from pytest_gpuperf.devices.audit_record import StepAudit, StepMark, Totals
from pytest_gpuperf.devices.memory_picture import Garbage
from pytest_gpuperf.fixes.counts import Ran
from pytest_gpuperf.fixes.edits import ByHand, Edit
from pytest_gpuperf.fixes.shown import diff_lines, fixes_document, proof_lines
from pytest_gpuperf.fixes.trial import Proven, Trial, proven
from pytest_gpuperf.model.ab import Sketch, TrainedStep, TrainingRecord
from pytest_gpuperf.model.finding import Finding, FindingKind, Location
from pytest_gpuperf.model.metrics import (
    D2H_BYTES,
    FLOPS,
    H2D_BYTES,
    LAUNCHES,
    MIB,
    PAGEABLE_COPIES,
)


FILE = Path("/project/train.py")
STEPS = 10


def finding(line: int, words: list[str]) -> Finding:
    """Of the line ``wait 10`` or ``wait 2 rarely``: how often, and in which steps."""
    often = int(words[0])
    return Finding(
        kind=FindingKind.SYNC,
        op="aten::_local_scalar_dense",
        per_step=often,
        in_steps=min(often, STEPS),
        location=Location(file=str(FILE), line=line, function="<module>"),
    )


def written(done: Mapping[str, list[tuple[int, list[str]]]], word: str) -> str:
    return "".join(f"{' '.join(words)}\n" for _, words in done.get(word, ()))


def number_of(word: str) -> Sketch:
    return Sketch(shape=(1,), norm=float(word), sums=(float(word),))


class Program:
    """Runs a text whose lines say what the program does, and counts its runs.

    ``wait N``, ``print WORDS``, ``loss N``, ``copy BYTES``, ``keep MIB``, ``leave BYTES``,
    ``draw N``, ``steps N``, ``loop``, ``exit N``, ``result NAME N``. ``now`` is another number
    in each run.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.runs = 0

    def __call__(self, texts: Mapping[str, str]) -> Ran:
        self.runs += 1
        text = texts.get(str(FILE), self.text).replace("now", str(self.runs))
        lines = [(n, *line.split()) for n, line in enumerate(text.splitlines(), 1)]
        done: dict[str, list[tuple[int, list[str]]]] = {}
        for number, word, *words in lines:
            done.setdefault(word, []).append((number, words))

        def total(word: str) -> int:
            return sum(int(words[0]) for _, words in done.get(word, ()))

        waits = tuple(finding(number, words) for number, words in done.get("wait", ()))
        if "interrupt" in done:
            raise KeyboardInterrupt
        losses = tuple(number_of(words[0]) for _, words in done.get("loss", ()))
        return Ran(
            code=total("exit"),
            outputs={
                "standard output": written(done, "print"),
                "standard error": written(done, "warn"),
                "loss.csv": written(done, "write"),
            },
            audit=StepAudit(
                findings=waits,
                copies=(),
                totals=Totals(
                    syncs=sum(each.per_step for each in waits),
                    inconclusive=total("unsure"),
                    blocking_copies=0,
                    counts={
                        PAGEABLE_COPIES.name: total("pageable"),
                        H2D_BYTES.name: total("copy"),
                        D2H_BYTES.name: 0,
                        LAUNCHES.name: 1,
                        FLOPS.name: 0,
                    },
                ),
                not_checked=(),
                as_eager=(),
                steps=total("steps") or STEPS,
                mark=StepMark.LOOP if "loop" in done else StepMark.OPTIMIZER,
                syncs=(sum(each.per_step // STEPS for each in waits),) * STEPS,
                growth=Garbage(nbytes=total("leave"), held=(), cycle=""),
            ),
            training=TrainingRecord(steps=(TrainedStep(losses=losses),)),
            peak_bytes=total("keep") * MIB,
            gpu_draws=total("draw"),
            results={w[0]: number_of(w[1]) for _, w in done.get("result", ())},
        )


def edit(text: str, old: str, new: str, says: str = "") -> Edit:
    waiting = [
        n for n, line in enumerate(text.splitlines(), 1) if line in old.split("\n")
    ]
    return Edit(
        rule="a-rule",
        file=FILE,
        line=next((n for n in waiting if "wait" in text.splitlines()[n - 1]), 1),
        before=text,
        after=text.replace(old, new),
        says=says,
    )


def found(
    text: str,
    *edits: tuple[str, ...],
    unsafe: bool = False,
    run: Program | None = None,
) -> tuple[Proven, list[str]]:
    """Try each of *edits* of a text, and return what is shown of it."""
    trial = Trial(run or Program(text))
    candidates = [[edit(text, *each)] for each in edits]
    result = proven(trial, candidates, lambda _: None, unsafe=unsafe)
    return result, lines_of(result, trial)


class Others:
    def __init__(self) -> None:
        self.by_hand: list[ByHand] = []
        self.untried = 0


def lines_of(result: Proven, trial: Trial, *, verbose: bool = True) -> list[str]:
    shown = proof_lines(result, trial.before, Others(), FILE.parent, verbose=verbose)
    whole = "\n".join(shown).replace("\n    ", " ")
    return [line.strip() for line in whole.splitlines()]


TEXT = "loss 3\nwait 10\nwait 20\nprint done\n"


def test_edits_that_help_are_one_diff_with_a_line_each() -> None:
    result, lines = found(TEXT, ("wait 10", "pass"), ("wait 20", "wait 1"))

    assert list(diff_lines(result.texts, FILE.parent)) == [
        "--- a/train.py",
        "+++ b/train.py",
        "@@ -1,4 +1,4 @@",
        " loss 3",
        "-wait 10",
        "-wait 20",
        "+pass",
        "+wait 1",
        " print done",
    ]
    assert lines == [
        "gpuperf: 3 -> 0 syncs per step with 2 edits",
        "train.py:2: 1 -> 0 syncs per step; same training: in every digit",
        "train.py:3: 2 -> 0 syncs per step; same training: in every digit",
    ]


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("wait 10", "wait 10 again", "nothing is counted less often"),
        ("wait 20", "wait 10", "train.py:3 still waits"),
        ("wait 10", "loss 4", "the program trains otherwise"),
        ("done", "over", "nothing is counted less often"),
        ("wait 10", "print more", "standard output differs"),
        ("wait 10", "warn loss", "standard error differs"),
        ("wait 10", "write loss", "loss.csv differs"),
        ("wait 10", "exit 3", "the program ends with exit status 3, 0 before"),
        ("wait 10", "steps 9", "the program makes 9 steps, 10 before"),
        ("wait 10", "copy 8", "bytes to the GPU rise from 0 to 8"),
        ("wait 10", "pageable 10", "pageable copies rise from 0 to 10"),
        ("wait 10", "keep 2", "the peak of memory rises by 2 MiB"),
        ("wait 10", "leave 9999", "bytes left rise from 0 to 9999"),
        ("wait 10", "unsure 1", "inconclusive syncs rise from 0 to 1"),
    ],
)
def test_an_edit_without_proof_is_not_shown_and_has_its_reason(
    old: str, new: str, why: str
) -> None:
    result, lines = found(TEXT, (old, new))

    assert not result.chosen
    assert lines[0] == "gpuperf: no edit was proven"
    assert lines[1].endswith(f"not shown, a-rule: {why}")


def test_turns_of_a_loop_are_counted_by_what_an_edit_takes_out() -> None:
    text = f"{TEXT}loop\n"

    result, _ = found(text, ("wait 10", "steps 4"))

    assert len(result.chosen) == 1


def test_what_waits_elsewhere_instead_is_no_fix_unless_few_steps_do() -> None:
    often = ("wait 20\nprint done", "pass\nprint done\nwait 10")
    rarely = ("wait 20\nprint done", "pass\nprint done\nwait 2")

    assert [each.why for each in found(TEXT, often)[0].tried] != [""]
    assert [each.why for each in found(TEXT, rarely)[0].tried] == [""]


def test_a_list_of_losses_may_stay_on_the_gpu_and_be_read_once() -> None:
    result, _ = found(TEXT, ("wait 10", "leave 512\npageable 1"))

    assert len(result.chosen) == 1


def test_numbers_that_differ_by_rounding_are_within_a_limit() -> None:
    _, near = found(TEXT, ("loss 3\nwait 10", "loss 3.0000001\npass"))
    _, far = found(TEXT, ("loss 3\nwait 10", "loss 3.0001\npass"))

    assert near[1].endswith("same training: within 1e-06")
    assert far[1].endswith("the program trains otherwise")


NOISY = "loss now\nwait 10\nprint took now\nprint done\n"


def test_a_program_that_does_not_repeat_itself_proves_no_training() -> None:
    result, lines = found(NOISY, ("wait 10", "pass"))
    unsafe, _ = found(NOISY, ("wait 10", "pass"), unsafe=True)

    assert not result.chosen
    assert "same training: not compared, because before varies" in lines[1]
    assert lines[1].endswith("--unsafe takes it")
    assert len(unsafe.chosen) == 1


def test_what_a_program_prints_otherwise_each_time_is_left_out_of_account() -> None:
    noisy = TEXT.replace("done", "took now")
    one, _ = found(noisy, ("wait 10", "pass"))
    other, _ = found(noisy, ("wait 10", "print more"))

    assert len(one.chosen) == 1
    assert not other.chosen


@pytest.mark.parametrize(
    ("was", "now", "is_same"),
    [
        ("2 passed in 0.39s", "2 passed in 0.41s", True),
        ("2 passed in 0.39s", "3 passed in 0.39s", False),
        ("4/4 [00:01<00:00, 2.60it/s]", "4/4 [00:02<00:00, 1.9it/s]", True),
        ("took 12 ms", "took 9.5 ms", True),
        ("loss 0.39", "loss 0.41", False),
    ],
)
def test_a_time_that_two_runs_print_alike_by_chance_is_not_compared(
    was: str,
    now: str,
    is_same: bool,  # noqa: FBT001, a column of the table
) -> None:
    result, _ = found(
        f"wait 10\nprint {was}\n", (f"wait 10\nprint {was}", f"print {now}")
    )

    assert len(result.chosen) == is_same


LOGGED = "wait 10\nwarn at now loss 3\nprint done\n"


def test_of_a_line_with_the_time_of_day_all_other_words_are_compared() -> None:
    one, _ = found(LOGGED, ("wait 10", "pass"))
    other, _ = found(LOGGED, ("wait 10\nwarn at now loss 3", "warn at now loss [3]"))

    assert len(one.chosen) == 1
    assert [each.why for each in other.tried] == ["standard error differs"]


def test_a_draw_that_moves_to_the_gpu_is_not_compared() -> None:
    result, lines = found(TEXT, ("wait 10", "draw 1"))

    assert not result.chosen
    assert "it makes random numbers on the GPU" in lines[1]


def test_what_trains_nothing_is_judged_by_what_it_prints() -> None:
    silent = "wait 10\npass\n"
    _, printing = found("wait 10\nprint done\n", ("wait 10", "pass"))
    _, without = found(silent, ("wait 10", "pass"))

    assert "nothing is trained, and the same is printed" in printing[1]
    assert "not compared, because the program trains nothing" in without[1]


RESULTS = "wait 10\nresult best 4\nresult seconds now\n"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("pass", "nothing is trained, and best ends the same in every digit"),
        (
            "result best 4.000001",
            "nothing is trained, and best ends the same within 1e-06",
        ),
        ("result best 5", "best differs"),
    ],
)
def test_what_neither_trains_nor_prints_is_judged_by_its_variables(
    change: str, said: str
) -> None:
    keeps = change == "pass"
    edits = [("wait 10", "pass")] if keeps else [("wait 10\nresult best 4", change)]
    result, lines = found(RESULTS, *edits)

    assert said in " ".join(lines)
    assert len(result.chosen) == ("differs" not in said)


def test_the_headline_names_what_fell() -> None:
    text = "pageable 20\nwait 10\nprint done\n"

    _, lines = found(text, ("pageable 20", "pageable 10"))

    assert lines[0] == "gpuperf: 2 -> 1 pageable copies per step with 1 edit"


def test_copies_of_the_set_up_are_not_shared_out_to_the_steps() -> None:
    text = "pageable 1233\nwait 10\nprint done\n"

    _, lines = found(text, ("pageable 1233", "pageable 13"))

    assert lines[0] == "gpuperf: 1,233 -> 13 pageable copies in 10 steps with 1 edit"


def test_an_edit_that_says_something_is_in_the_diff_only_if_it_is_asked_for() -> None:
    says = ("wait 10", "print more", "prints the loss of step 10")
    safe, _ = found(TEXT, says)
    unsafe, lines = found(TEXT, says, unsafe=True)

    assert not safe.chosen
    assert len(unsafe.chosen) == 1
    assert lines[1].endswith("prints the loss of step 10")


def test_the_first_edit_of_a_finding_that_helps_is_taken() -> None:
    run = Program(TEXT)
    trial = Trial(run)
    edits = [edit(TEXT, "wait 10", new) for new in ("wait 11", "pass", "steps 10")]

    result = proven(trial, [edits], lambda _: None)

    assert [bool(each.why) for each in result.tried] == [True, False]
    assert run.runs == 3  # the two together are what was run already


def test_of_edits_that_change_the_same_line_the_first_is_taken() -> None:
    result, lines = found(TEXT, ("wait 10", "pass"), ("wait 10", "pass pass"))

    assert [each.edit.after for each in result.chosen] == [
        TEXT.replace("wait 10", "pass")
    ]
    assert "the edits above exclude it" in lines[2]


class Unfriendly(Program):
    """Trains otherwise with two edits at once."""

    def __call__(self, texts: Mapping[str, str]) -> Ran:
        more = {f: t.replace("loss 3", "loss 4") for f, t in texts.items()}
        both = all(t.count("pass") > 1 for t in texts.values()) and texts
        return super().__call__(more if both else texts)


def test_edits_that_only_help_alone_are_not_taken_together() -> None:
    result, _ = found(
        TEXT, ("wait 10", "pass"), ("wait 20", "pass"), run=Unfriendly(TEXT)
    )

    assert [each.edit.line for each in result.chosen] == [2]
    assert result.after.audit is not None
    assert result.after.audit.totals.syncs == 20


def test_ctrl_c_shows_what_was_proven_alone() -> None:
    result, lines = found(TEXT, ("wait 10", "pass"), ("wait 20", "interrupt"))

    assert [each.edit.line for each in result.chosen] == [2]
    assert lines[-1].startswith("interrupted: each edit was tried alone")


def test_the_object_for_programs_has_all_that_was_tried() -> None:
    result, _ = found(TEXT, ("wait 10", "pass"), ("wait 20", "exit 1"))

    document = fixes_document(result, [], [])

    assert [each["in_diff"] for each in document["edits"]] == [True, False]
    assert document["edits"][0]["before"] == 1
    assert document["edits"][1]["why_not"] is not None
    assert document["diff"].endswith("\n")


def test_a_file_without_a_last_line_end_keeps_it() -> None:
    result, _ = found("loss 3\nwait 10", ("wait 10", "pass"))

    lines = list(diff_lines(result.texts, FILE.parent))
    assert lines.count("\\ No newline at end of file") == 2
