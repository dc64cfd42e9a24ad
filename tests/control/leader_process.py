"""A server without a gateway: it follows, leads, and answers calls on a Unix socket.

    python leader_process.py URL STATE_DIR SOCKET

Its parts are the real ones: `Leadership`, the store on its thread, the fence. A line of JSON is a
call, [name of the call, name of the endpoint]; a line is its answer, [outcome, generation]. While
it leads it finishes what is under way, as reconciliation would.
"""

from __future__ import annotations

import asyncio
import functools
import json
import sys
import time
from pathlib import Path

from penstock.control.database.leader_table import Term
from penstock.control.leader.leadership import Leadership
from penstock.control.store.records import AlreadyExists, EndpointBusy, NotFound
from penstock.control.store.store import Store
from penstock.control.store.store_thread import StoreThread
from penstock.core.deployment.deployment import DeploymentSpec, ModelSource, VariantSpec
from penstock.core.servers.election import ElectionSpec
from penstock.errors import NotNowError

#: As always, only faster.
SPEC = ElectionSpec(beat_s=0.05, look_s=0.05, released_s=0.25, silent_s=0.6)
MODEL = ModelSource(model_name="m")
DEPLOYMENT = DeploymentSpec(
    endpoint="",
    generation=0,
    config_name="c",
    variants=(
        VariantSpec(name="v", model=MODEL, instance_type="ml.x.y", instance_count=1),
    ),
)  # fmt: skip


class LeadingServer:
    def __init__(self, url: str, state_dir: Path) -> None:
        self.url, self.state_dir = url, state_dir
        self.leadership = Leadership(url, name=state_dir.name, spec=SPEC)
        self.database: StoreThread | None = None

    async def run(self, socket: str) -> None:
        await asyncio.to_thread(lambda: Store(self.state_dir, self.url).close())
        await self.leadership.start()
        await asyncio.start_unix_server(self.serve, socket)
        while True:
            epoch = self.leadership.epoch
            if epoch:
                term = self.leadership.term
                database = StoreThread(functools.partial(self.open, term))
                try:
                    await database.open()
                except NotNowError:
                    continue
                self.database = database
                reconciling = asyncio.create_task(self.reconcile(database))
            while self.leadership.epoch == epoch:
                self.leadership.changed.clear()
                await self.leadership.changed.wait()
            if epoch:
                self.database = None
                reconciling.cancel()
                await database.close()

    def open(self, term: Term) -> Store:
        return Store(self.state_dir, self.url, term=term)

    async def reconcile(self, database: StoreThread) -> None:
        while True:
            try:
                for name in await database.call(Store.unsettled_endpoints):
                    record = await database.call(Store.describe_endpoint, name)
                    if record.status == "Deleting":
                        await database.call(Store.finish_delete, name)
                    elif record.target is not None:
                        await database.call(
                            Store.set_status, name, "InService", now=time.time(),
                            active_generation=record.target.generation,
                        )  # fmt: skip
            except (NotNowError, NotFound):
                pass
            await asyncio.sleep(0.02)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            call, name = json.loads(line)
            try:
                answer = await self.answer(call, name)
            except AlreadyExists:
                answer = ("exists", 0)
            except NotFound:
                answer = ("not-found", 0)
            except EndpointBusy:
                answer = ("busy", 0)
            except NotNowError as error:
                # Nothing was done, unless the connection ended: then nobody knows.
                answer = ("refused" if error.code == "not-the-leader" else "unknown", 0)
            writer.write(json.dumps(answer).encode() + b"\n")
        writer.close()

    async def answer(self, call: str, name: str) -> tuple[str, int]:
        database, now = self.database, time.time()
        if database is None:
            return "refused", 0
        if call == "create":
            await database.call(Store.create_endpoint, name, DEPLOYMENT, arn=name, now=now)
            return "ok", 1
        if call == "update":
            record = await database.call(Store.begin_update, name, DEPLOYMENT, now=now)
        elif call == "delete":
            record = await database.call(Store.begin_delete, name, now=now)
        else:
            record = await database.call(Store.describe_endpoint, name)
        newest = record.target or record.active
        assert newest is not None
        return "ok", newest.generation


if __name__ == "__main__":
    asyncio.run(LeadingServer(sys.argv[1], Path(sys.argv[2])).run(sys.argv[3]))
