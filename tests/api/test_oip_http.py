"""The Open Inference Protocol over HTTP: what clients ask, how bodies pass, how errors read."""

from __future__ import annotations

import gzip
import zlib
from typing import Any

import orjson
import pytest
from tests.kit.doors import DoorSite, door_site
from tests.kit.gateway import fail_with, routes, run
from tests.kit.http_clients import post

from penstock.errors import ModelError, NotNowError
from penstock.wire import frames

pytestmark = pytest.mark.loop(by=run)


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


async def ask(served: DoorSite, request: bytes) -> tuple[int, Any]:
    client = await served.client()
    status, _, body = await client.ask(request)
    client.close()
    return status, orjson.loads(body) if body else None


async def test_server_and_model_answer_what_clients_ask() -> None:
    async with door_site() as served:
        assert (await ask(served, get("/v2/health/live"))) == (200, None)
        assert (await ask(served, get("/v2/health/ready"))) == (200, None)
        assert (await ask(served, get("/v2/models/echo/ready"))) == (200, None)
        assert (await ask(served, get("/v2/models/echo/versions/3/ready"))) == (200, None)
        assert (await ask(served, get("/v2")))[1]["name"] == "penstock"
        assert await ask(served, get("/v2/models/echo")) == (
            200,
            {
                "name": "echo",
                "versions": ["1", "3"],
                "platform": "onnxruntime_onnx",
                "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}],
                "outputs": [{"name": "y", "datatype": "BYTES", "shape": [-1, 1]}],
            },
        )
        status, config = await ask(served, get("/v2/models/echo/config"))
        assert (status, config["max_batch_size"]) == (200, 8)
        assert config["input"] == [{"name": "x", "data_type": "TYPE_FP32", "dims": [4]}]
        assert config["output"] == [{"name": "y", "data_type": "TYPE_STRING", "dims": [1]}]
        assert config["dynamic_batching"] == {
            "preferred_batch_size": [4],
            "max_queue_delay_microseconds": 2000,
        }
        served.dispatcher.publish(routes(2, endpoint="loading"))
        echo = [
            {"name": "echo", "version": version, "state": "READY", "reason": ""}
            for version in ("1", "3")
        ]
        _, index = await ask(served, post("/v2/repository/index"))
        assert [row["state"] for row in index] == ["READY", "READY", "UNAVAILABLE"]
        assert await ask(served, post("/v2/repository/index", b'{"ready": true}')) == (
            200,
            echo,
        )
        # Read on the loop, where the keys of six megabytes would take a third of a second.
        large = b'{"ready": true, "a": "%b"}' % (b"a" * 4096)
        status, refused = await ask(served, post("/v2/repository/index", large))
        assert (status, refused["error"]) == (413, "The body is larger than 4096 bytes.")


async def test_infer_passes_json_and_binary_bodies_unread_and_the_length_header_both_ways() -> None:
    async with door_site() as served:
        client = await served.client()
        status, headers, body = await client.ask(post("/v2/models/echo/infer", b'{"inputs":[]}'))
        assert (status, body) == (200, b'{"inputs":[]}')
        assert "inference-header-content-length" not in headers
        status, headers, body = await client.ask(
            post(
                "/v2/models/echo/versions/1/infer",
                b"{}\x00\x01",
                "Inference-Header-Content-Length: 2",
                "Content-Type: application/octet-stream",
            )
        )
        assert (status, body) == (200, b"{}\x00\x01")
        assert headers["inference-header-content-length"] == "2"
        assert headers["content-type"] == "application/octet-stream"
        metas = [frames.decode_request_meta(i.meta) for i in served.instance.invokes]
        assert metas == [
            frames.RequestMeta(door="oip"),
            frames.RequestMeta(
                content_type="application/octet-stream",
                json_header_bytes=2,
                door="oip",
                parameters='{"version":"1"}',
            ),
        ]


@pytest.mark.parametrize(("name", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
async def test_compressed_bodies_are_inflated_within_the_limit(name: str, pack: Any) -> None:
    async with door_site(oip_body_bytes_max=10_000) as served:
        encoding = f"Content-Encoding: {name}"
        path = "/v2/models/echo/infer"
        assert await ask(served, post(path, pack(b"[1]"), encoding)) == (200, [1])
        bomb = pack(b"0" * 5_000_000)
        assert (await ask(served, post(path, bomb, encoding)))[0] == 413
        assert (await ask(served, post(path, pack(b"[1]" * 99)[:-5], encoding)))[0] == 400
        assert (await ask(served, post(path, b"torn", encoding)))[0] == 400
        assert (await ask(served, post(path, b"x", "Content-Encoding: br")))[0] == 415


@pytest.mark.parametrize(
    ("request_bytes", "status", "words"),
    [
        (post("/v2/models/nobody/infer"), 404, "unknown model"),
        (get("/v2/models/nobody"), 404, "'nobody' is not found"),
        (get("/v2/models/nobody/ready"), 404, "nobody"),
        (get("/v2/models/echo/versions/9"), 404, "no version 9; it has 1, 3"),
        (post("/v2/models/echo/versions/9/infer"), 404, "no version 9"),
        (get("/v2/models/echo/infer"), 405, "POST"),
        (post("/v2/models/echo"), 405, "GET"),
        (get("/v2/nonsense"), 404, "/v2/nonsense"),
        (get("/v2/models/echo/versions/1/infer/more"), 404, "not part of the protocol"),
        (post("/v2/models/echo/infer", b"{}", "Inference-Header-Content-Length: two"), 400, "two"),
        (post("/v2/repository/index", b"{"), 400, "not JSON"),
        (post("/v2/repository/models/echo/load"), 400, "CreateEndpoint"),
        (post("/v2/models/echo/infer", b"{}" * 600), 413, "(limits.oip_body_bytes_max)"),
        (get("/v2/models"), 404, "/v2/models is not"),
        (get("/v2beta"), 404, "/v2beta is not"),
        (post("/v2/nonsense"), 404, "/v2/nonsense"),
        (get("/v2/models/echo/nonsense"), 404, "nonsense"),
        (get("/v2/repository/nonsense"), 404, "nonsense"),
        (post("/v2/repository/models/echo/nonsense"), 404, "nonsense"),
        (get("/v2/repository/index"), 405, "POST"),
        (post("/v2/health/live"), 405, "GET"),
    ],
)
async def test_wrong_requests_are_told_why(request_bytes: bytes, status: int, words: str) -> None:
    async with door_site(oip_body_bytes_max=1000) as served:
        got, answer = await ask(served, request_bytes)
        assert got == status
        assert words in answer["error"]
        assert list(answer) == ["error"]


async def test_a_body_below_v2_has_a_limit_of_its_own() -> None:
    """Tensors are larger than InvokeEndpoint's bodies; the budget of all bodies bounds them."""
    async with door_site(body_bytes_max=1000, oip_body_bytes_max=5000) as served:
        large = b'"%b"' % (b"a" * 4000)
        assert (await ask(served, post("/v2/models/echo/infer", large)))[0] == 200
        chunked = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n"
        head = b"POST %b HTTP/1.1\r\nHost: localhost\r\n"
        for path, status in (
            (b"/v2/models/echo/infer", 200),
            (b"/endpoints/echo/invocations", 413),
        ):
            request = head % path + chunked % (len(large), large)
            client = await served.client()
            assert (await client.ask(request))[0] == status
            client.close()
        url = b"http://localhost/v2/models/echo/infer"  # as a proxy's client writes it
        length = b"Content-Length: %d\r\n\r\n" % len(large)
        assert (await ask(served, head % url + length + large))[0] == 200
    async with door_site(bodies_bytes_max=3000, body_bytes_max=1000) as served:
        status, answer = await ask(served, post("/v2/models/echo/infer", large))
        assert (status, answer["error"][:58]) == (
            413,
            "The body is larger than 3000 bytes (limits.bodies_bytes_ma",
        )


async def test_errors_of_the_model_and_of_the_moment_keep_their_meaning() -> None:
    async with door_site() as served:
        infer = post("/v2/models/echo/infer", b"{}")
        served.instance.on_invoke = fail_with(ModelError("x", "bad x", original_status=400))
        assert await ask(served, infer) == (400, {"error": "bad x"})
        served.instance.on_invoke = fail_with(ModelError("x", "broke", original_status=500))
        assert await ask(served, infer) == (500, {"error": "broke"})
        served.instance.on_invoke = fail_with(NotNowError("queue-full", "Later."))
        assert await ask(served, infer) == (503, {"error": "Later."})


async def test_statistics_are_what_the_metrics_counted() -> None:
    async with door_site() as served:
        for _ in range(3):
            await ask(served, post("/v2/models/echo/infer", b"{}"))
        served.registry.collect(served.dispatcher.clock.wall())
        _, answer = await ask(served, get("/v2/models/echo/stats"))
        [stats] = answer["model_stats"]
        assert (stats["inference_count"], stats["execution_count"]) == (3, 3)
        assert stats["inference_stats"]["success"]["count"] == 3
        assert stats["inference_stats"]["compute_infer"]["ns"] == pytest.approx(150_000, abs=3)
        assert (await ask(served, get("/v2/models/stats")))[1] == answer
