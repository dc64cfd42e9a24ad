"""Makes the pictures of the docs: `make pictures` (needs Chromium: `apt-get install chromium`).

Starts the assistant as its README says, asks it a question as a person would, and keeps what the
browser shows as `docs/pictures/assistant.png`, with few colours so that it stays small.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.kit import chromium  # noqa: E402 - found through the line above

PICTURE = ROOT / "docs" / "pictures" / "assistant.png"
QUESTION = "a light backpack for hiking"
WIDTH, HEIGHT = 1000, 800
COLOURS = 96  #: enough for flat colours and smooth text


@contextmanager
def assistant() -> Iterator[str]:
    """The address of its page, while it runs."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as state:
        argv = [sys.executable, str(ROOT / "examples" / "assistant" / "run.py")]
        argv += ["--port", "0", "--page-port", "0", "--state-dir", state]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as run:
            try:
                yield _address(run)
            finally:
                run.send_signal(signal.SIGINT)
                run.communicate()  # its last words need a reader


def _address(run: subprocess.Popen[str]) -> str:
    assert run.stdout is not None
    for line in run.stdout:
        print(line, end="", flush=True)
        if "assistant ready: " in line:
            return line.partition("assistant ready: ")[2].split()[0]
    sys.exit("the assistant did not start: its lines are above")


def main() -> None:
    if chromium.path() is None:
        sys.exit("there is no Chromium: 'apt-get install chromium', and try again")
    PICTURE.parent.mkdir(exist_ok=True)
    with assistant() as address, chromium.page() as page:
        page.look(width=WIDTH, height=HEIGHT)
        page.open(address)
        page.wait_for("document.activeElement.id === 'question'")
        page.type(QUESTION)
        page.press("Enter")
        page.wait_for("document.querySelectorAll('.made').length === 1", seconds=60)
        page.wait_for("[...document.images].every((each) => each.complete)")
        page.wait_for("document.getAnimations().every((each) => each.playState === 'finished')")
        page.picture(PICTURE)
    with Image.open(PICTURE) as picture:
        picture.convert("RGB").quantize(COLOURS).save(PICTURE, optimize=True)
    print(f"{PICTURE.relative_to(ROOT)}: {PICTURE.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main()
