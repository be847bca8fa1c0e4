"""Secrets in text that leaves this process: reports, comments, logs, files of results.

A secret is known by the name of its variable, or by its own shape.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

from ..model.finding import Finding, Location
from ..model.metrics import METRICS
from ..model.verdict import TestVerdict
from .screen.findings import PACKAGES_FOLDER


MASK: Final = "***"
"""Replaces a secret, as in the logs of GitHub."""

LEAST_SECRET: Final = 6
"""Characters of a value that is masked: a shorter one would be found in every text."""

SURE_SECRET: Final = 8
"""Characters of a value that is masked also within a word."""

LEAST_LINE: Final = 16
"""Characters of a line that is masked by itself, as of a private key."""

# The exceptions are names such as TOKENIZERS_PARALLELISM, MAX_TOKENS, BYPASS and
# COMPASS.
NAMES_SECRET: Final = re.compile(
    r"TOKEN(?!IZER|S$)|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|(?:API|ACCESS)_?KEY"
    r"|(?<!BY)(?<!COM)PASS$|_PWD$|(?:^|_)(?:KEY|PAT|AUTH|COOKIES?|CREDS|DSN)$"
)
"""Names of environment variables with values to hide."""

PLAIN_WORDS: Final = frozenset(
    {*METRICS, "default", "enabled", "disabled", "localhost", "always", "required"}
)
"""Values that are settings, and words that a report needs."""

_URL: Final = re.compile(
    r"(?P<head>\b[a-z][a-z0-9+.-]*://[^\s:/@]*:)(?P<word>[^\s/]+)@", re.IGNORECASE
)

_SHAPES: Final = re.compile(
    r"""
    -----BEGIN\ [A-Z ]*PRIVATE\ KEY-----.*?(?:-----END\ [A-Z ]*PRIVATE\ KEY-----|\Z)
    | \bgh[opsur]_[A-Za-z0-9]{16,} | \bgithub_pat_\w{16,}
    | \bgl(?:pat|dt|rt|ptt|cbt|oas)-[\w-]{16,}
    | \b(?:AKIA|ASIA)[0-9A-Z]{16}\b
    | \bxox[abeoprs]-[\w-]{10,} | \bxapp-[\w-]{10,}
    | \bhf_[A-Za-z0-9]{16,} | \bsk-[\w-]{20,} | \bsk_live_\w{16,} | \br8_\w{20,}
    | \bpypi-[\w-]{16,} | \bnpm_[A-Za-z0-9]{20,} | \bdckr_pat_[\w-]{16,}
    | \bAIza[\w-]{30,} | \beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*
    """,
    re.VERBOSE | re.DOTALL,
)
"""Keys of GitHub, GitLab, AWS, Slack, Hugging Face and others, and JSON Web Tokens."""

# "Basic" and "bearer" are words of prose, too: what follows must have a digit, an
# equals sign or mixed case. Two equals signs are a comparison in code, and no argument.
_ARGUMENT: Final = re.compile(
    r"""
    (?P<head>
        \b(?:basic|bearer)\s+(?=\S{8})(?-i:(?=\S*(?:[\d=]|[a-z][A-Z])))
        | [?&](?:[\w-]*(?:token|secret|passw(?:or)?d|signature|api_?key)|sig|key)=
        | (?<![\w-])(?:[\w-]*passw(?:or)?d|pwd)=(?!=)
    )
    (?P<word>'[^']*'|"[^"]*"|[^\s&,;'")]+)
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""What follows a word that says it is secret: in headers, URLs and arguments."""


def secrets_of(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values of *environ* that must not be carried elsewhere."""
    return tuple(dict.fromkeys(_secrets(environ)))


def masked(text: str, secrets: Sequence[str] = ()) -> str:
    """Return *text* without *secrets*, and without what looks like one."""
    if not text:
        return text
    # Shapes first: a known value inside a key would leave the rest of the key readable.
    text = _SHAPES.sub(MASK, text)
    pattern = _pattern(tuple(secrets))
    text = pattern.sub(MASK, text) if pattern else text
    if "://" in text:
        text = _URL.sub(rf"\g<head>{MASK}@", text)
    return _ARGUMENT.sub(rf"\g<head>{MASK}", text)


def _secrets(environ: Mapping[str, str]) -> Iterator[str]:
    for name, value in environ.items():
        for found in _URL.finditer(value):
            yield from filter(_is_secret, (found["word"], unquote(found["word"])))
        # A URL is no secret as a whole, and its password was yielded above.
        if NAMES_SECRET.search(name.upper()) and "://" not in value:
            yield from filter(_is_secret, (value, value.strip()))
            lines = value.split("\n") if "\n" in value else []
            yield from (line for line in lines if len(line) >= LEAST_LINE)


def _is_secret(value: str) -> bool:
    return len(value) >= LEAST_SECRET and value not in PLAIN_WORDS


@lru_cache(maxsize=8)
def _pattern(secrets: tuple[str, ...]) -> re.Pattern[str] | None:
    """Find each as it is and as it is written in a URL, in JSON and in a ``repr``."""
    forms = {
        form
        for secret in secrets
        for form in (
            *(secret, quote(secret, safe="")),
            *(json.dumps(secret)[1:-1], repr(secret)[1:-1]),
        )
    }
    if not forms:
        return None
    # An alternation takes the first match: a secret that begins with another one would
    # be masked in part.
    longest_first = sorted(forms, key=len, reverse=True)
    return re.compile("|".join(map(_alone, longest_first)))


def _alone(secret: str) -> str:
    found = re.escape(secret)
    if len(secret) >= SURE_SECRET:
        return found
    return rf"(?<![A-Za-z0-9]){found}(?![A-Za-z0-9])"


# Removes paths, user names and secrets from what may leave this machine.

HOME: Final = "~"


def shown_verdict(verdict: TestVerdict) -> TestVerdict:
    """Shorten paths outside the project to their package, or to their name."""
    return replace(
        verdict,
        findings=tuple(map(_shown_finding, verdict.findings)),
        snapshot=_shown_path(verdict.snapshot),
        trace=_shown_path(verdict.trace),
    )


def shown_headline(
    text: str, root: Path, home: Path, secrets: Iterable[str] = ()
) -> str:
    """Name paths in *text* from *root* on, or from *home*, and mask *secrets*."""
    text = masked(text, tuple(secrets))
    return text.replace(f"{root}{os.sep}", "").replace(str(home), HOME)


def _shown_finding(finding: Finding) -> Finding:
    return replace(
        finding,
        location=_shown_location(finding.location),
        innermost=_shown_location(finding.innermost),
        forward=_shown_location(finding.forward),
    )


def _shown_location(location: Location | None) -> Location | None:
    return location and replace(location, file=_shown_path(location.file))


def _shown_path(path: str) -> str:
    if not Path(path).is_absolute():
        return path
    _, installed, inside = path.rpartition(PACKAGES_FOLDER)
    return inside if installed else Path(path).name
