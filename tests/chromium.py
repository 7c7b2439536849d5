"""A headless Chromium, controlled by its debugging protocol through two pipes, without further packages."""

from __future__ import annotations

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

NAMES = ("chromium", "chromium-browser", "chromium-headless-shell", "google-chrome", "google-chrome-stable")
PATH = next(filter(None, map(shutil.which, NAMES)), None)

# The browser reads from descriptor 3 and writes to 4. The pipes may already have these numbers, so copy them first.
_LAUNCHER = """
import fcntl, os, sys
r, w = (fcntl.fcntl(int(n), fcntl.F_DUPFD, 10) for n in sys.argv[1:3])
os.dup2(r, 3); os.dup2(w, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Chromium:
    """A browser with one tab. events: the messages it sent."""

    def __init__(self, folder: Path, timeout: float = 60):
        self.folder, self.timeout = folder, timeout
        self.events: list[dict[str, Any]] = []
        self._numbers = itertools.count(1)
        self._unread = b""

    def __enter__(self) -> Self:
        assert PATH
        self._from, theirs_out = os.pipe()
        theirs_in, self._to = os.pipe()
        options = ["--headless", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe",
                   f"--user-data-dir={self.folder}", *(["--no-sandbox"] if os.getuid() == 0 else [])]  # fmt: skip
        with (self.folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _LAUNCHER, str(theirs_in), str(theirs_out), PATH, *options],
                stdout=log, stderr=log, pass_fds=(theirs_in, theirs_out), env=os.environ | {"HOME": str(self.folder)},
            )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        self._session: str | None = None
        target = self.send_command("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send_command("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send_command(f"{domain}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(20)
        os.close(self._from)
        os.close(self._to)

    @property
    def requested_urls(self) -> list[str]:
        """The URLs that the browser requested."""
        return [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]

    @property
    def complaints(self) -> list[Any]:
        """The messages of the console: logs, errors, violations of the page's policy."""
        methods = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [e["params"] for e in self.events if e["method"] in methods]

    def send_command(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol, and return its answer."""
        number = next(self._numbers)
        session = {"sessionId": self._session} if self._session else {}
        os.write(self._to, json.dumps({"id": number, "method": method, "params": params} | session).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return dict(answer["result"])

    def open(self, address: str) -> None:
        """Open a URL, and wait until it is loaded."""
        self.send_command("Page.navigate", url=address)
        while not any(e["method"] == "Page.loadEventFired" for e in self.events):
            self._read()

    def value(self, script: str) -> Any:
        """Return the value of an expression on the page."""
        result = self.send_command("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def press(self, key: str, code: int, text: str = "") -> None:
        """Press a key."""
        facts = {"key": key, "code": key if key != " " else "Space", "windowsVirtualKeyCode": code, "text": text}
        self.send_command("Input.dispatchKeyEvent", type="keyDown", **facts)
        self.send_command("Input.dispatchKeyEvent", type="keyUp", **(facts | {"text": ""}))

    def click(self, element: str) -> None:
        """Click the centre of the element that an expression returns."""
        self.value(f"{element}.scrollIntoView({{ block: 'center' }})")
        left, top, width, height = self.value(f"(({{ x, y, width, height }}) => [x, y, width, height])"
                                              f"({element}.getBoundingClientRect())")  # fmt: skip
        x, y = left + width / 2, top + height / 2
        for type in ("mousePressed", "mouseReleased"):
            self.send_command("Input.dispatchMouseEvent", type=type, x=x, y=y, button="left", clickCount=1)

    def picture(self, path: Path) -> None:
        """Save a screenshot as PNG."""
        path.write_bytes(base64.b64decode(self.send_command("Page.captureScreenshot")["data"]))

    def _read(self) -> dict[str, Any]:
        """Return the next message; store it if it is an event."""
        end = time.monotonic() + self.timeout
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._from], [], [], max(0.0, end - time.monotonic()))
            part = os.read(self._from, 1 << 16) if ready else b""
            assert part, f"the browser does not answer: {(self.folder / 'log').read_text(errors='replace')[-2000:]}"
            self._unread += part
        text, _, self._unread = self._unread.partition(b"\0")
        message = dict(json.loads(text))
        if "method" in message:
            self.events.append(message)
        return message
