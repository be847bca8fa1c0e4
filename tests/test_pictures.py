"""The README's pictures show what the commands print today."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from documents import ROOT


SVGS = sorted((ROOT / "docs" / "pictures").glob("*.svg"))


def test_the_pictures_are_drawn_from_what_is_printed_today() -> None:
    for package in ("rich", "torch"):
        pytest.importorskip(package)

    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "pictures.py"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        check=False,
    )

    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def test_the_readme_shows_each_of_them() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")

    shown = set(re.findall(r"docs/pictures/(\S+\.svg)", readme))

    assert shown == {path.name for path in SVGS}
    assert len(shown) == 6


@pytest.mark.parametrize("path", SVGS, ids=lambda path: path.name)
def test_a_picture_is_well_formed_and_loads_nothing(path: Path) -> None:
    text = path.read_text(encoding="utf-8")

    assert ET.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
    assert re.findall(r"https?://[^\"' )]+", text) == ["http://www.w3.org/2000/svg"]
    assert "@import" not in text
