"""One gateway process, from its start to its end.

It starts with one end of a socket pair and gets everything else over it (`begin`). When its end
closes, the process has ended; when ours closes, the server has ended.
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
from penstock.runtimes.workers.stopped import StoppedWatch

log = logging.getLogger(__name__)

#: From the request to end until it is killed, in s, once its requests have drained.
END_S_MAX = 5.0


class MemberEvents(Protocol):
    """The receiver of a member's messages: its group."""

    def on_told(self, member: GatewayMember, op: str, fields: Json, data: bytes) -> None: ...

    async def on_asked(self, member: GatewayMember, op: str, fields: Json) -> Json: ...


class GatewayMember:
    """One process of a group. `start`, `begin`; `ended` is set when it ends, for any reason."""

    def __init__(self, name: str, events: MemberEvents) -> None:
        self.name = name
        self.pid = 0
        self.serving = False  #: it has reported that it listens
        self.silent_ticks = 0  #: checks of the group's watch since its last message
        self.failure: PenstockError | None = None  #: why it could not begin; None: it did not fail
        self.up = asyncio.Event()  #: set once it serves, or once it has failed
        self.ended = asyncio.Event()
        self.closing = False  #: it was asked to end
        self._events = events
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._watch: StoppedWatch | None = None

    async def start(self, command: Sequence[str], inherited: Sequence[int] = ()) -> None:
        """`inherited`: descriptors that the process gets too. Raises NotNowError
        (`gateway-not-started`)."""
        ours = self._spawn(command, inherited)
        try:
            self._channel = await open_channel(ours, self)
        except BaseException:
            self.kill()
            raise

    def _spawn(self, command: Sequence[str], inherited: Sequence[int]) -> socket.socket:
        """Starts the process; returns our end of the pair."""
        ours, its = socket.socketpair()
        try:
            self._process = subprocess.Popen(
                [*command, str(its.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(its.fileno(), *inherited),
                # A terminal's Ctrl-C goes to the server only, which drains this process.
                start_new_session=True,
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
        """Sends all that it needs to serve."""
        self.tell("begin", fields)

    def tell(self, op: str, fields: Json | None = None) -> None:
        if self._channel is not None:
            self._channel.tell(op, fields)

    async def ask(self, op: str, fields: Json | None = None, *, timeout_s: float) -> Json:
        """As `Channel.ask`."""
        assert self._channel is not None
        return await self._channel.ask(op, fields, timeout_s=timeout_s)

    def kill(self) -> None:
        """Kills it: it hangs, or is not needed any more."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    def _stands_still(self) -> None:
        log.error("%s (process %d) was stopped by a signal: it is ended", self.name, self.pid)
        self.kill()

    async def stop(self, drain_s: float) -> None:
        """Lets it finish its requests in flight for at most `drain_s`, then ends it."""
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
        """Its end of the pair has closed: it has ended, or can no longer be reached."""
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
