"""What a run left in its folder, as the commands name and read it."""

from __future__ import annotations

from pathlib import Path

from ..errors import UsageError
from ..model.measurement import Samples
from ..model.results import FILE
from ..model.results import SAMPLES_FILE
from ..model.results import Results
from ..report import results_json
from ..report import samples_json


def results_file(path: Path) -> Path:
    """Return the file of results that *path* names, or the one in that folder."""
    return path / FILE if path.is_dir() else path


def read_results(file: Path, absent: str) -> Results:
    """Read *file*; *absent* says why there may be none.

    Raises ``UsageError`` where it cannot be read or holds no results.
    """
    text = _text(file, results_json.EXPECTED, absent)
    return results_json.loads(text, str(file))


def read_samples(file: Path) -> dict[str, tuple[Samples, ...]]:
    """Read the samples beside the results in *file*; raises ``UsageError`` likewise."""
    samples = file.with_name(SAMPLES_FILE)
    text = _text(samples, samples_json.EXPECTED, f"a run leaves it beside {FILE}")
    return samples_json.loads(text, str(samples))


def _text(file: Path, expected: str, absent: str) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        msg = f"{file}: there is no such file; {absent}"
    except OSError as error:
        msg = f"{file}: cannot be read, {(error.strerror or str(error)).lower()}; {expected}"
    except UnicodeDecodeError:
        msg = f"{file}: no UTF-8 text; {expected}"
    raise UsageError(msg) from None
