"""A headless Chromium, asked over two pipes in its DevTools protocol.

It has an empty profile and finds no host by any name.
"""

from __future__ import annotations

import json
import os
import select
import shlex
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Final


NAMES: Final = ("chromium", "chromium-browser", "google-chrome")

OPTIONS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--remote-debugging-pipe",
)

PATIENCE_SECONDS: Final = 600.0

Message = dict[str, Any]


def program() -> str | None:
    """Path of the first browser of this kind that is installed."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Chromium:
    """One browser with one page, from ``with`` to its end."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._unread = b""
        self._number = 0
        self.events: list[Message] = []
        """What it said of itself since the page was opened last."""

    def __enter__(self) -> Chromium:  # noqa: PYI034 - Self comes with Python 3.11
        self._profile = tempfile.mkdtemp(prefix="chromium-")
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        words = (
            self._path,
            *OPTIONS,
            f"--user-data-dir={self._profile}",
            "about:blank",
        )
        redirected = f"exec {shlex.join(words)} 3<&{theirs_in} 4>&{theirs_out}"
        self._process = subprocess.Popen(
            ("/bin/bash", "-c", redirected),
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._session = ""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)
        shutil.rmtree(self._profile, ignore_errors=True)

    def open(self, page: Path, fragment: str = "") -> None:
        """Load *page* afresh, and forget what was said before."""
        self._load("about:blank")
        self._load(f"{page.as_uri()}{fragment}")

    def _load(self, url: str) -> None:
        self.events.clear()
        self.call("Page.navigate", url=url)
        self._wait_for("Page.loadEventFired")

    def value(self, expression: str) -> Any:
        """Value of a JavaScript *expression* in the page, awaited if it is a promise."""
        answer = self.call(
            "Runtime.evaluate",
            expression=expression,
            returnByValue=True,
            awaitPromise=True,
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def type(self, text: str) -> None:
        """Type *text* into what has the focus."""
        self.call("Input.insertText", text=text)

    def press(self, key: str) -> None:
        """Press and let go a key, such as ``Enter`` or ``ArrowLeft``."""
        pressed = {"text": "\r", "windowsVirtualKeyCode": 13} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, **pressed)

    def point_at(self, x: float, y: float) -> None:
        """Move the pointer to a place in the window."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def resize(self, width: int, height: int, *, dark: bool = False) -> None:
        """Give the window a size in CSS pixels, and the user a taste."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    @property
    def requested(self) -> list[str]:
        """Addresses that the page asked for, its own first."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event["method"] == "Network.requestWillBeSent"
        ]

    @property
    def complaints(self) -> list[str]:
        """Errors and warnings on its console, those of its policy included."""
        return [
            text
            for event in self.events
            for text in [_complaint(event["method"], event["params"])]
            if text
        ]

    def call(self, method: str, **parameters: Any) -> Message:
        """Ask for *method* and return the answer."""
        self._number += 1
        session = {"sessionId": self._session} if self._session else {}
        asked = {"id": self._number, "method": method, "params": parameters, **session}
        os.write(self._out, json.dumps(asked).encode() + b"\0")
        while True:
            message = self._next()
            if message.get("id") == self._number:
                assert "error" not in message, (method, message["error"])
                result: Message = message["result"]
                return result

    def _wait_for(self, method: str) -> None:
        while all(event["method"] != method for event in self.events):
            self._next()

    def _next(self) -> Message:
        end = time.monotonic() + PATIENCE_SECONDS
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._in], [], [], end - time.monotonic())
            assert ready, f"no word from {self._path} for {PATIENCE_SECONDS:.0f} s"
            read = os.read(self._in, 2**20)
            assert read, f"{self._path} ended"
            self._unread += read
        text, _, self._unread = self._unread.partition(b"\0")
        message: Message = json.loads(text)
        if "method" in message:
            self.events.append(message)
        return message


def _complaint(method: str, parameters: Message) -> str:
    if method == "Log.entryAdded" and parameters["entry"]["level"] != "verbose":
        return str(parameters["entry"]["text"])
    if method == "Runtime.exceptionThrown":
        return str(parameters["exceptionDetails"])
    if method == "Runtime.consoleAPICalled":
        return str(parameters["args"])
    return ""
