"""Runs a page of documentation as a reader would: `python -m tests.kit.page_run PAGE.md`.

In a copy of the checkout's files, from a shell with nothing set, in a network namespace that has
nothing but a loopback: so port 8080 is free whatever else runs, and no snippet reaches AWS. Where
the kernel gives no namespace, pages run on the machine's own loopback, one at a time, and whatever
asks for a proxy gets one that is not there. So do pages that say above their first block that they
need the network, with a way to pip's index.

Prints each block with its time, and ends with one line of JSON: what was run, checked and compared.
Exits with 1 at the first block that does not do what the page says.
"""

from __future__ import annotations

import ast
import contextlib
import fcntl
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from tests.kit import page_checks
from tests.kit.environments import share_environments
from tests.kit.pages import NETWORK, ROOT, SERVER_RUNNING, PageBlock, blocks, differs, head

from tools import environments

#: Of the checkout, what pages name. The interpreter and Penstock itself are used where they are.
_COPIED: Final = ("examples", "deploy", "docs", "scenarios", "tools", "Makefile", "pyproject.toml")
_LINKED: Final = (".venv", "src")
_SYSTEM_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
#: What a program that goes on running prints when it can be called.
_READY: Final = ("penstock ready", "orchestrator ready", "Running on http", "in service")
#: An instance of a job takes only cores that nobody else wants: a busy machine has few.
_BLOCK_S_MAX: Final = 500
_READY_S_MAX: Final = 120

#: A page's Python: executes blocks as they come, and tells of each whether it raised.
_SESSION: Final = """
import json, os, sys, traceback
names, told = {"__name__": "__main__"}, os.fdopen(int(sys.argv.pop()), "w", buffering=1)
for line in sys.stdin:
    where, text = json.loads(line)
    try:
        exec(compile(text, where, "exec"), names)
        status = 0
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    print(status, file=told)
"""


class PageFailed(Exception):
    """A block does not do what the page says."""


class PageRun:
    """One page, block by block. `close()` ends whatever it started."""

    def __init__(self, folder: Path, *, network: bool = False, shared: bool = False) -> None:
        """`shared`: a server of the page has the environments of all tests of this tree."""
        self.folder = folder
        self.checkout = folder / "checkout"
        self.state = folder / "shell-state"
        self.printed = ""  #: by the last block that was run
        self.status = 0
        self._in_terminal = False  #: whether that block goes on running
        self.counts: Counter[str] = Counter()
        self._terminals: list[Terminal] = []
        self._sessions: dict[str, Session] = {}
        home = folder / "home"
        home.mkdir()
        if shared:
            share_environments(home / ".local" / "share" / "penstock")
        copy_checkout(self.checkout)
        offline = {} if in_namespace() else _way_to_the_index() if network else _no_way_out()
        self.environment = {"HOME": str(home), "PATH": _SYSTEM_PATH, "LANG": "C.UTF-8"} | offline
        self.state.write_text(f"cd {self.checkout}\n")

    def run(self, block: PageBlock) -> None:
        kind = block.kind
        match kind:
            case "file":
                page_checks.read(block)
                at = self.checkout / block.file
                at.parent.mkdir(parents=True, exist_ok=True)
                at.write_text(block.text)
            case "output":
                self._compare(block)
            case "check":
                page_checks.options(block)
            case "shell":
                self._shell(block)
            case "terminal":
                self.terminal(block.text, block)
            case "restart":
                self._terminals.pop().close()
                self.terminal(block.text, block)
            case "python":
                self._python(block)
            case _:
                page_checks.read(block)
        if kind in {"shell", "python", "terminal", "restart"}:
            self._in_terminal = kind in {"terminal", "restart"}
        self.counts[kind] += 1

    def _compare(self, block: PageBlock) -> None:
        """What goes on running may print it later."""
        deadline = time.monotonic() + _READY_S_MAX
        while wanted := differs(block.text, self.printed):
            if not self._in_terminal or time.monotonic() > deadline:
                raise PageFailed(f"this line was not printed: {wanted}\n\n{self.printed}")
            time.sleep(0.1)
            self.printed = self._terminals[-1].printed()

    def _shell(self, block: PageBlock) -> None:
        leave = f"{{ pwd | sed 's/^/cd /'; export -p; }} > {self.state}"
        script = f"leave() {{ {leave}; }}\ntrap leave EXIT\nset -e\n{block.text}"
        out = self.folder / "out"
        with out.open("wb") as file:
            process = self.start(script, block, file)
            self.status = _ended(process, _BLOCK_S_MAX)
        self.printed = as_on_a_terminal(out.read_text(errors="replace"))
        self._judge(block, int(block.words.get("status", "0")))

    def _python(self, block: PageBlock) -> None:
        name = block.words.get("with", "")
        if name not in self._sessions:
            python = environments.interpreter(name) if name else "python"
            self._sessions[name] = Session(self, str(python), block)
        self.status, self.printed = self._sessions[name].run(block)
        self._judge(block, 0)

    def _judge(self, block: PageBlock, wanted: int) -> None:
        if self.status != wanted:
            raise PageFailed(f"ended with {self.status}, not with {wanted}\n\n{self.printed}")

    def terminal(self, text: str, block: PageBlock | None) -> None:
        """What goes on running, once it says that it can be called."""
        out = self.folder / f"terminal-{len(self._terminals)}-{time.monotonic_ns()}"
        with out.open("wb") as file:
            started = Terminal(self.start(text, block, file), out)
        self._terminals.append(started)
        self.printed = started.wait_ready()

    def start(
        self,
        script: str,
        block: PageBlock | None,
        out: IO[bytes],
        *,
        stdin: int = subprocess.DEVNULL,
        pass_fds: tuple[int, ...] = (),
    ) -> subprocess.Popen[bytes]:
        """A bash where the page's last shell ended, with what that had exported."""
        name = block.words.get("with", "") if block is not None else ""
        tools = f"PATH={environments.interpreter(name).parent}:$PATH\n" if name else ""
        return subprocess.Popen(
            ["bash", "-c", f". {self.state}\n{tools}{script}"],
            cwd=self.checkout, env=self.environment, stdin=stdin, stdout=out,
            stderr=subprocess.STDOUT, start_new_session=True, pass_fds=pass_fds,
        )  # fmt: skip

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()
        for terminal in reversed(self._terminals):
            terminal.close()


class Terminal:
    """A program that goes on running."""

    def __init__(self, process: subprocess.Popen[bytes], out: Path) -> None:
        self._process, self._out = process, out

    def wait_ready(self) -> str:
        deadline = time.monotonic() + _READY_S_MAX
        while True:
            said = self.printed()
            if any(word in said for word in _READY):
                return said
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise PageFailed(f"it does not serve\n\n{said}")
            time.sleep(0.05)

    def printed(self) -> str:
        return self._out.read_text(errors="replace")

    def close(self) -> None:
        """Ctrl-C, as at a terminal."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGINT)
        _ended(self._process, 60)


class Session:
    """A Python that blocks are typed into."""

    def __init__(self, page: PageRun, python: str, block: PageBlock) -> None:
        self._out = page.folder / f"python-{len(python)}-{time.monotonic_ns()}"
        told, tell = os.pipe()
        with self._out.open("wb") as file:
            self._process = page.start(
                f"exec {python} -u -c {shlex.quote(_SESSION)} {tell}",
                block, file, stdin=subprocess.PIPE, pass_fds=(tell,),
            )  # fmt: skip
        os.close(tell)
        self._told = os.fdopen(told)

    def run(self, block: PageBlock) -> tuple[int, str]:
        before = self._out.stat().st_size
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([block.where, block.text]).encode() + b"\n")
        self._process.stdin.flush()
        status = int(self._told.readline() or 1)
        return status, self._out.read_bytes()[before:].decode(errors="replace")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        _ended(self._process, 30)
        self._told.close()


def _ended(process: subprocess.Popen[bytes], seconds: float) -> int:
    """The exit status; one that goes on is killed with its children."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return 124


def as_on_a_terminal(printed: str) -> str:
    """`penstock invoke` ends an answer's last line for people, and not for programs."""
    return re.sub(r"(?<=[^\n])(request [0-9a-f]{8}-)", r"\n\1", printed)


def copy_checkout(to: Path) -> None:
    to.mkdir()
    unwanted = shutil.ignore_patterns("__pycache__", "node_modules", "build")
    for name in _COPIED:
        at = ROOT / name
        if at.is_dir():
            shutil.copytree(at, to / name, ignore=unwanted)
        else:
            shutil.copy2(at, to / name)
    for name in _LINKED:
        (to / name).symlink_to(ROOT / name)


def in_namespace() -> bool:
    return os.environ.get("PAGE_IN_NAMESPACE") == "1"


def _no_way_out() -> dict[str, str]:
    nowhere = "http://127.0.0.1:9"
    names = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
    return dict.fromkeys(names, nowhere) | {"no_proxy": "127.0.0.1,localhost"}


def _way_to_the_index() -> dict[str, str]:
    """pip's settings, which stand in files of another home; its index is reached, nothing else."""
    ask = [str(ROOT / ".venv" / "bin" / "python"), "-m", "pip", "config", "list"]
    listed = subprocess.run(ask, capture_output=True, text=True, check=True).stdout
    settings = {}
    for line in filter(None, listed.splitlines()):
        name, _, value = line.partition("=")
        variable = name.rpartition(".")[2].replace("-", "_").upper()
        settings[f"PIP_{variable}"] = " ".join(str(ast.literal_eval(value)).split())
    named = re.findall(r"//(?:[^/@\s]*@)?([^/:\s]+)", " ".join(settings.values()))
    hosts = {"pypi.org", "files.pythonhosted.org", *named}
    offline = _no_way_out()
    return settings | offline | {"no_proxy": ",".join([offline["no_proxy"], *sorted(hosts)])}


def namespace_prefix() -> tuple[str, ...]:
    """The command that runs another one with a loopback of its own; () where there is none."""
    enter = ("sh", "-c", 'ip link set lo up && PAGE_IN_NAMESPACE=1 exec "$@"', "sh")
    for flags in (("--net",), ("--net", "--map-root-user")):
        prefix = ("unshare", *flags, *enter)
        with contextlib.suppress(OSError):
            tried = subprocess.run([*prefix, "true"], capture_output=True, check=False)
            if tried.returncode == 0:
                return prefix
    return ()


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Pages that share the machine's loopback run one at a time."""
    if in_namespace():
        yield
        return
    with (Path(tempfile.gettempdir()) / f"penstock-pages.{os.getuid()}").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def run_page(path: Path) -> Counter[str]:
    """Raises PageFailed."""
    # PyTorch, for a Hugging Face folder, takes a minute: it is built once for all tests.
    shared = any(block.words.get("with") == "compile" for block in blocks(path))
    with alone(), tempfile.TemporaryDirectory(prefix="page-") as folder:
        page = PageRun(Path(folder), network=NETWORK in head(path), shared=shared)
        try:
            if SERVER_RUNNING in head(path):
                page.terminal(".venv/bin/penstock up", None)
            for block in blocks(path):
                began = time.monotonic()
                print(f"{block.where}: {block.kind} ...", flush=True)
                try:
                    page.run(block)
                except (PageFailed, ValueError) as failed:
                    raise PageFailed(f"{block.where}: {failed}\n\n{block.text}") from None
                print(f"{block.where}: {time.monotonic() - began:.1f} s", flush=True)
            return page.counts
        finally:
            page.close()


def main(argv: list[str]) -> int:
    path = (ROOT / argv[0]).resolve()
    alone_here = in_namespace() or NETWORK in head(path)
    prefix = () if alone_here else namespace_prefix()
    if prefix:
        os.execvp(prefix[0], [*prefix, sys.executable, "-m", "tests.kit.page_run", *argv])
    began = time.monotonic()
    try:
        counts = run_page(path)
    except PageFailed as failed:
        print(failed, flush=True)
        return 1
    print(json.dumps(dict(counts) | {"seconds": round(time.monotonic() - began, 1)}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
