"""Why a region is not used, said so that a person can put it right."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest
from tests.kit import certificates
from tests.kit.polling import until
from tests.orchestrator.region_site import OrchestratorSite, ScriptedRegion, site

from penstock.orchestrator.region import PROBE_EVERY_S, Region


async def state_of(here: OrchestratorSite, name: str) -> dict[str, str]:
    known = (await here.told("/penstock/v1/regions"))["regions"]
    return next(one for one in known if one["region"] == name)


async def wait_state(here: OrchestratorSite, name: str, state: str) -> dict[str, str]:
    async def seen() -> bool:
        return (await state_of(here, name))["state"] == state

    await until(seen, f"{name} is {state}")
    return await state_of(here, name)


async def test_a_region_with_a_certificate_of_a_stranger_is_sent_nothing(tmp_path: Path) -> None:
    """And one whose authority is named is used."""
    for name in ("eu", "us"):
        (tmp_path / name).mkdir()
    eu_tls, eu_authority = certificates.make(tmp_path / "eu")
    us_tls, _ = certificates.make(tmp_path / "us")
    regions = [ScriptedRegion("eu", tls=eu_tls), ScriptedRegion("us", tls=us_tls)]
    more = {name: {"certificate": str(eu_authority)} for name in ("eu", "us")}
    async with site(tmp_path, regions=regions, more=more, wait=False) as here:
        await here.wait_serving("eu")
        seen = await wait_state(here, "us", "certificate-untrusted")
        assert "its certificate is not trusted" in seen["detail"]
        for _ in range(4):
            assert (await here.ask()).headers["x-penstock-region"] == "eu"
        assert regions[1].asked == []


def test_a_key_that_was_replaced_is_read_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What the region says no to is not used, and the key never comes into a log."""
    caplog.set_level(logging.DEBUG)
    region = ScriptedRegion("eu", key="psk_new")
    (tmp_path / "eu.key").write_text("psk_old")

    async def scenario() -> None:
        more = {"eu": {"key_file": "eu.key"}}
        async with site(tmp_path, regions=[region], more=more, wait=False) as here:
            seen = await wait_state(here, "eu", "region-refused")
            assert "it answered 403" in seen["detail"]
            (tmp_path / "eu.key").write_text("psk_new")
            await here.wait_serving("eu")
            assert (await here.ask()).status == 200

    asyncio.run(scenario())
    assert "psk_" not in caplog.text


async def test_a_server_that_tells_nothing_of_its_room_is_no_region(tmp_path: Path) -> None:
    region = ScriptedRegion("eu", feed_status=404)
    async with site(tmp_path, regions=[region], wait=False) as here:
        seen = await wait_state(here, "eu", "no-traffic-feed")
        assert "status 404" in seen["detail"]


async def test_a_region_that_nobody_answers_for_is_asked_again_until_it_is_there(
    tmp_path: Path,
) -> None:
    region = ScriptedRegion("eu")
    async with site(tmp_path, regions=[region]) as here:
        await region.stop()
        seen = await wait_state(here, "eu", "region-unreachable")
        assert f"127.0.0.1:{region.port} can't be reached" in seen["detail"]
        await region.start()
        await wait_state(here, "eu", "followed")


async def test_an_endpoint_that_no_region_has_any_more_is_asked_for_as_any_unknown_one(
    tmp_path: Path,
) -> None:
    """A region says itself that it does not know it: the words are the protocol's own."""
    region = ScriptedRegion("eu")
    async with site(tmp_path, regions=[region]) as here:
        region.rooms = {}
        await region.stop()
        await region.start()

        async def forgotten() -> bool:
            known = (await here.told("/penstock/v1/ratios"))["traffic"]
            return [one["endpoint"] for one in known] == [""]

        await until(forgotten, "the endpoint is forgotten")
        assert (await here.ask()).status == 200


def test_a_bug_while_a_region_is_watched_does_not_end_the_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with site(tmp_path, "eu") as here:
            region = here.orchestrator._regions["eu"]
            told = region._on_probe
            seen: list[bool] = []

            def fail_once(one: Region, ok: bool) -> None:
                seen.append(ok)
                if len(seen) == 1:
                    raise RuntimeError("a bug")
                told(one, ok)

            monkeypatch.setattr(region, "_on_probe", fail_once)

            async def again() -> bool:
                return len(seen) > 2 and (await state_of(here, "eu"))["state"] == "followed"

            await until(again, "it is probed and followed again")

    asyncio.run(scenario())
    assert "watching region eu failed" in caplog.text


async def test_a_region_far_away_is_used_again_after_a_lost_probe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answers take longer than from one probe to the next, and come in time all the same."""
    region = ScriptedRegion("eu", probe_s=PROBE_EVERY_S + 0.05)
    async with site(tmp_path, regions=[region]) as here:
        watched = here.orchestrator._regions["eu"]
        told = watched._on_probe
        seen: list[bool] = []

        def note(one: Region, ok: bool) -> None:
            seen.append(ok)
            region.answers_probes = region.answers_probes or not ok
            told(one, ok)

        monkeypatch.setattr(watched, "_on_probe", note)
        region.answers_probes = False

        async def answered_again() -> bool:
            return False in seen and seen[-1]

        await until(answered_again, "a probe is answered again")
        assert (await here.ask()).status == 200
