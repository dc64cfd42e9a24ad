"""Gateway processes as one publisher: who is told what, who is waited for, who comes back.

The processes are real; what they do is `fake_gateway.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.kit.gateway import routes, run
from tests.kit.polling import until

from penstock.control.gateways import group as group_module
from penstock.control.gateways.group import GatewayGroup, WaitingSums
from penstock.control.gateways.member import GatewayMember
from penstock.core.deployment.deployment import EndpointRoutes
from penstock.errors import NotNowError, PenstockError
from penstock.metrics.item_failures import apart

pytestmark = pytest.mark.loop(by=run)

FAKE = Path(__file__).with_name("fake_gateway.py")
BOTH = ("gateway-1", "gateway-2")


class Local:
    """The control plane's own dispatcher."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.refusal: PenstockError | None = None

    async def connect(self, instance_id: str, address: str) -> None:
        self.told.append(("connect", instance_id, address))
        if self.refusal is not None:
            raise self.refusal

    async def disconnect(self, instance_id: str) -> None:
        self.told.append(("disconnect", instance_id))

    def publish(self, published: EndpointRoutes) -> None:
        self.told.append(("publish", published.endpoint))

    def withdraw(self, endpoint: str) -> None:
        self.told.append(("withdraw", endpoint))

    def outstanding(self, copy: int) -> int:
        return 7

    async def drained(self, copies: Iterable[int], timeout_s: float) -> bool:
        return True


class GatewayGroupSite:
    """Two gateways that write down what they hear."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.local = Local()
        self.gone: list[str] = []
        self.odd = ""  #: what the next of these says can't be understood
        self.told: list[tuple[str, str, bytes]] = []
        self.admitted: list[list[int]] = []
        self.group = GatewayGroup(
            self.local,
            2,
            command=(sys.executable, str(FAKE), str(folder)),
            settings=lambda name: {"name": name},
            events=self,
            admit=self._admit,
            apart=apart,
        )

    async def _admit(self, pids: Sequence[int]) -> None:
        self.admitted.append(list(pids))

    def on_told(self, name: str, op: str, fields: Any, data: bytes) -> None:
        if op == self.odd:
            self.odd = ""
            raise KeyError("endpoint")
        self.told.append((name, op, data))

    async def on_asked(self, name: str, op: str, fields: Any) -> Any:
        return {}

    def on_gone(self, name: str) -> None:
        self.gone.append(name)

    def do(self, name: str, what: str) -> None:
        said = self._folder / f"{name}.does"
        if what:
            said.write_text(what)
        else:
            said.unlink()

    def heard(self, name: str) -> list[dict[str, Any]]:
        path = self._folder / name
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines]

    def ops(self, name: str) -> list[str]:
        return [one["op"] for one in self.heard(name)]

    def pid(self, name: str) -> int:
        return int(next(one["pid"] for one in self.group.seen() if one["name"] == name))


@contextlib.asynccontextmanager
async def site_of(folder: Path) -> AsyncIterator[GatewayGroupSite]:
    site = GatewayGroupSite(folder)
    try:
        yield site
    finally:
        await site.group.close()


async def test_all_are_told_what_there_is_and_then_each_change_in_its_order(tmp_path: Path) -> None:
    async with site_of(tmp_path) as site:
        await site.group.connect("i1", "unix:/1")
        site.group.publish(routes(1))
        site.group.share("keys", {"keys": 1})
        await site.group.start()
        await site.group.connect("i2", "unix:/2")
        site.group.publish(routes(1, 2))
        site.group.withdraw("echo")
        await site.group.disconnect("i1")
        for name in BOTH:
            begin, *rest = site.heard(name)
            assert begin["op"] == "begin"
            assert begin["instances"] == {"i1": "unix:/1"}
            assert [one["endpoint"] for one in begin["routes"]] == ["echo"]
            assert begin["shared"] == {"keys": {"keys": 1}}
            assert [one["op"] for one in rest] == ["connect", "publish", "withdraw", "disconnect"]
        assert [one[0] for one in site.local.told] == [
            "connect", "publish", "connect", "publish", "withdraw", "disconnect",
        ]  # fmt: skip
        assert site.group.outstanding(1) == 7
        assert await site.group.drained([1], 5.0)
        # Instances were told of each process before that was told of them.
        assert site.admitted[-1] == site.group.pids()
        assert len(site.group.pids()) == 2


async def test_a_gateway_that_is_killed_comes_back_and_is_told_all_there_is_then(
    tmp_path: Path,
) -> None:
    async with site_of(tmp_path) as site:
        await site.group.start()
        before = site.pid("gateway-1")
        await site.group.connect("i1", "unix:/1")
        os.kill(before, signal.SIGKILL)
        await until(lambda: site.gone == ["gateway-1"])
        site.group.publish(routes(1))  # it is not there to hear of it
        await until(lambda: site.group.seen()[0]["starts"] == 2)
        await until(lambda: site.group.seen()[0]["state"] == "serving")
        begins = [one for one in site.heard("gateway-1") if one["op"] == "begin"]
        assert [one["instances"] for one in begins] == [{}, {"i1": "unix:/1"}]
        # Either it was told of the routes as it began, or right after.
        told = [*begins[1]["routes"], *[o for o in site.heard("gateway-1") if o["op"] == "publish"]]
        assert len(told) == 1
        assert before not in site.admitted[-1]


async def test_nobody_waits_for_a_gateway_that_has_ended(tmp_path: Path) -> None:
    async with site_of(tmp_path) as site:
        await site.group.start()
        site.do("gateway-1", "hang")
        connecting = asyncio.create_task(site.group.connect("i1", "unix:/1"))
        draining = asyncio.create_task(site.group.drained([3], 60.0))
        await until(lambda: {"connect", "drained"} <= set(site.ops("gateway-1")))
        assert not connecting.done()  # every gateway that serves must have its connection
        assert not draining.done()
        site.do("gateway-1", "")
        site.do("gateway-1", "slow")
        os.kill(site.pid("gateway-1"), signal.SIGKILL)
        await connecting
        assert await draining


async def test_one_that_begins_is_told_of_changes_and_not_waited_for(tmp_path: Path) -> None:
    async with site_of(tmp_path) as site:
        await site.group.start()
        site.do("gateway-1", "slow")
        os.kill(site.pid("gateway-1"), signal.SIGKILL)
        await until(lambda: site.ops("gateway-1").count("begin") == 2)
        await site.group.connect("i1", "unix:/1")
        await until(lambda: "connect" in site.ops("gateway-1"))
        assert site.group.seen()[0]["state"] == "starting"
        site.do("gateway-1", "")
        await until(lambda: site.group.seen()[0]["state"] == "serving")


async def test_one_that_says_nothing_any_more_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_module, "SILENT_S_MAX", 1.0)
    async with site_of(tmp_path) as site:
        await site.group.start()
        before = site.pid("gateway-2")
        os.kill(before, signal.SIGSTOP)
        await until(lambda: "gateway-2" in site.gone)
        await until(lambda: site.group.seen()[1]["state"] == "serving")
        assert site.pid("gateway-2") != before
        assert site.group.seen()[1]["starts"] >= 2


async def test_an_odd_word_of_a_gateway_ends_neither_it_nor_its_requests(tmp_path: Path) -> None:
    async with site_of(tmp_path) as site:
        site.odd = "metrics"
        await site.group.start()
        await until(lambda: {name for name, _, _ in site.told} == set(BOTH))
        assert (site.odd, site.gone) == ("", [])


async def test_one_that_can_not_be_told_or_ended_keeps_no_other_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_module, "SILENT_S_MAX", 1.0)

    class FailingMember(GatewayMember):
        def tell(self, op: str, fields: Any = None) -> None:
            if op == "publish" and self.name == "gateway-1":
                raise TypeError("can't be written")
            super().tell(op, fields)

        def kill(self) -> None:
            if not self.closing and self.name == "gateway-1":
                raise PermissionError("not its owner")
            super().kill()

    monkeypatch.setattr(group_module, "GatewayMember", FailingMember)

    async with site_of(tmp_path) as site:
        await site.group.start()
        site.group.publish(routes(1))
        await until(lambda: "publish" in site.ops("gateway-2"))
        for name in BOTH:
            os.kill(site.pid(name), signal.SIGSTOP)
        try:
            await until(lambda: "gateway-2" in site.gone)
        finally:
            os.kill(site.pid("gateway-1"), signal.SIGCONT)


async def test_one_that_was_stopped_is_ended_before_its_silence_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_module, "SILENT_S_MAX", 1e9)
    async with site_of(tmp_path) as site:
        await site.group.start()
        before = site.pid("gateway-2")
        os.kill(before, signal.SIGSTOP)
        await until(lambda: site.gone == ["gateway-2"])
        await until(lambda: site.group.seen()[1]["state"] == "serving")
        assert site.pid("gateway-2") != before


@pytest.mark.parametrize(("does", "code"), [("fail", "port-in-use"), ("die", "gateway-died")])
async def test_a_server_does_not_start_where_one_of_its_gateways_cannot(
    tmp_path: Path, does: str, code: str
) -> None:
    async with site_of(tmp_path) as site:
        site.do("gateway-2", does)
        with pytest.raises(PenstockError) as refused:
            await site.group.start()
        assert refused.value.code == code


async def test_what_an_instance_refuses_one_of_them_is_refused_to_the_control_plane(
    tmp_path: Path,
) -> None:
    async with site_of(tmp_path) as site:
        await site.group.start()
        site.local.refusal = NotNowError("instance-unreachable", "nobody answers")
        with pytest.raises(NotNowError, match="nobody answers"):
            await site.group.connect("i1", "unix:/1")


async def test_each_is_asked_and_those_that_answer_are_heard(tmp_path: Path) -> None:
    async with site_of(tmp_path) as site:
        await site.group.start()
        answers = await site.group.ask_each("explain", {"request_id": "x"})
        assert {name: one["name"] for name, one in answers.items()} == {one: one for one in BOTH}
        site.group.tell_others("gateway-1", "forget-session", {})
        await until(lambda: "forget-session" in site.ops("gateway-2"))
        assert "forget-session" not in site.ops("gateway-1")
        await until(lambda: {name for name, op, _ in site.told if op == "metrics"} == set(BOTH))


def test_whoever_scales_hears_how_many_wait_at_all_gateways() -> None:
    told: list[tuple[str, str, str, int]] = []
    sums = WaitingSums(lambda *waiting: told.append(waiting))
    sums.told("", "e", "v", "", 1)
    sums.told("gateway-1", "e", "v", "", 2)
    sums.told("gateway-2", "e", "v", "", 3)
    sums.told("gateway-1", "e", "v", "", 1)
    sums.told("gateway-1", "e", "v", "c", 4)  # of another pool
    sums.told("", "e", "v", "", 0)
    assert told == [
        ("e", "v", "", 1),
        ("e", "v", "", 3),
        ("e", "v", "", 6),
        ("e", "v", "", 5),
        ("e", "v", "c", 4),
        ("e", "v", "", 4),
    ]
    told.clear()
    sums.gone("gateway-1")
    sums.gone("gateway-1")
    assert sorted(told) == [("e", "v", "", 3), ("e", "v", "c", 0)]
    sums.told("gateway-2", "e", "v", "", 0)
    assert told[-1] == ("e", "v", "", 0)
