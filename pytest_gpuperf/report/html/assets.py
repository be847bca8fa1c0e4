"""The style and the script of a page, and the policy that lets nothing else in."""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Final

from .markup import Markup


STYLE: Final = "page.css"
SCRIPT: Final = "page.js"


@cache
def asset(name: str) -> Markup:
    """Return the text of a file beside this module."""
    return Markup(files(__package__).joinpath(name).read_text(encoding="utf-8"))


def policy() -> str:
    """Return a Content-Security-Policy: this style, this script, and no request at all.

    A script that got in by a text that was not escaped would not run.
    """
    return "; ".join(
        (
            "default-src 'none'",
            f"style-src '{_hash(asset(STYLE))}'",
            f"script-src '{_hash(asset(SCRIPT))}'",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
