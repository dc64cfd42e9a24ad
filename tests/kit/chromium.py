"""A headless Chromium, driven over the pipe of its own debugging protocol: no driver to install.

Messages are JSON objects ended by a zero byte, ours on its descriptor 3 and its on 4. One page.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_ANSWER_S_MAX = 30.0

#: Puts the pipes' ends where Chromium looks for them, by way of numbers that neither can have.
_BEGIN = """
import os, sys
for end, aside in ((sys.argv[1], 103), (sys.argv[2], 104)):
    os.dup2(int(end), aside)
for aside, place in ((103, 3), (104, 4)):
    os.dup2(aside, place)
os.execv(sys.argv[3], sys.argv[3:])
"""

#: What Chromium wants to know of a key: (code, number of the key, text that it types).
_KEYS = {
    "Enter": ("Enter", 13, "\r"),
    "Escape": ("Escape", 27, ""),
    "Tab": ("Tab", 9, ""),
    "ArrowUp": ("ArrowUp", 38, ""),
}


def path() -> str | None:
    """Where a Chromium is; None: nowhere."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class BrowserPage:
    """The page of a browser that was just started."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._rest = b""
        self._count = 0
        self.errors: list[str] = []  #: exceptions of scripts and errors on the console
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> Any:
        return self._call(method, self._session, **parameters)

    def _call(self, method: str, session: str | None = None, **parameters: Any) -> Any:
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            told = self._next()
            if told.get("id") == self._count:
                assert "error" not in told, f"{method}: {told['error']}"
                return told["result"]
            self._note(told)

    def _next(self) -> Any:
        deadline = time.monotonic() + _ANSWER_S_MAX
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._from], [], [], max(0, deadline - time.monotonic()))
            data = os.read(self._from, 1 << 16) if ready else b""
            assert data, "the browser does not answer"
            self._rest += data
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def _note(self, told: Any) -> None:
        if told.get("method") == "Runtime.exceptionThrown":
            self.errors.append(str(told["params"]["exceptionDetails"]))
        if told.get("method") == "Log.entryAdded":
            entry = told["params"]["entry"]
            if entry["level"] == "error" and entry["source"] != "network":
                self.errors.append(entry["text"])

    # what a person does

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.wait_for(
            f"location.href.startsWith({json.dumps(url)}) && document.readyState === 'complete'"
        )

    def look(self, *, width: int, height: int, dark: bool = False) -> None:
        """The window's size and the reader's scheme of colours."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def press(self, key: str) -> None:
        code, number, text = _KEYS[key]
        about = {"key": key, "code": code, "windowsVirtualKeyCode": number}
        down = {"type": "keyDown", "text": text} if text else {"type": "rawKeyDown"}
        self.call("Input.dispatchKeyEvent", **about, **down)
        self.call("Input.dispatchKeyEvent", **about, type="keyUp")

    # what a person sees

    def value(self, expression: str) -> Any:
        """A JSON value that the page's own scripts would get."""
        made = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in made, made["exceptionDetails"]
        return made["result"].get("value")

    def texts(self, selector: str) -> list[str]:
        found = f"[...document.querySelectorAll({json.dumps(selector)})]"
        return list(self.value(f"{found}.map((each) => each.innerText)"))

    def count(self, selector: str) -> int:
        return int(self.value(f"document.querySelectorAll({json.dumps(selector)}).length"))

    def wait_for(self, expression: str, *, seconds: float = 20) -> Any:
        deadline = time.monotonic() + seconds
        while not (found := self.value(expression)):
            assert time.monotonic() < deadline, f"{expression} did not come true"
            time.sleep(0.03)
        return found

    def picture(self, file: Path) -> None:
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))


@contextmanager
def page(*flags: str) -> Iterator[BrowserPage]:
    """A browser that ends with the block, with more flags for it. Needs `path()`."""
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        ends = (str(to_read), str(from_write))
        process = subprocess.Popen(
            [
                sys.executable, "-c", _BEGIN, *ends, str(path()), "--headless", "--no-sandbox",
                "--remote-debugging-pipe", "--disable-gpu", "--disable-dev-shm-usage",
                "--no-first-run", "--mute-audio", "--disable-background-networking",
                f"--user-data-dir={profile}", *flags,
            ],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            pass_fds=(to_read, from_write),
        )  # fmt: skip
        os.close(to_read)
        os.close(from_write)
        try:
            yield BrowserPage(to_write, from_read)
        finally:
            os.close(to_write)
            os.close(from_read)
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            if process.poll() is None:
                process.kill()
                process.wait()
