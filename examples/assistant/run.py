"""The whole assistant with one command: platform, catalogue, both models, index, pipeline and page.

    .venv/bin/python examples/assistant/run.py

Prints the page's address when all of it serves; Ctrl-C ends everything. What it keeps (the search
index and the platform's state) lies below `examples/assistant/` and is not in git. `--delay-s`
makes the catalogue slow, `--no-catalogue` leaves it out: the answers go on, and say so.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

EXAMPLE = Path(__file__).resolve().parent
PENSTOCK = (sys.executable, "-m", "penstock")
_START_S_MAX = 60.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=8080, help="of the platform; 0 = any free one")
    parser.add_argument("--page-port", type=int, default=8090)
    parser.add_argument("--delay-s", type=float, default=0.0, help="of the catalogue's answers")
    parser.add_argument("--no-catalogue", action="store_true")
    parser.add_argument("--state-dir", type=Path, default=EXAMPLE / ".state")
    parser.add_argument("--copies", type=int, default=1, help="of the pipeline")
    asked = parser.parse_args()
    _check()
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell may have left the first one ignored
        signal.signal(number, _as_interrupt)
    with contextlib.suppress(KeyboardInterrupt), contextlib.ExitStack() as stack:
        _run(asked, stack)
    print("ended", flush=True)


def _run(asked: argparse.Namespace, stack: contextlib.ExitStack) -> None:
    catalogue = f"127.0.0.1:{_free_port()}"
    if not asked.no_catalogue:
        say("the catalogue starts")
        port = catalogue.rpartition(":")[2]
        argv = (sys.executable, str(EXAMPLE / "service" / "server.py"), "--port", port)
        stack.enter_context(_process((*argv, "--delay-s", str(asked.delay_s)), "catalogue ready"))
    port = asked.port or _free_port()
    url = f"http://127.0.0.1:{port}"
    say(f"the platform starts at {url}")
    argv = (*PENSTOCK, "up", "--port", str(port), "--grpc-port", str(_free_port()))
    flags = ("--state-dir", str(asked.state_dir), "--log-level", "warning")
    stack.enter_context(_process((*argv, *flags), "ready"))
    for name in ("embed", "chat"):
        deploy(url, name, EXAMPLE / name)
    sys.path.insert(0, str(EXAMPLE))
    from build_index import build  # noqa: PLC0415 - what it imports takes a second

    say("the index is made" if build(url) else "the index is there")
    more = ("--env", f"CATALOGUE={catalogue}", "--count", str(asked.copies))
    deploy(url, "assistant", EXAMPLE / "pipeline", *more)
    page = _page(url, asked.page_port)
    stack.callback(page.shutdown)
    threading.Thread(target=page.serve_forever, daemon=True).start()
    say(f"assistant ready: http://127.0.0.1:{page.server_address[1]} (Ctrl-C ends it)")
    threading.Event().wait()


def deploy(url: str, name: str, folder: Path, *more: str) -> None:
    """Ends the program where it does not come into service."""
    say(f"{name} is deployed")
    argv = (*PENSTOCK, "deploy", name, str(folder), "--url", url, *more)
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{name} was not deployed: {done.stderr.strip()}")


@contextlib.contextmanager
def _process(argv: tuple[str, ...], word: str) -> Iterator[None]:
    """A process of its own group (a Ctrl-C is ours to pass on), from the line with `word` on."""
    process = subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    assert process.stdout is not None
    try:
        _wait_for(process, word)
        threading.Thread(target=_show, args=(process,), daemon=True).start()
        yield
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    said = []
    deadline = time.monotonic() + _START_S_MAX
    while time.monotonic() < deadline:
        line = process.stdout.readline()
        if word in line:
            return
        if not line:
            break
        said.append(line)
    sys.exit(f"it did not start: {''.join(said[-5:]).strip()}")


def _show(process: subprocess.Popen[str]) -> None:
    """What a process says later is worth seeing, and an unread pipe would stop it."""
    assert process.stdout is not None
    for line in process.stdout:
        print(line, end="", flush=True)


def _page(url: str, port: int):  # type: ignore[no-untyped-def]  # a ThreadingHTTPServer
    path = EXAMPLE / "web" / "server.py"
    spec = importlib.util.spec_from_file_location("assistant_page", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.serve(url, port, key=os.environ.get("PENSTOCK_KEY", ""))


def _check() -> None:
    needed = {"faiss": "faiss-cpu", "bm25s": "bm25s", "openvino_genai": "openvino-genai jinja2"}
    missing = [name for module, name in needed.items() if importlib.util.find_spec(module) is None]
    if missing:
        sys.exit(f"hint: {sys.executable} -m pip install {' '.join(missing)}")
    for name in ("chat", "embed"):
        if not (EXAMPLE / name).is_dir():
            sys.exit(f"there is no model in {EXAMPLE / name}: train it as README.md says")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _as_interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def say(words: str) -> None:
    print(words, flush=True)


if __name__ == "__main__":
    main()
