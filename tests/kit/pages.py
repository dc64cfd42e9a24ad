"""Pages of documentation as programs: the blocks of a page, and what is done with each.

What a block is follows from what a reader sees, its language and the paragraph before it:

* the paragraph ends with a file's name in backticks and a colon: the block is that file.
* it begins with "You should now see" and ends with a colon: what the block before printed has these
  lines, in this order, others may stand between them. `...` stands for anything.
* `sh`, `bash`: typed into the page's shell. "terminal of its own:" before it: into another one, and
  it goes on running; "the same terminal:": into that one, after Ctrl-C.
* `python`: typed into the page's Python.
* others are read by their language.

Words after the language are for whoever runs the page: `status=2` (the shell ends so), `with=NAME`
(an environment of `tools/environments.py`, which holds what the reader is told to install) and
`needs=WORD`, one of `NEEDS`: such a block is not run, but its commands and options are checked.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.environments import KNOWN

ROOT: Final = Path(__file__).resolve().parents[2]
HOWTO: Final = sorted(
    path.relative_to(ROOT).as_posix() for path in (ROOT / "docs" / "howto").glob("*.md")
)
#: What no test machine has to have -> what the first lines of a page say, as a regular expression.
NEEDS: Final = {
    "gpu": r"GPU",
    "ray": r"Ray cluster",
    "kubernetes": r"Kubernetes",
    "postgres": r"PostgreSQL",
    "network": r"network|install",
    "data": r"of yours|your own",
    "root": r"root",
}
SHELL: Final = frozenset({"sh", "bash"})
#: The first block of every page, word by word.
SET_UP: Final = """\
export PATH=$PWD/.venv/bin:$PATH
export AWS_ENDPOINT_URL=http://127.0.0.1:8080 AWS_DEFAULT_REGION=us-east-1
export AWS_ACCESS_KEY_ID=none AWS_SECRET_ACCESS_KEY=none
"""
#: The runner starts the server of a page that says so above its first block.
SERVER_RUNNING: Final = "With a server running"
#: A page that says so above its first block reaches pip's index.
NETWORK: Final = "need the network"
#: A page that says so above its first block is typed where one is, with an image of this Python in
#: place of the one that it would pull.
ENGINE: Final = "a container engine"

_FENCE: Final = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE: Final = re.compile(r"`([\w.-]+(?:/[\w.-]+)*)`:$")
_OUTPUT: Final = "You should now see"
_OTHER_TERMINAL: Final = "terminal of its own:"
_SAME_TERMINAL: Final = "the same terminal:"


@dataclass(frozen=True, slots=True)
class PageBlock:
    """One fenced block of a page."""

    page: str  #: path below the repository's root
    line: int  #: of its opening fence
    language: str  #: "" where the fence has none
    text: str
    before: str  #: the paragraph before it
    words: dict[str, str]  #: after the language

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def kind(self) -> str:
        """file | output | check | terminal | restart | shell | python | read"""
        if self.before.startswith(_OUTPUT) and self.before.endswith(":"):
            return "output"
        if _FILE.search(self.before):
            return "file"
        if "needs" in self.words:
            return "check"
        if self.language in SHELL:
            if self.before.endswith(_OTHER_TERMINAL):
                return "terminal"
            return "restart" if self.before.endswith(_SAME_TERMINAL) else "shell"
        return "python" if self.language == "python" else "read"

    @property
    def file(self) -> str:
        """The path of a block that is a file."""
        found = _FILE.search(self.before)
        assert found is not None
        return found[1]


def blocks(path: Path) -> list[PageBlock]:
    """All blocks of a page, in order. Raises ValueError for a word that nobody knows."""
    return list(_blocks(path.read_text(encoding="utf-8"), os.path.relpath(path, ROOT)))


def _blocks(text: str, page: str) -> Iterator[PageBlock]:
    for found in _FENCE.finditer(text):
        language, *words = found[1].split() or [""]
        before = text[: found.start()].rstrip().rpartition("\n\n")[2]
        block = PageBlock(
            page=page,
            line=text.count("\n", 0, found.start()) + 1,
            language=language,
            text=found[2],
            before=" ".join(before.split()),
            words=dict(word.partition("=")[::2] for word in words),
        )
        words = {"status": "0", "with": "compile", "needs": "gpu"} | block.words
        if len(words) > 3 or words["needs"] not in NEEDS or words["with"] not in KNOWN:
            raise ValueError(f"{block.where}: unknown words {found[1]!r}")
        yield block


def typed_pages() -> list[str]:
    """Pages of docs/howto on which anything is typed."""
    typed = {"shell", "terminal", "python", "check"}
    return [page for page in HOWTO if any(one.kind in typed for one in blocks(ROOT / page))]


def head(path: Path) -> str:
    """What stands above the first block."""
    return path.read_text(encoding="utf-8").partition("\n```")[0]


def differs(expected: str, printed: str) -> str:
    """The first expected line that was not printed; "" where all were. Runs of spaces are one."""
    lines = [_squeezed(line) for line in printed.splitlines()]
    at = 0
    for wanted in filter(None, map(_squeezed, expected.splitlines())):
        if wanted == "...":
            continue
        pattern = re.compile(".*".join(map(re.escape, wanted.split("..."))))
        found = (n for n in range(at, len(lines)) if pattern.fullmatch(lines[n]))
        at = next(found, -1) + 1
        if at == 0:
            return wanted
    return ""


def _squeezed(line: str) -> str:
    return " ".join(line.split())
