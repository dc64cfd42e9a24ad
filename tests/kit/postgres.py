"""PostgreSQL servers of our own, from the programs that are installed here."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

READY_S = 60.0


def other_user() -> str | None:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    pytest.skip("PostgreSQL can't run as root, and there is no other user")


class PostgresServer:
    """One, on a Unix socket in a directory of its own. Skips the test where there is none."""

    def __init__(self, *initdb: str, prefix: tuple[str, ...] = ()) -> None:
        """`initdb`: more options of it; `prefix`: a command that runs the server's."""
        if shutil.which("initdb") is None or shutil.which("postgres") is None:
            pytest.skip("PostgreSQL's initdb and postgres are not on PATH")
        if importlib.util.find_spec("psycopg") is None:
            pytest.skip("psycopg is not installed (extra `postgres`)")
        self._prefix = prefix
        self._user = other_user()
        self.root = Path(tempfile.mkdtemp(prefix="pst-pg-"))
        if self._user is not None:
            shutil.chown(self.root, self._user)
        self._run("initdb", "-D", str(self.data), "-A", "trust", "-U", "tester", "--no-sync",
                  *initdb)  # fmt: skip
        self.url = f"postgresql://tester@/postgres?host={self.root}"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def data(self) -> Path:
        return self.root / "data"

    def start(self) -> PostgresServer:
        """Tries again where it ends at once: while a process of one that was killed has the memory
        that they share, it does."""
        deadline = time.monotonic() + READY_S
        pid_file = self.data / "postmaster.pid"
        self.process = None
        while not (pid_file.exists() and "ready" in pid_file.read_text()):
            if self.process is None or self.process.poll() is not None:
                self.process = subprocess.Popen(
                    [*self._prefix, "postgres", "-D", self.data, "-k", self.root,
                     "-c", "listen_addresses=", "-F"],
                    stderr=subprocess.DEVNULL, **self._options(),
                )  # fmt: skip
            assert time.monotonic() < deadline, "PostgreSQL is not ready"
            time.sleep(0.02)
        return self

    def signal(self, number: int) -> None:
        """To all its processes; each has a process group of its own."""
        assert self.process is not None
        first = self.process.pid
        children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        for pid in (first, *map(int, children)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def pause(self) -> None:
        """It answers nothing, and its connections stay."""
        self.signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """As a power failure ends it, but for what the kernel has not written yet."""
        assert self.process is not None
        self.signal(signal.SIGKILL)
        self.process.wait(READY_S)
        (self.data / "postmaster.pid").unlink()  # it says that it is ready

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody can become the leader; who leads keeps the lead."""
        import psycopg

        with psycopg.connect(self.url) as connection:
            connection.execute("SELECT epoch FROM leader FOR KEY SHARE")
            yield

    def stop(self) -> None:
        """At once, but in order; idempotent."""
        if self.process is not None and self.process.poll() is None:
            self.signal(signal.SIGCONT)
            self.process.send_signal(signal.SIGINT)
            self.process.wait(READY_S)

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.root)

    def empty(self) -> None:
        """Ends every session, and removes all that there is."""
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
            )
            connection.execute("DROP SCHEMA public CASCADE")
            connection.execute("CREATE SCHEMA public")

    def query(self, statement: str, *values: Any) -> list[Any]:
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(statement, values or None).fetchall()

    def _run(self, *argv: str) -> None:
        subprocess.run(argv, check=True, **self._options())

    def _options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"cwd": "/", "stdout": subprocess.DEVNULL}
        return options | ({"user": self._user} if self._user is not None else {})
