"""One gateway process, from its start to its end.

It is started with one end of a socket pair and nothing else; all it needs to know is told it over
that (`begin`). The other end's closing is its end, and ours is the end of the server to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import subprocess
from collections.abc import Sequence
from typing import Protocol

from penstock.errors import InternalError, NotNowError, PenstockError, from_dict
from penstock.gateway.channel.channel import Channel, open_channel
from penstock.gateway.channel.messages import Json
from penstock.runtimes.workers.supervised import StoppedWatch

log = logging.getLogger(__name__)

#: From being asked to end to being killed, when its requests have drained already.
END_S_MAX = 5.0


class MemberEvents(Protocol):
    """Whom a member reports to: its group."""

    def on_told(self, member: GatewayMember, op: str, fields: Json, data: bytes) -> None: ...

    async def on_asked(self, member: GatewayMember, op: str, fields: Json) -> Json: ...


class GatewayMember:
    """Of one group. `start`, `begin`, then `ended` tells of its end, whatever brings it about."""

    def __init__(self, name: str, events: MemberEvents) -> None:
        self.name = name
        self.pid = 0
        self.serving = False  #: it listens
        self.silent_ticks = 0  #: looks of its watcher since it was last heard
        self.failure: PenstockError | None = None  #: why it could not begin
        self.up = asyncio.Event()  #: it serves, or never will
        self.ended = asyncio.Event()
        self.closing = False  #: it was asked to end
        self._events = events
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._watch: StoppedWatch | None = None

    async def start(self, command: Sequence[str], inherited: Sequence[int] = ()) -> None:
        """`inherited`: descriptors that its process has too. Raises NotNowError
        (`gateway-not-started`)."""
        ours = self._spawn(command, inherited)
        try:
            self._channel = await open_channel(ours, self)
        except BaseException:
            self.kill()
            raise

    def _spawn(self, command: Sequence[str], inherited: Sequence[int]) -> socket.socket:
        """Our end of the pair."""
        ours, its = socket.socketpair()
        try:
            self._process = subprocess.Popen(
                [*command, str(its.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(its.fileno(), *inherited),
                start_new_session=True,  # a terminal's Ctrl-C is for the server, which drains it
            )
        except OSError as error:
            ours.close()
            raise NotNowError(
                "gateway-not-started",
                f"the process of {self.name} could not be started: {error}",
                hint="The machine may be out of memory or processes.",
            ) from error
        finally:
            its.close()
        self.pid = self._process.pid
        self._watch = StoppedWatch([self.pid], self._stands_still)
        return ours

    def begin(self, fields: Json) -> None:
        """All it needs to serve."""
        self.tell("begin", fields)

    def tell(self, op: str, fields: Json | None = None) -> None:
        if self._channel is not None:
            self._channel.tell(op, fields)

    async def ask(self, op: str, fields: Json | None = None, *, timeout_s: float) -> Json:
        """As `Channel.ask`."""
        assert self._channel is not None
        return await self._channel.ask(op, fields, timeout_s=timeout_s)

    def kill(self) -> None:
        """It hangs, or is not wanted any more."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    def _stands_still(self) -> None:
        log.error("%s (process %d) was stopped by a signal: it is ended", self.name, self.pid)
        self.kill()

    async def stop(self, drain_s: float) -> None:
        """Answers what it has in flight for at most `drain_s`, then ends."""
        self.closing = True
        if self.serving:
            with contextlib.suppress(PenstockError):
                await self.ask("stop", {}, timeout_s=drain_s + END_S_MAX)
        if self._channel is not None:
            self._channel.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.ended.wait(), END_S_MAX)
        self.kill()
        if self._process is not None:
            await self.ended.wait()

    # Hearer

    def told(self, op: str, fields: Json, data: bytes) -> None:
        self.silent_ticks = 0
        if op == "up":
            self.serving = True
            self.up.set()
        elif op == "failed":
            self.failure = from_dict(fields["error"])
            self.up.set()
        else:
            self._events.on_told(self, op, fields, data)

    async def asked(self, op: str, fields: Json) -> Json:
        self.silent_ticks = 0
        return await self._events.on_asked(self, op, fields)

    def closed(self) -> None:
        """Its end of the pair is closed: it has ended, or is no use to anybody."""
        self.serving = False
        self.kill()
        self._ending = asyncio.get_running_loop().create_task(self._reap())

    async def _reap(self) -> None:
        assert self._process is not None
        code = await asyncio.to_thread(self._process.wait)
        if self._watch is not None:
            self._watch.close()
        if not self.closing:
            log.warning("%s (process %d) ended with %d", self.name, self.pid, code)
        if self.failure is None and not self.up.is_set():
            self.failure = InternalError("gateway-died", f"{self.name} ended before it served")
        self.up.set()
        self.ended.set()
