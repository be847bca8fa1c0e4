"""What can go wrong, as one tree.

GpuperfError
├── UsageError          a wrong option, ini key, mark or file; pytest exits with 4
│   └── BaselineError   a baseline file that cannot be read or written
├── PreflightError      a process or machine on which no honest number can be read
├── StepError           a step that cannot be measured
└── RunError            a measuring process that gave no result
"""

from __future__ import annotations


class GpuperfError(Exception):
    """Expected failure: its text is for the user, its traceback is not."""


class UsageError(GpuperfError):
    """A wrong option, ini key, mark or file."""


class BaselineError(UsageError):
    """A baseline file that cannot be read or written."""


class PreflightError(GpuperfError):
    """A process or machine on which no honest number can be read."""


class StepError(GpuperfError):
    """A step that cannot be measured."""


class RunError(GpuperfError):
    """A measuring process that gave no result."""
