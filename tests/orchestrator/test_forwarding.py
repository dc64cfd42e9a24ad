"""What a client gets of regions that answer, refuse, break or say nothing."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from tests.kit.polling import until
from tests.orchestrator.region_site import (
    EVENTS_HEAD,
    LIMITS,
    OrchestratorSite,
    RegionRequest,
    ScriptedRegion,
    breaking,
    chunk,
    nothing,
    reset,
    saying,
    site,
    whole,
)

from penstock import __version__
from penstock.config import LimitConfig

MANUAL = {"mode": "manual"}
TO_EU = {"more": {"us": {"ratio": 0.0001}}, "mode": "manual"}  #: as good as all of it


def run(test: object) -> None:
    asyncio.run(test)  # type: ignore[arg-type]


async def test_an_answer_is_passed_on_with_its_region_and_an_id_of_ours(tmp_path: Path) -> None:
    async with site(tmp_path, "eu") as here:
        here.regions["eu"].script = saying(
            b"[1]", content_type="application/json", x_amzn_requestid="theirs", x_more="kept"
        )
        answer = await here.ask(
            headers={
                "X-Amzn-SageMaker-Target-Variant": "blue",
                "X-Amzn-SageMaker-Target-Container-Hostname": "second",
            }
        )
        assert (answer.status, answer.body) == (200, b"[1]")
        assert answer.headers["x-more"] == "kept"
        assert answer.headers["x-penstock-region"] == "eu"
        request_id = answer.headers["x-amzn-requestid"]
        assert request_id != "theirs"
        asked = here.regions["eu"].asked[0]
        assert asked.path == "/endpoints/echo/invocations"
        assert asked.headers["x-amzn-sagemaker-target-variant"] == "blue"
        assert asked.headers["x-amzn-sagemaker-target-container-hostname"] == "second"
        assert asked.headers["x-penstock-room"] == "?1"
        story = await here.told(f"/admin/requests/{request_id}")
        assert (story["region"], story["region_request_id"]) == ("eu", "theirs")
        assert [one["outcome"] for one in story["attempts"]] == ["status-200"]


async def test_a_client_s_credentials_stay_here_and_the_region_s_own_go_on(tmp_path: Path) -> None:
    (tmp_path / "eu.key").write_text("psk_secret\n")
    async with site(tmp_path, "eu", more={"eu": {"key_file": "eu.key"}}) as here:
        await here.ask(
            headers={
                "Authorization": "Bearer the-client-s",
                "X-Amz-Date": "20260101T000000Z",
                "Connection": "close, X-Hop",
                "X-Hop": "for the first hop",
            }
        )
        headers = here.regions["eu"].asked[0].headers
        assert headers["authorization"] == "Bearer psk_secret"
        assert not {"x-amz-date", "x-hop", "connection"} & headers.keys()
        assert "psk_secret" not in json.dumps(await here.told("/penstock/v1/regions"))


@pytest.mark.parametrize(
    "script",
    [
        reset,
        breaking(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n", b"[1,2"),
        breaking(b"HTTP/1.1 nonsense\r\n\r\n"),
        breaking(b"HTTP/1.1 200 OK\r\nx: " + b"a" * 70_000 + b"\r\n\r\n"),
        saying(b"", status=503),
        saying(b"", status=429),
        saying(b"", status=403),
    ],
    ids=["reset", "half-an-answer", "no-http", "endless-head", "503", "429", "403"],
)
async def test_a_region_that_gives_no_whole_answer_costs_the_client_nothing(
    tmp_path: Path, script: object
) -> None:
    """The request goes to another region, with the same body, under the same deadline."""
    async with site(tmp_path, "eu", "us", **TO_EU) as here:
        here.regions["eu"].script = script  # type: ignore[assignment]
        answer = await here.ask(body=b"[7]", headers={"x-penstock-deadline-ms": "15000"})
        assert (answer.status, answer.headers["x-penstock-region"]) == (200, "us")
        first, second = here.regions["eu"].asked[0], here.regions["us"].asked[0]
        assert first.body == second.body == b"[7]"
        left = [int(one.headers["x-penstock-deadline-ms"]) for one in (first, second)]
        assert 15_000 >= left[0] >= left[1] > 0


async def test_a_refusal_of_all_regions_is_the_answer(tmp_path: Path) -> None:
    async with site(tmp_path, "eu", "us", **MANUAL) as here:
        for region in here.regions.values():
            region.script = saying(b'{"Message":"busy"}', status=503, x_amz_retry_after="70")
        answer = await here.ask()
        assert (answer.status, answer.headers["x-amz-retry-after"]) == (503, "70")
        assert [len(one.asked) for one in here.regions.values()] == [1, 1]
        story = await here.told(f"/admin/requests/{answer.headers['x-amzn-requestid']}")
        assert (story["status"], story["outcome"]) == (503, "refused")
        assert [one["outcome"] for one in story["attempts"]][:2] == ["status-503"] * 2


async def test_an_error_of_the_request_itself_is_asked_for_once(tmp_path: Path) -> None:
    async with site(tmp_path, "eu", "us", **MANUAL) as here:
        for status in (400, 424, 500):
            for region in here.regions.values():
                region.asked.clear()
                region.script = saying(b"{}", status=status)
            assert (await here.ask()).status == status
            assert sum(len(one.asked) for one in here.regions.values()) == 1


async def test_what_must_not_be_done_twice_is_not_sent_twice(tmp_path: Path) -> None:
    """InvokeEndpointAsync: the region may have taken it before it was lost."""
    async with site(tmp_path, "eu", "us", **TO_EU) as here:
        here.regions["eu"].script = reset
        answer = await here.ask("/endpoints/echo/async-invocations", b"")
        assert (answer.status, "may have taken" in answer.json["Message"]) == (503, True)
        assert here.regions["us"].asked == []


async def test_half_an_answer_that_nobody_saw_is_not_how_a_request_ended(tmp_path: Path) -> None:
    """Its region had begun to say that all was well; the client was told that it is lost."""
    async with site(tmp_path, "eu") as here:
        half = breaking(b"HTTP/1.1 202 Accepted\r\ncontent-length: 9\r\n\r\n", b"{")
        here.regions["eu"].script = half
        answer = await here.ask("/endpoints/echo/async-invocations", b"")
        assert answer.status == 503
        story = await here.told(f"/admin/requests/{answer.headers['x-amzn-requestid']}")
        assert (story["status"], story["outcome"]) == (None, "no-region")
        assert [one["outcome"] for one in story["attempts"]] == ["connection-lost"]


async def test_all_regions_gone_for_a_moment_are_waited_for(tmp_path: Path) -> None:
    async with site(tmp_path, "eu") as here:
        region = here.regions["eu"]
        await region.stop()
        asking = asyncio.ensure_future(here.ask())
        await asyncio.sleep(0.5)
        assert not asking.done()
        await region.start()
        assert (await asking).status == 200


async def test_nothing_is_sent_where_there_is_no_room_and_room_lets_it_go(tmp_path: Path) -> None:
    region = ScriptedRegion("eu", rooms={"echo": 0})
    async with site(tmp_path, regions=[region], hold_max=1) as here:
        asking = asyncio.ensure_future(here.ask())
        held = lambda: here.told("/penstock/v1/ratios?endpoint=echo")  # noqa: E731

        async def waits() -> bool:
            return bool((await held())["traffic"][0]["held"] == 1)

        await until(waits, "it is held")
        refused = await here.ask()
        assert refused.status == 503
        assert "as many requests wait as may" in refused.json["Message"]
        assert region.asked == []
        region.rooms["echo"] = 1
        assert (await asking).status == 200


async def test_a_deadline_ends_the_wait_for_a_region_and_for_its_answer(tmp_path: Path) -> None:
    region = ScriptedRegion("eu", rooms={"echo": 0}, script=nothing)
    async with site(tmp_path, regions=[region]) as here:
        short = {"x-penstock-deadline-ms": "300"}
        answer = await here.ask(headers=short)
        assert (answer.status, "had no room" in answer.json["Message"]) == (503, False)
        region.rooms["echo"] = 4

        async def roomy() -> bool:
            told = await here.told("/penstock/v1/ratios?endpoint=echo")
            return bool(told["traffic"][0]["regions"][0]["room"])

        await until(roomy, "room")
        answer = await here.ask(headers=short)
        assert (answer.status, "was not answered" in answer.json["Message"]) == (503, True)
        await until(lambda: region.gone == 1, "the region hears that nobody waits")


@pytest.mark.parametrize("size", [10, 200_000], ids=["small", "large"])
async def test_a_deadline_that_is_no_number_is_refused(tmp_path: Path, size: int) -> None:
    async with site(tmp_path, "eu") as here:
        body = json.dumps({"model": "echo", "input": "x" * size}).encode()
        wrong = {"x-penstock-deadline-ms": "soon"}
        assert (await here.ask("/v1/embeddings", body, headers=wrong)).status == 400
        assert here.regions["eu"].asked == []


async def test_a_region_that_says_nothing_is_left_for_one_that_speaks(tmp_path: Path) -> None:
    async with site(tmp_path, "eu", "us", **TO_EU) as here:
        region = here.regions["eu"]
        region.script, region.answers_probes = nothing, False
        answer = await here.ask()
        assert (answer.status, answer.headers["x-penstock-region"]) == (200, "us")
        assert region.asked


async def test_what_leaves_a_silent_region_goes_before_those_that_came_later(
    tmp_path: Path,
) -> None:
    """No other region has room at that moment."""
    async with site(tmp_path, "eu", "us", **TO_EU) as here:
        eu, us = here.regions["eu"], here.regions["us"]
        eu.script = nothing
        old = asyncio.ensure_future(here.ask(body=b"[1]"))
        await until(lambda: bool(eu.asked), "it is asked")
        eu.rooms["echo"] = us.rooms["echo"] = 0

        async def full() -> bool:
            told = await here.told("/penstock/v1/ratios?endpoint=echo")
            return not any(one["room"] for one in told["traffic"][0]["regions"])

        await until(full, "no region has room")
        new = asyncio.ensure_future(here.ask(body=b"[2]"))

        async def held(count: int) -> bool:
            told = await here.told("/penstock/v1/ratios?endpoint=echo")
            return bool(told["traffic"][0]["held"] == count)

        await until(lambda: held(1), "the later one waits")
        eu.answers_probes = False
        await until(lambda: held(2), "the other one has left")
        us.rooms["echo"] = 1
        assert [(await each).status for each in (old, new)] == [200, 200]
        assert [each.body for each in us.asked] == [b"[1]", b"[2]"]


async def test_pieces_of_an_answer_arrive_before_its_end(tmp_path: Path) -> None:
    go_on = asyncio.Event()

    async def pieces(_asked: RegionRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(EVENTS_HEAD + chunk(b"data: 1\n\n"))
        await go_on.wait()
        writer.write(chunk(b"data: 2\n\n") + b"0\r\n\r\n")

    async with site(tmp_path, "eu") as here:
        here.regions["eu"].script = pieces
        reader, writer = await here.open("/v2/models/echo/generate_stream", b"{}")
        async with asyncio.timeout(30):
            seen = await reader.readuntil(b"data: 1\n\n")
            assert b"200 OK" in seen
            go_on.set()
            assert b"data: 2\n\n" in await reader.read()
        writer.close()


async def test_a_client_that_goes_away_ends_its_request_in_the_region(tmp_path: Path) -> None:
    async with site(tmp_path, "eu") as here:
        region = here.regions["eu"]
        region.script = nothing
        _, writer = await here.open("/endpoints/echo/invocations")
        await until(lambda: bool(region.asked), "it is asked")
        writer.transport.abort()
        await until(lambda: region.gone == 1, "the region hears of it")


def test_a_client_that_reads_late_fills_no_memory_and_loses_nothing(tmp_path: Path) -> None:
    """The region is read no faster than the client takes it."""
    piece, pieces, sent = b"x" * 65_536, 700, 0

    async def much(_asked: RegionRequest, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (pieces * len(piece)))
        for _ in range(pieces):
            writer.write(piece)
            await writer.drain()
            sent += 1

    async def scenario() -> None:
        async with site(tmp_path, "eu") as here:
            here.regions["eu"].script = much
            reader, writer = await here.open("/endpoints/echo/invocations", limit=1024)
            before = -1

            async def stands() -> bool:
                nonlocal before
                await asyncio.sleep(0.3)
                stood, before = sent == before, sent
                return stood and sent > 0

            await until(stands, "the region is no longer read")
            assert sent < pieces * 3 // 4
            async with asyncio.timeout(60):
                answer = whole(await reader.read())
            assert len(answer.body) == pieces * len(piece)
            writer.close()

    run(scenario())


async def test_data_of_a_pinned_endpoint_stays_even_when_its_region_is_gone(tmp_path: Path) -> None:
    pinned = {"echo": {"pinned": ["eu"]}, "later": {"pinned": ["eu"]}}
    async with site(tmp_path, "eu", "us", endpoints=pinned, hold_s_max=1.0, **MANUAL) as here:
        for _ in range(6):
            assert (await here.ask()).headers["x-penstock-region"] == "eu"
        for _ in range(4):  # no region has it: which one says so is pinned, too
            await here.ask("/endpoints/later/invocations")
        await here.regions["eu"].stop()
        for path in ("/endpoints/echo/invocations", "/endpoints/later/invocations"):
            assert (await here.ask(path)).status == 503
        assert here.regions["us"].asked == []


async def test_a_session_stays_in_the_region_that_opened_it(tmp_path: Path) -> None:
    async with site(tmp_path, "eu", "us", **MANUAL) as here:
        for name, region in here.regions.items():
            region.script = saying(
                b"{}", x_amzn_sagemaker_new_session_id=f"session-{name}; Expires=never"
            )
        name = "X-Amzn-SageMaker-Session-Id"
        opened = await here.ask(headers={name: "NEW_SESSION"})
        session = opened.headers["x-amzn-sagemaker-new-session-id"].partition(";")[0]
        for region in here.regions.values():
            region.script = saying(b"{}")
        seen = {
            (await here.ask(headers={name: session})).headers["x-penstock-region"] for _ in range(6)
        }
        assert seen == {opened.headers["x-penstock-region"]}


async def test_shares_set_by_hand_hold_from_the_next_request_on_and_over_a_restart(
    tmp_path: Path,
) -> None:
    async def shares(here: object) -> set[str]:
        return {(await here.ask()).headers["x-penstock-region"] for _ in range(6)}  # type: ignore[attr-defined]

    async with site(tmp_path, "eu", "us") as here:
        body = json.dumps({"ratios": {"eu": 0, "us": 1}}).encode()
        answer = await here.ask("/penstock/v1/ratios", body, method="PUT")
        assert answer.json["mode"] == "manual"
        assert await shares(here) == {"us"}
        wrong = await here.ask("/penstock/v1/ratios", b'{"ratios":{"mars":1}}', method="PUT")
        assert (wrong.status, wrong.json["code"]) == (400, "invalid-traffic")
        changes = (await here.told("/penstock/v1/ratios?endpoint="))["traffic"][0]["changes"]
        assert {(one["region"], one["after"], one["reason"]) for one in changes} == {
            ("eu", 0.0, "by-hand"),
            ("us", 1.0, "by-hand"),
        }
    async with site(tmp_path, "eu", "us") as here:
        assert await shares(here) == {"us"}


async def test_a_region_that_drains_gets_nothing_new(tmp_path: Path) -> None:
    async with site(tmp_path, "eu", "us", **TO_EU) as here:
        here.regions["eu"].accepting = False

        async def closed() -> bool:
            told = await here.told("/penstock/v1/ratios?endpoint=echo")
            return bool(told["traffic"][0]["regions"][0]["room"] == 0)

        await until(closed, "no room is seen")
        here.regions["eu"].asked.clear()
        assert (await here.ask()).headers["x-penstock-region"] == "us"
        assert here.regions["eu"].asked == []


async def test_a_stopping_orchestrator_answers_what_it_has_and_refuses_the_rest(
    tmp_path: Path,
) -> None:
    go_on = asyncio.Event()

    async def later(asked: RegionRequest, writer: asyncio.StreamWriter) -> None:
        await go_on.wait()
        await saying(b"[1]")(asked, writer)

    limits = LimitConfig(request_timeout_s=LIMITS.request_timeout_s, drain_s_max=20.0)
    async with site(tmp_path, "eu", limits=limits) as here:
        region = here.regions["eu"]
        region.script = later
        asking = asyncio.ensure_future(here.ask())
        await until(lambda: bool(region.asked), "it is asked")
        stopping = asyncio.ensure_future(here.orchestrator.stop())
        await asyncio.sleep(0)
        refused = await here.ask()
        assert (refused.status, "stopping" in refused.json["Message"]) == (503, True)
        go_on.set()
        assert (await asking).status == 200
        await stopping


def test_a_kept_connection_that_the_region_had_closed_is_no_failure_of_the_region(
    tmp_path: Path,
) -> None:
    """The race of a request with the end of an idle connection: a new one is opened, unseen."""
    known: set[asyncio.StreamWriter] = set()

    async def once(asked: RegionRequest, writer: asyncio.StreamWriter) -> None:
        if writer in known:
            writer.transport.abort()
            return
        known.add(writer)
        await saying(b"[1]")(asked, writer)

    async def scenario() -> None:
        async with site(tmp_path, "eu", "us", **TO_EU) as here:
            region = here.regions["eu"]
            region.script = once
            for _ in range(3):
                answer = await here.ask()
                assert (answer.status, answer.headers["x-penstock-region"]) == (200, "eu")
            assert len(region.asked) == 5, "each but the first came twice"
            metrics = (await here.ask("/metrics", b"", method="GET")).body.decode()
            assert "penstock_traffic_sent_again_total{" not in metrics

    run(scenario())


async def test_what_is_a_region_s_own_affair_is_not_passed_on(tmp_path: Path) -> None:
    async with site(tmp_path, "eu") as here:
        load = await here.ask("/v2/repository/models/echo/load", b"{}")
        assert (load.status, "a region's own" in load.json["error"]) == (404, True)
        create = await here.ask("/", b"{}", headers={"X-Amz-Target": "SageMaker.ListModels"})
        assert (create.status, create.json["code"]) == (404, "not-found")
        unknown = await here.ask("/endpoints/echo/none", b"")
        assert unknown.headers["x-amzn-errortype"] == "UnknownOperationException"
        live = await here.ask("/v2/health/live", b"", method="GET")
        ready = await here.ask("/v2/health/ready", b"", method="GET")
        assert (live.status, ready.status) == (200, 200)
        version = await here.ask("/version", b"", method="GET")
        assert version.json == {"version": __version__}
        assert here.regions["eu"].asked == []


async def test_an_orchestrator_is_ready_while_a_region_can_be_reached(tmp_path: Path) -> None:
    """Without one its requests are told so, each region with its state; with one that has no room,
    of room. It lives all the while."""

    async def codes(here: OrchestratorSite) -> list[int]:
        paths = ("/ping", "/health", "/v2/health/ready", "/v2/health/live")
        return [(await here.ask(path, b"", method="GET")).status for path in paths]

    eu, us = ScriptedRegion("eu", feed_status=403), ScriptedRegion("us")
    async with site(tmp_path, regions=[eu, us], wait=False, hold_s_max=0.2) as here:
        await here.wait_serving("us")
        assert await codes(here) == [200, 200, 200, 200]
        await us.stop()

        async def gone() -> bool:
            return await codes(here) == [503, 503, 503, 200]

        await until(gone, "it is not ready")
        told = await here.ask("/ping", b"", method="GET")
        assert told.json["code"] == "no-region-reachable"
        assert "eu: region-refused" in told.json["message"]
        assert "us: unreachable" in told.json["message"]
        assert told.json["hint"]
        body = json.dumps({"model": "echo", "messages": []}).encode()
        asked = await here.ask("/v1/chat/completions", body)
        assert (asked.status, asked.json["error"]["code"]) == (503, "no_region_reachable")
        assert "eu: region-refused, us: unreachable" in asked.json["error"]["message"]
        hurried = {"x-penstock-deadline-ms": "100"}
        asked = await here.ask("/v1/chat/completions", body, headers=hurried)
        assert (asked.status, asked.json["error"]["code"]) == (503, "no_region_reachable")
        us.rooms = {"echo": 0}
        await us.start()
        await here.wait_serving("us")
        assert await codes(here) == [200, 200, 200, 200]
        asked = await here.ask("/v1/chat/completions", body)
        assert (asked.status, asked.json["error"]["code"]) == (503, "no_region_room")


@pytest.mark.parametrize(
    ("path", "method", "body"),
    [
        ("/v1/chat/completions", "POST", b'{"model":"echo:adapter","messages":[]}'),
        ("/endpoints/echo/openai/v1/embeddings", "POST", b'{"input":"x"}'),
        ("/endpoints/echo/inference-components/a/openai/v1/completions", "POST", b'{"prompt":"x"}'),
        ("/v1/embeddings", "POST", b'{"input":"' + b"x" * 200_000 + b'","model":"echo"}'),
        ("/v2/rerank", "POST", b'{"model":"echo","query":"a","documents":["b"]}'),
        ("/tokenize", "POST", b'{"model":"echo","prompt":"a"}'),
        ("/endpoints/echo/openai/health", "GET", b""),
        ("/v2/models/echo/infer", "POST", b"{}"),
        ("/v2/models/echo/versions/1/ready", "GET", b""),
        ("/v1/models/echo", "GET", b""),
        ("/v1/models", "GET", b""),
        ("/v2/repository/index", "POST", b"{}"),
        ("/v2", "GET", b""),
    ],
)
async def test_every_path_that_asks_a_model_or_about_it_is_passed_on_as_it_is(
    tmp_path: Path, path: str, method: str, body: bytes
) -> None:
    async with site(tmp_path, "eu") as here:
        answer = await here.ask(path, body, method=method)
        assert (answer.status, answer.body) == (200, b"[1]")
        asked = here.regions["eu"].asked[0]
        assert (asked.method, asked.path, asked.body) == (method, path, body)


async def test_errors_of_ours_are_in_the_words_of_each_protocol(tmp_path: Path) -> None:
    region = ScriptedRegion("eu", rooms={"echo": 0})
    async with site(tmp_path, regions=[region], hold_max=0) as here:
        runtime = await here.ask()
        assert runtime.headers["x-amzn-errortype"] == "ServiceUnavailable"
        assert runtime.headers["x-amz-retry-after"] == "1000"
        oip = await here.ask("/v2/models/echo/infer", b"{}")
        assert (oip.status, list(oip.json)) == (503, ["error"])
        body = json.dumps({"model": "echo", "messages": []}).encode()
        openai = await here.ask("/v1/chat/completions", body)
        assert (openai.status, openai.json["error"]["code"]) == (503, "no_region_room")
        nameless = await here.ask("/v1/chat/completions", b"{}")
        assert (nameless.status, nameless.json["error"]["code"]) == (400, "model_missing")
