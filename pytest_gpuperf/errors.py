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
    GP101 = "Invalid setting"
    GP102 = "Invalid command line"
    GP103 = "Unknown command"
    GP104 = "Refresh in CI"
    GP108 = "pytest-benchmark is not active"
    GP109 = "Unreadable project settings"
    GP110 = "Unreadable script"
    GP111 = "Unknown module"
    GP112 = "Root folder not found"
    GP113 = "No batch size to halve"
    GP114 = "Option that needs --gpuperf"
    GP115 = "Unreadable stored counts"
    GP116 = "A run that measures and watches"
    GP118 = "Removed name"
    GP119 = "libcst is not installed"
    GP120 = "File that no edit is written to"

    # Marks, budgets and calls of the fixture.
    GP201 = "Unknown keyword of a mark"
    GP202 = "Invalid budget"
    GP203 = "Empty mark"
    GP204 = "Invalid hardware pattern"
    GP205 = "Invalid tolerance"
    GP206 = "Slowdown that nothing reports"
    GP207 = "Invalid number of ranks, or timeout"
    GP208 = "Mark with positional arguments"
    GP209 = "Invalid name of a call"
    GP210 = "Two calls with one name"
    GP211 = "Invalid number of samples or tokens"
    GP212 = "Invalid tolerance of training"
    GP213 = "Allowed sync without a reason"
    GP214 = "Invalid number of allowed syncs"
    GP215 = "Step is not callable"
    GP218 = "Loader is not iterable"
    GP219 = "Step does not take a batch"
    GP220 = "Comparison in ranks"
    GP221 = "Invalid limits of a comparison"
    GP222 = "Test collected without the fixture"
    GP223 = "Not a trainer"
    GP224 = "Framework is too old"

    # Steps that cannot be measured.
    GP301 = "Step returns before its work is done"
    GP302 = "Loader has no batches"
    GP303 = "Impossible time"
    GP304 = "Trace is not valid JSON"
    GP305 = "Trace has no steps"
    GP306 = "Function imported before the simulated GPU began"
    GP307 = "Operation without a meta kernel"
    GP308 = "Code that needs a GPU"
    GP310 = "Bug of the simulated GPU"
    GP311 = "Training loop ended too early"
    GP312 = "Test replaces a function that measuring needs"

    # Devices, and what must not be active on them.
    GP401 = "Device is not available"
    GP402 = "Timer without CUDA"
    GP403 = "No scripted device, or no script"
    GP404 = "CUDA launches are blocking"
    GP405 = "Another profiler is active"
    GP406 = "Dispatch mode is active"
    GP407 = "Anomaly mode is on"
    GP408 = "Sync debug mode is on"
    GP409 = "Allocator does not record a peak"
    GP410 = "Profiler cannot access the GPU"
    GP411 = "Device is in use"
    GP412 = "Unusable locks"
    GP413 = "Device has no clock"
    GP414 = "The baselines are of other devices"

    # Baselines and results.
    GP501 = "Unreadable baseline file"
    GP502 = "Broken baseline file"
    GP503 = "File was written by a newer version"
    GP504 = "Baseline file with a wrong name"
    GP505 = "Number cannot be stored"
    GP506 = "File cannot be written"
    GP507 = "Baselines are locked"
    GP510 = "Nothing to accept"
    GP511 = "Test was not measured"
    GP512 = "Broken results file"
    GP513 = "Results with NaN"
    GP514 = "Nothing to export"
    GP525 = "Not a memory snapshot"
    GP526 = "Folder is a link"
    GP527 = "Unreadable results file"
    GP528 = "jinja2 is not installed"

    # Measuring processes and ranks.
    GP601 = "No result in time"
    GP602 = "Measuring process died"
    GP603 = "Unreadable result"
    GP604 = "Measuring server could not start"
    GP605 = "Measuring server died"
    GP606 = "Measuring process ran no test"
    GP607 = "torch was built without torch.distributed"
    GP608 = "Store of torchrun is gone"
    GP609 = "Ranks not started by torchrun"
    GP610 = "torchrun does not share its store"
    GP611 = "torchrun and pytest-xdist"
    GP612 = "Ranks could not start"
    GP613 = "Ranks have no time limit"
    GP614 = "No temporary folder"

    # Comparisons of commits and of steps.
    GP701 = "No git repository"
    GP702 = "No such commit"
    GP703 = "Nothing to compare with"
    GP704 = "git is not installed"
    GP705 = "Commit cannot be checked out"
    GP706 = "Commit of a submodule is missing"
    GP707 = "Folder is missing in one version"
    GP708 = "Tests cannot be collected"
    GP709 = "Nothing was compared"
    GP713 = "Steps share tensors"
    GP714 = "Training differs"
    GP715 = "Times cannot be compared"
    GP716 = "No package installer"
    GP717 = "Lock file pins nothing"
    GP718 = "Package cannot be installed"
    GP719 = "Package is not installed"
    GP720 = "Patch does not apply"


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
