"""The exceptions of this package, as one tree.

GpuperfError
├── UsageError          a wrong option, ini key, mark or file; pytest exits with 4
│   ├── BaselineError   a baseline file that cannot be read or written
│   └── QuotedError     one that another program explains, in lines of its own
├── PreflightError      a process or machine on which no honest number can be read
├── StepError           a step that cannot be measured
└── RunError            a measuring process that gave no result

Each has an id, which ends its text and is explained in ``docs/errors.md``.
"""

from __future__ import annotations

import re
from enum import Enum
from enum import unique
from typing import Final


@unique
class ErrorId(Enum):
    """What went wrong, by the id that users see. An id never changes its meaning."""

    # Options, settings and the command line of gpuperf.
    GP101 = "A setting has a value that it does not take"
    GP102 = "A command line of gpuperf that cannot be parsed"
    GP103 = "No such command of gpuperf"
    GP104 = "A refresh was asked for in CI"
    GP105 = "A reference without a check"
    GP106 = "An inline run that needs other processes"
    GP107 = "Pruning beside a selection of tests"
    GP108 = "pytest-benchmark is not active"
    GP109 = "The settings of the project cannot be read"
    GP110 = "A script that cannot be read"
    GP111 = "No such module"
    GP112 = "No such root folder"
    GP113 = "No batch size to halve"
    GP114 = "An option that needs --gpuperf"
    GP115 = "A baseline of counts that cannot be read"
    GP116 = "A run that measures and watches"

    # Marks, budgets and calls of the fixture.
    GP201 = "An unknown keyword of a mark"
    GP202 = "A budget that is not a limit"
    GP203 = "A mark that says nothing"
    GP204 = "A budget on no hardware"
    GP205 = "A tolerance that is not a percentage"
    GP206 = "A slowdown that would pass in silence"
    GP207 = "A number of ranks, or a timeout, that is none"
    GP208 = "A mark with positional arguments"
    GP209 = "A name of a call that is none"
    GP210 = "Two calls of one name"
    GP211 = "A throughput of nothing"
    GP212 = "A tolerance of the training that is none"
    GP213 = "An allowed sync without a reason"
    GP214 = "A number of allowed syncs that is none"
    GP215 = "A step that cannot be called"
    GP216 = "Nothing that makes a step"
    GP217 = "A size that cannot be asked about"
    GP218 = "A loader that cannot be iterated"
    GP219 = "No step of one batch"
    GP220 = "A comparison in ranks"
    GP221 = "Limits that allow no verdict"
    GP222 = "A test that was collected without the fixture"
    GP223 = "Nothing that trains"
    GP224 = "A framework that is too old"

    # Steps that cannot be measured.
    GP301 = "A step that only starts its work"
    GP302 = "A loader without batches"
    GP303 = "A time that no step can take"
    GP304 = "A trace that is not JSON"
    GP305 = "A trace without steps"
    GP306 = "A function from before the simulated GPU"
    GP307 = "An operation that cannot be predicted"
    GP308 = "Code that only a GPU can judge"
    GP309 = "Values that do not fit this machine"
    GP310 = "A bug of the simulated GPU"
    GP311 = "A training loop that ended too early"
    GP312 = "A test that replaces what measures it"

    # Devices, and what must not be active on them.
    GP401 = "No such device here"
    GP402 = "A timer without CUDA"
    GP403 = "No scripted device, or no script for it"
    GP404 = "Every kernel is waited for"
    GP405 = "Another profiler is active"
    GP406 = "A dispatch mode is active"
    GP407 = "Anomaly mode is on"
    GP408 = "Sync debug mode is on"
    GP409 = "An allocator that counts no peak"
    GP410 = "The profiler does not see the GPU"
    GP411 = "The device is in use"
    GP412 = "A folder or file of the locks that cannot be used"
    GP413 = "A device that times no steps"
    GP414 = "The baselines are of other devices"

    # Baselines, results and histories.
    GP501 = "A baseline file that cannot be read"
    GP502 = "A broken baseline file"
    GP503 = "A file of a newer version"
    GP504 = "A baseline file under a wrong name"
    GP505 = "A number that cannot be stored"
    GP506 = "A file of the run that cannot be written"
    GP507 = "The baselines are locked"
    GP508 = "Baselines of two kinds of hardware"
    GP509 = "No baselines to show"
    GP510 = "No measured baselines to accept"
    GP511 = "No such test among the measured ones"
    GP512 = "A broken results file"
    GP513 = "Results with a number that is none"
    GP514 = "Nothing to export"
    GP515 = "A shard was given twice"
    GP516 = "Shards of different runs"
    GP517 = "Shards that contradict each other"
    GP518 = "A history that cannot be read"
    GP519 = "A history that cannot be written"
    GP520 = "No history was named"
    GP521 = "An empty history"
    GP522 = "Nothing of that name in the history"
    GP523 = "A file that is none of the history"
    GP524 = "A history with a number that is none"
    GP525 = "A file that is not a memory snapshot"
    GP526 = "A link in place of a folder"
    GP527 = "A results file that cannot be read"
    GP528 = "A page without jinja2"

    # Measuring processes and ranks.
    GP601 = "No result in time"
    GP602 = "A measuring process died"
    GP603 = "A result that cannot be read"
    GP604 = "The measuring server could not start"
    GP605 = "The measuring server died"
    GP606 = "A measuring process ran no test"
    GP607 = "A torch without torch.distributed"
    GP608 = "The store of torchrun is gone"
    GP609 = "Ranks that torchrun did not start"
    GP610 = "torchrun does not share its store"
    GP611 = "torchrun and pytest-xdist"
    GP612 = "A run of ranks that could not begin"
    GP613 = "Ranks without a time limit"
    GP614 = "No temporary folder"

    # Comparisons of commits and of steps.
    GP701 = "No git repository"
    GP702 = "No such commit"
    GP703 = "Nothing to compare with"
    GP704 = "git is not installed"
    GP705 = "A commit that cannot be checked out"
    GP706 = "A submodule's commit that is not here"
    GP707 = "A folder that one version lacks"
    GP708 = "The tests of a version cannot be collected"
    GP709 = "Nothing was compared"
    GP710 = "A bisection that cannot go on"
    GP711 = "A good commit that is not an ancestor"
    GP712 = "A bad commit that is not worse"
    GP713 = "Two steps that share tensors"
    GP714 = "A training that differs"
    GP715 = "Times that cannot be compared"
    GP716 = "Nothing to install packages with"
    GP717 = "A lock file that pins nothing"
    GP718 = "A package that cannot be installed"
    GP719 = "A package that is not here to be left out"
    GP720 = "A patch that does not apply"


_QUOTED_ID: Final = re.compile(r"\s+\[(GP\d{3})\]$")


class GpuperfError(Exception):
    """Expected failure: its text is for the user, its traceback is not.

    An error that ends with the text of another one has the id of that one: it is the
    cause, and errors come from other processes as texts.
    """

    def __init__(self, text: str, error_id: ErrorId) -> None:
        """Take the *text*, and the id of what went wrong."""
        text = text.rstrip()
        quoted = _QUOTED_ID.search(text)
        if quoted is not None and quoted[1] in ErrorId.__members__:
            text, error_id = text[: quoted.start()], ErrorId[quoted[1]]
        super().__init__(text, error_id)
        self.text: Final = text
        self.error_id: Final = error_id

    def __str__(self) -> str:
        """Return the visible text, and the id behind it."""
        return f"{self._visible()} [{self.error_id.name}]"

    def _visible(self) -> str:
        """Make visible what came into it from a name, a file or another exception."""
        from .visible import visible_text  # not before something has gone wrong

        return visible_text(self.text)


class UsageError(GpuperfError):
    """A wrong option, ini key, mark or file."""

    def _visible(self) -> str:
        """Say it in one line: a name in it must not look like a line of ours."""
        from .visible import visible_line

        return visible_line(self.text)


class BaselineError(UsageError):
    """A baseline file that cannot be read or written."""


class QuotedError(UsageError):
    """One that another program explains, in as many lines as it likes."""

    def _visible(self) -> str:
        """Keep the lines."""
        from .visible import visible_text

        return visible_text(self.text)


class PreflightError(GpuperfError):
    """A process or machine on which no honest number can be read."""


class StepError(GpuperfError):
    """A step that cannot be measured."""


class RunError(GpuperfError):
    """A measuring process that gave no result."""
