"""Asynchronous requests while everything is killed: what was accepted is done, once and whole.

A seed draws who is killed when: the server (which is started again), an instance, a worker. Each
output is looked at as soon as it is there, and must be what the undisturbed run wrote.
`ASYNC_REQUESTS=2000 ASYNC_KILLS=100` is the whole of it; `ASYNC_SEED` repeats a run.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import threading
import time
from functools import partial
from pathlib import Path

import pytest
from tests.kit.asynchronous import AsyncSite
from tests.kit.polling import wait_until
from tests.kit.processes import alive
from tests.kit.servers import Server

REQUESTS = int(os.environ.get("ASYNC_REQUESTS", "60"))
KILLS = int(os.environ.get("ASYNC_KILLS", "6"))
SEED = int(os.environ.get("ASYNC_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
VICTIMS = ("server", "instance", "worker")
#: A kill of the server costs a slow machine half a minute; a request some milliseconds.
SECONDS_MAX = 240 + 40 * KILLS + REQUESTS

pytestmark = [pytest.mark.system, pytest.mark.timeout(SECONDS_MAX)]


class AsyncNemesis:
    """Kills, each time another share of the outputs is there."""

    def __init__(self, site: AsyncSite, expected: dict[str, bytes]) -> None:
        self.killed: dict[str, int] = dict.fromkeys(VICTIMS, 0)
        self._site = site
        self._expected = expected
        self._rng = random.Random(SEED)

    def run(self) -> None:
        for number in range(KILLS):
            self._await_progress((number + self._rng.random()) * REQUESTS / (KILLS + 1))
            # Of the first three each is one; then as it comes.
            victim = VICTIMS[number] if number < len(VICTIMS) else self._rng.choice(VICTIMS)
            time.sleep(self._rng.uniform(0.0, 0.05))  # where in a request it strikes
            print(f"{time.monotonic():.2f} kill {number}: {victim}", flush=True)
            getattr(self, f"_kill_{victim}")()
            self.killed[victim] += 1

    def _await_progress(self, answers: float) -> None:
        wait_until(lambda: len(self.checked()) >= int(answers), f"{answers} answers", 120)

    def checked(self) -> dict[str, bytes]:
        """The answers that are there: each is whole, and the one that it should be."""
        found = self._site.answers("killed")
        for name, answer in found.items():
            assert answer == self._expected[name], name
        return found

    def _kill_server(self) -> None:
        self._site.server.kill()
        self._site.server.start()

    def _kill_instance(self) -> None:
        self._kill("pid")

    def _kill_worker(self) -> None:
        self._kill("worker_pids")

    def _kill(self, field: str) -> None:
        def pids() -> list[int]:
            copies = [one for one in self._site.server.copies("later") if one["state"] == "ready"]
            found = [one[field] for one in copies]
            return [pid for one in found for pid in (one if isinstance(one, list) else [one])]

        victim = self._rng.choice(wait_until(pids, f"a {field} to kill", 90))
        os.kill(int(victim), signal.SIGKILL)
        wait_until(lambda: not alive(int(victim)), "its end", 30)


def test_what_was_accepted_is_done_whoever_is_killed(tmp_path: Path) -> None:
    print(f"ASYNC_SEED={SEED}", flush=True)
    server = Server(tmp_path / "state").start()
    try:
        site = AsyncSite(server, tmp_path)
        site.model()
        site.endpoint("later", count=2)
        submit(site, "undisturbed")
        wait_until(
            lambda: len(site.answers("undisturbed")) == REQUESTS,
            "the undisturbed run",
            120 + REQUESTS / 5,
        )
        expected = site.answers("undisturbed")

        client = threading.Thread(target=submit, args=(site, "killed"))
        client.start()
        nemesis = AsyncNemesis(site, expected)
        nemesis.run()
        client.join(SECONDS_MAX)

        def all_answered() -> bool:
            assert site.failures() == {}, "kills are nobody's failure"
            return len(nemesis.checked()) == REQUESTS

        wait_until(all_answered, "all that was accepted", 180)
        print(f"killed {nemesis.killed}", flush=True)
        assert nemesis.checked() == expected
        wait_until(lambda: not on_record(tmp_path), "an empty record", 60)
        left = [one for one in (site.out / "killed").iterdir() if one.name not in expected]
        assert left == [], "drafts that nobody finishes"
    finally:
        server.stop()


def submit(site: AsyncSite, folder: str) -> None:
    """Each until it is told that it is accepted: who is cut off asks again."""

    def accepted(number: int) -> bool:
        body = {"number": number, "padding": 50 * (number % 97)}
        return site.ask("later", body, f"{number}.json", S3OutputPathExtension=folder)

    for number in range(REQUESTS):
        what = f"request {number} accepted"
        wait_until(partial(accepted, number), what, 180)


def on_record(folder: Path) -> int:
    """Requests and bodies that the record has."""
    [database] = (folder / "state").glob("*.db")
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as db:
        tables = ("async_requests", "async_bodies")
        return sum(db.execute(f"SELECT count(*) FROM {one}").fetchone()[0] for one in tables)
