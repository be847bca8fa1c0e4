"""The pictures of the README, drawn from what the commands print, in light and in dark.

``python tools/pictures.py --write`` draws them anew; without it, the script exits with 1
and names each picture that shows something else than what is printed today.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text


ROOT: Final = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from documents import blocks_of, edited

from pytest_gpuperf.cli.shared_options import read_results
from pytest_gpuperf.model.finding import Finding
from pytest_gpuperf.model.run import RESULTS_NAME
from pytest_gpuperf.report.html.step import step_svg, waits_of
from pytest_gpuperf.report.judged_calls import judged_calls


PICTURES: Final = ROOT / "docs" / "pictures"
SCRIPT: Final = ROOT / "examples" / "first_minute" / "train.py"

COLUMNS: Final = 90
"""What fits the README's column at GitHub with letters that can be read."""

THEMES: Final = {
    "light": TerminalTheme(
        (255, 255, 255),
        (31, 35, 40),
        [
            (31, 35, 40),
            (207, 34, 46),
            (26, 127, 55),
            (154, 103, 0),
            (9, 105, 218),
            (130, 80, 223),
            (11, 110, 120),
            (89, 99, 110),
        ],
    ),
    "dark": TerminalTheme(
        (13, 17, 23),
        (230, 237, 243),
        [
            (110, 118, 129),
            (255, 123, 114),
            (63, 185, 80),
            (210, 153, 34),
            (88, 166, 255),
            (188, 140, 255),
            (57, 197, 207),
            (177, 186, 196),
        ],
    ),
}
"""Colours of GitHub's two themes, by ANSI number; each has a contrast of 4.5 or more."""

# Rich's own frame loads a font from the network, and has the buttons of a window.
FRAME: Final = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{
  font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px;
}}
{styles}
</style>
<defs>
{lines}
</defs>
<rect width="{width}" height="{height}" rx="8" fill="BACKGROUND" stroke="#8b949e"/>
<g transform="translate({terminal_x}, {terminal_y})">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def main() -> int:
    """Draw the pictures, or compare them with those that are stored."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="draw them anew")
    write = parser.parse_args().write
    stale = []
    pictures = {n: partial(svg, text, n) for n, text in printed()}
    pictures["step"] = partial(step, changed_findings())
    for name, draw in pictures.items():
        for theme in THEMES:
            path = PICTURES / f"{name}-{theme}.svg"
            drawn = draw(theme)
            if write:
                PICTURES.mkdir(exist_ok=True)
                path.write_text(drawn, encoding="utf-8")
            elif not path.is_file() or path.read_text(encoding="utf-8") != drawn:
                stale.append(str(path.relative_to(ROOT)))
    for name in stale:
        print(f"{name} is stale: run python tools/pictures.py --write")
    return bool(stale)


def printed() -> Iterator[tuple[str, str]]:
    """Yield what ``gpuperf audit`` and a failing ``pytest --gpuperf`` print."""
    with TemporaryDirectory() as folder:
        shutil.copy(SCRIPT, folder)
        yield "audit", audit(Path(folder))
    with TemporaryDirectory() as folder:
        yield "failure", failure(Path(folder))


def audit(folder: Path) -> str:
    shown = run(folder, "pytest_gpuperf", "audit", SCRIPT.name)
    findings = shown[shown.index("\x1b[34;1m  --> ") :]
    return f"$ gpuperf audit {SCRIPT.name}\n{findings}"


def failure(folder: Path) -> str:
    """Return how the README's test fails after the README's change, which *folder* keeps."""
    readme = blocks_of((ROOT / "README.md").read_text(encoding="utf-8"))
    blocks = {block.kind: block for block in readme if block.name == "test_train.py"}
    test = folder / "test_train.py"
    test.write_text(blocks["python"].text, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    gate = ("pytest", "--gpuperf", "--gpuperf-device=simulated", "--color=yes")
    run(folder, *gate, "--gpuperf-update=missing")
    changed = edited(blocks["python"].text, blocks["diff"].text)
    test.write_text(changed, encoding="utf-8")
    shown = run(folder, *gate)
    lines = shown.splitlines(keepends=True)
    first = next(n for n, line in enumerate(lines) if "_ test_train_step _" in line)
    end = next(n for n, line in enumerate(lines) if "= gpuperf =" in line)
    return "$ pytest --gpuperf\n" + "".join(lines[first:end])


def changed_findings() -> list[Finding]:
    """Return where the README's test waits after the README's change."""
    with TemporaryDirectory() as folder:
        failure(Path(folder))
        results = read_results(Path(folder, ".gpuperf", RESULTS_NAME), "")
    (call,) = judged_calls(results, RESULTS_NAME)
    return waits_of(call.verdict.findings)


STEP_WIDTH: Final = 830

STEP_INKS: Final = """\
text { font: 13px system-ui, sans-serif; fill: QUIET; }
path { fill: none; vector-effect: non-scaling-stroke; }
.end { text-anchor: end; }
.cpu { fill: QUIET; } .gpu { fill: BLUE; } .tick { stroke: PAPER; }
.wait, .gap { stroke: RED; fill: RED; fill-opacity: .15; stroke-width: 1.5; }
.gap { stroke-dasharray: 4 3; } .leader { stroke: QUIET; }
.title { font-weight: 600; fill: INK; }
.new, .old { font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: INK; }
.new tspan:first-child { fill: RED; font-weight: 700; }
"""


def step(waits: Sequence[Finding], theme: str) -> str:
    """Draw a step with its *waits*, as a page does, as a file of its own."""
    drawn = step_svg(waits, room=52, width=STEP_WIDTH)
    style = STEP_INKS
    colours = THEMES[theme]
    ansi = colours.ansi_colors
    inks = {
        "PAPER": colours.background_color,
        "INK": colours.foreground_color,
        "RED": ansi[1],
        "BLUE": ansi[4],
        "QUIET": ansi[7],
    }
    for name, colour in inks.items():
        style = style.replace(name, "#{:02x}{:02x}{:02x}".format(*colour))
    head, end, shapes = drawn.partition(">")
    return f"{head}{end}\n<style>\n{style}</style>\n{shapes}\n"


def run(folder: Path, module: str, *arguments: str) -> str:
    """Return what a command prints on a terminal with colours, whatever its exit code."""
    environ = {
        k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "CI"))
    }
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=folder,
        env=environ | {"COLUMNS": str(COLUMNS), "FORCE_COLOR": "1", "NO_COLOR": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return re.sub(r"^gpuperf: measuring .*\n", "", done.stdout, flags=re.MULTILINE)


def svg(text: str, name: str, theme: str) -> str:
    """Draw *text* with its colours as a terminal of ``COLUMNS`` would show it."""
    console = Console(
        record=True,
        width=COLUMNS,
        file=StringIO(),
        force_terminal=True,
        legacy_windows=False,
    )
    console.print(Text.from_ansi(text.rstrip("\n")), soft_wrap=False)
    colours = THEMES[theme]
    background = "#{:02x}{:02x}{:02x}".format(*colours.background_color)
    drawn = console.export_svg(
        theme=colours,
        code_format=FRAME.replace("BACKGROUND", background),
        unique_id=f"{name}-{theme}",
    )
    return "\n".join(line.rstrip() for line in drawn.splitlines()) + "\n"


if __name__ == "__main__":
    sys.exit(main())
