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
from enum import Enum, unique
from typing import Final


@unique
class ErrorId(Enum):
    """What went wrong, by the id that users see. An id never changes its meaning."""

    # Options, settings and the command line of gpuperf.
    GP101 = "Wrong value of a setting"
    GP102 = "Command line that cannot be parsed"
    GP103 = "No such command"
    GP104 = "Refresh in CI"
    GP108 = "pytest-benchmark is not active"
    GP109 = "Settings of the project cannot be read"
    GP110 = "Script that cannot be read"
    GP111 = "No such module"
    GP112 = "No such root folder"
    GP113 = "No batch size to halve"
    GP114 = "Option that needs --gpuperf"
    GP115 = "Stored counts that cannot be read"
    GP116 = "A run that measures and watches"
    GP118 = "Name that was removed"

    # Marks, budgets and calls of the fixture.
    GP201 = "Unknown keyword of a mark"
    GP202 = "Budget that is not a limit"
    GP203 = "Mark that says nothing"
    GP204 = "Budget that names no hardware"
    GP205 = "Tolerance that is not a percentage"
    GP206 = "Slowdown that would pass in silence"
    GP207 = "Wrong number of ranks, or timeout"
    GP208 = "Mark with positional arguments"
    GP209 = "Wrong name of a call"
    GP210 = "Two calls with one name"
    GP211 = "Throughput without a size"
    GP212 = "Wrong tolerance of the training"
    GP213 = "Allowed sync without a reason"
    GP214 = "Wrong number of allowed syncs"
    GP215 = "Step that cannot be called"
    GP218 = "Loader that cannot be iterated"
    GP219 = "No step for one batch"
    GP220 = "Comparison in ranks"
    GP221 = "Limits that allow no verdict"
    GP222 = "Test collected without the fixture"
    GP223 = "Not a trainer"
    GP224 = "A framework that is too old"

    # Steps that cannot be measured.
    GP301 = "Step that only starts its work"
    GP302 = "Loader without batches"
    GP303 = "Time that no step can take"
    GP304 = "Trace that is not JSON"
    GP305 = "Trace without steps"
    GP306 = "Function from before the simulated GPU"
    GP307 = "Operation that cannot be predicted"
    GP308 = "Code that only a GPU can judge"
    GP310 = "Bug of the simulated GPU"
    GP311 = "Training loop that ended too early"
    GP312 = "A test that replaces what measures it"

    # Devices, and what must not be active on them.
    GP401 = "No such device here"
    GP402 = "Timer without CUDA"
    GP403 = "No scripted device, or no script"
    GP404 = "Every kernel is waited for"
    GP405 = "Another profiler is active"
    GP406 = "Dispatch mode is active"
    GP407 = "Anomaly mode is on"
    GP408 = "Sync debug mode is on"
    GP409 = "Allocator that counts no peak"
    GP410 = "Profiler does not see the GPU"
    GP411 = "Device is in use"
    GP412 = "Locks that cannot be used"
    GP413 = "Device without a clock"
    GP414 = "The baselines are of other devices"

    # Baselines and results.
    GP501 = "Baseline file that cannot be read"
    GP502 = "Broken baseline file"
    GP503 = "File of a newer version"
    GP504 = "Baseline file with a wrong name"
    GP505 = "Number that cannot be stored"
    GP506 = "File that cannot be written"
    GP507 = "Baselines are locked"
    GP510 = "Nothing to accept"
    GP511 = "No such test among the measured ones"
    GP512 = "Broken results file"
    GP513 = "Results with NaN"
    GP514 = "Nothing to export"
    GP525 = "Not a memory snapshot"
    GP526 = "Link in place of a folder"
    GP527 = "Results file that cannot be read"
    GP528 = "A page without jinja2"

    # Measuring processes and ranks.
    GP601 = "No result in time"
    GP602 = "Measuring process died"
    GP603 = "Result that cannot be read"
    GP604 = "Measuring server could not start"
    GP605 = "Measuring server died"
    GP606 = "Measuring process ran no test"
    GP607 = "torch without torch.distributed"
    GP608 = "Store of torchrun is gone"
    GP609 = "Ranks not started by torchrun"
    GP610 = "torchrun does not share its store"
    GP611 = "torchrun and pytest-xdist"
    GP612 = "Run of ranks that could not begin"
    GP613 = "Ranks without a time limit"
    GP614 = "No temporary folder"

    # Comparisons of commits and of steps.
    GP701 = "No git repository"
    GP702 = "No such commit"
    GP703 = "Nothing to compare with"
    GP704 = "git is not installed"
    GP705 = "Commit that cannot be checked out"
    GP706 = "Missing commit of a submodule"
    GP707 = "Folder that one version lacks"
    GP708 = "Tests that cannot be collected"
    GP709 = "Nothing was compared"
    GP713 = "Two steps that share tensors"
    GP714 = "Training that differs"
    GP715 = "Times that cannot be compared"
    GP716 = "Nothing to install packages with"
    GP717 = "Lock file that pins nothing"
    GP718 = "Package that cannot be installed"
    GP719 = "Package that is not here"
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

    _visible = GpuperfError._visible  # noqa: SLF001, the base says it in one line


class PreflightError(GpuperfError):
    """A process or machine on which no honest number can be read."""


class StepError(GpuperfError):
    """A step that cannot be measured."""


class RunError(GpuperfError):
    """A measuring process that gave no result."""
