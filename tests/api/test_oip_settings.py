"""Triton's statistics, log and trace settings, as the unmodified tritonclient calls them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import grpc
import orjson
import pytest
from tests.kit.doors import DoorSite, door_site
from tests.kit.environments import python_of
from tests.kit.gateway import fail_with, run
from tests.kit.http_clients import post

from penstock.api.access import AccessRequest, asked_of
from penstock.core.request.grants import (
    CHANGE_LOG,
    INVOKE,
    LIST_SERVED_MODELS,
    MODEL_METADATA,
    OPERATE,
    Grant,
)
from penstock.errors import ModelError
from penstock.metrics.utilization.instances import CacheCounts, CopySample, InstanceSample
from penstock.wire import frames
from penstock.wire.oip_messages import MESSAGES, SERVICE, method_classes

pytestmark = pytest.mark.loop(by=run)

CLIENT = """
import asyncio, inspect, sys
import tritonclient.KIND as triton
from tritonclient.utils import InferenceServerException

GRPC = {"as_json": True} if "grpc" in "KIND" else {}

async def main():
    client = triton.InferenceServerClient("127.0.0.1:" + sys.argv[1])

    async def call(name, *given, **named):
        found = getattr(client, name)(*given, **named, **GRPC)
        found = await found if inspect.isawaitable(found) else found
        if not GRPC or "settings" not in found:
            return found
        plain = {}
        for key, value in found["settings"].items():
            [plain[key]] = value.values() if value else [False]
        return plain

    async def refused(words, name, *given, **named):
        try:
            await call(name, *given, **named)
        except InferenceServerException as error:
            assert words in str(error), error
        else:
            raise SystemExit("not refused: " + words)

    shown = await call("get_log_settings")
    assert shown["log_info"] and shown["log_error"], shown
    assert int(shown["log_verbose_level"]) == 0 and shown["log_format"] == "default", shown
    shown = await call("update_log_settings", {"log_verbose_level": 1})
    assert int(shown["log_verbose_level"]) == 1, shown
    shown = await call("update_log_settings", {"log_verbose_level": 0, "log_info": False})
    assert not shown["log_info"] and shown["log_warning"], shown
    assert await call("get_log_settings") == shown
    await refused("log_file", "update_log_settings", {"log_file": "/tmp/log"})
    await refused("log_format", "update_log_settings", {"log_format": "ISO8601"})
    for model in (None, "echo"):
        shown = await call("get_trace_settings", model_name=model)
        assert shown["trace_level"] == ["OFF"], shown
        level = {"trace_level": ["TIMESTAMPS"]}
        await refused("trace_level", "update_trace_settings", model_name=model, settings=level)
        same = await call("update_trace_settings", model_name=model, settings={"trace_level": None})
        assert same == shown, same
    await refused("unknown model", "get_trace_settings", model_name="nobody")
    [stats] = (await call("get_inference_statistics", "echo"))["model_stats"]
    got = stats["inference_stats"]
    assert int(got["success"]["count"]) == 3 and int(got["fail"]["count"]) == 1, stats
    assert int(got["cache_hit"]["count"]) == 5, stats
    [batch] = stats["batch_stats"]
    assert int(batch["batch_size"]) == 3 and int(batch["compute_infer"]["count"]) == 1, stats
    assert int(stats["inference_count"]) == 3, stats
    assert int(stats["last_inference"]) > 1_700_000_000_000, stats
    closed = client.close()
    if inspect.isawaitable(closed):
        await closed
    print("served")

asyncio.run(main())
"""


@pytest.fixture(autouse=True)
def info() -> Iterator[None]:
    """The level is the test process's own."""
    root = logging.getLogger()
    before = root.level
    root.setLevel(logging.INFO)
    yield
    root.setLevel(before)


async def ask(served: DoorSite, request: bytes) -> tuple[int, Any]:
    client = await served.client()
    status, _, body = await client.ask(request)
    client.close()
    return status, orjson.loads(body)


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def shared_run(connection: Any, ident: int, invoke: frames.Invoke) -> None:
    """An answer of one row out of a batch of three; the body `0` makes the model fail."""
    if invoke.body == b"0":
        fail_with(ModelError("x", "m", original_status=500))(connection, ident, invoke)
        return
    connection.write(
        frames.encode_reply(
            ident, batch_rows=3, queue_us=10_000, run_us=3000, lane_us=1000, body=b"{}"
        )
    )


async def counted(served: DoorSite) -> None:
    served.instance.on_invoke = shared_run
    for body in (b"1", b"1", b"1", b"0"):
        await ask(served, post("/v2/models/echo/infer", body))
    served.registry.collect(served.dispatcher.clock.wall())
    copy = CopySample(component="", cache=CacheCounts(5, 6, 0.5, 0.25))
    sample = InstanceSample(endpoint="echo", variant="main", instance_id="i", copies=(copy,))
    served.registry.add_instance_sample(sample, served.dispatcher.clock.wall())


@pytest.mark.parametrize("kind", ["http", "http.aio", "grpc", "grpc.aio"])
async def test_tritonclient_reads_and_sets_them_unmodified(kind: str) -> None:
    async with door_site() as served:
        await counted(served)
        port = served.server.port if kind.startswith("http") else served.grpc_port
        process = await asyncio.create_subprocess_exec(
            *(str(python_of("client-tritonclient")), "-c", CLIENT.replace("KIND", kind), str(port)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        assert output.decode().splitlines()[-1:] == ["served"], output.decode()


async def test_the_statistics_have_every_field() -> None:
    async with door_site() as served:
        await counted(served)
        _, answer = await ask(served, get("/v2/models/echo/stats"))
        [stats] = answer["model_stats"]
        assert stats.pop("last_inference") % 1000 >= 0
        for name in ("success", "fail"):
            assert stats["inference_stats"][name].pop("ns") > 0
        none = {"count": 3, "ns": 0}
        assert stats == {
            "name": "echo",
            "version": "3",
            "inference_count": 3,
            "execution_count": 1,
            "inference_stats": {
                "success": {"count": 3},
                "fail": {"count": 1},
                "queue": {"count": 3, "ns": 30_000_000},
                "compute_input": none,
                "compute_infer": {"count": 3, "ns": 9_000_000},
                "compute_output": none,
                "cache_hit": {"count": 5, "ns": 500_000_000},
                "cache_miss": {"count": 6, "ns": 250_000_000},
            },
            "response_stats": {},
            "batch_stats": [
                {
                    "batch_size": 3,
                    "compute_input": {"count": 1, "ns": 0},
                    "compute_infer": {"count": 1, "ns": 3_000_000},
                    "compute_output": {"count": 1, "ns": 0},
                }
            ],
            "memory_usage": [],
        }


async def test_the_paths_and_methods_are_the_protocols() -> None:
    async with door_site() as served:
        extensions = (await ask(served, get("/v2")))[1]["extensions"]
        assert {"statistics", "trace", "logging"} <= set(extensions)
        for path in ("/v2/logging", "/v2/trace/setting", "/v2/models/echo/trace/setting"):
            status, shown = await ask(served, get(path))
            assert status == 200
            assert await ask(served, post(path, b"{}")) == (200, shown)
            put = f"PUT {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
            assert (await ask(served, put.encode()))[0] == 405
        for path in ("/v2/logging/x", "/v2/trace", "/v2/models/echo/trace"):
            assert (await ask(served, get(path)))[0] == 404
        status, answer = await ask(served, post("/v2/trace/setting", b'{"trace_file": "/x"}'))
        assert (status, answer["error"][:11]) == (501, "trace_file ")
        status, answer = await ask(served, post("/v2/logging", b'{"log_riddle": 1}'))
        assert (status, answer["error"][:11]) == (400, "log_riddle ")


@pytest.mark.parametrize("scope", [INVOKE, OPERATE])
async def test_only_keys_that_operate_set_the_level_over_grpc(scope: str) -> None:
    request = method_classes("LogSettings")[0]()
    request.settings["log_verbose_level"].uint32_param = 1
    async with (
        door_site(grant_of=lambda token: Grant(scope)) as served,
        grpc.aio.insecure_channel(f"127.0.0.1:{served.grpc_port}") as channel,
    ):
        call = channel.unary_unary(f"/{SERVICE}/LogSettings")(
            request.SerializeToString(), metadata=(("authorization", "Bearer x"),), timeout=60
        )
        if scope == OPERATE:
            await call
        else:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            assert caught.value.code() == grpc.StatusCode.PERMISSION_DENIED
    assert logging.getLogger().level == (logging.DEBUG if scope == OPERATE else logging.INFO)


@pytest.mark.parametrize(
    ("method", "path", "operation", "endpoint"),
    [
        ("GET", b"/v2/logging", LIST_SERVED_MODELS, None),
        ("POST", b"/v2/logging", CHANGE_LOG, None),
        ("POST", b"/v2/trace/setting", LIST_SERVED_MODELS, None),
        ("GET", b"/v2/models/m/trace/setting", MODEL_METADATA, "m"),
        ("GET", b"/v2/models/m:a/b/trace/setting", MODEL_METADATA, "m"),
    ],
)
def test_who_may_read_and_set_them(
    method: str, path: bytes, operation: str, endpoint: str | None
) -> None:
    assert asked_of(method, path, ()) == AccessRequest(operation, endpoint)


def test_the_messages_are_the_protocols_to_the_byte() -> None:
    log = MESSAGES["LogSettingsRequest"]()
    log.settings["log_verbose_level"].uint32_param = 1
    assert log.SerializeToString() == b"\n\x17\n\x11log_verbose_level\x12\x02\x10\x01"
    trace = MESSAGES["TraceSettingRequest"](model_name="m")
    trace.settings["trace_level"].value.append("OFF")
    assert trace.SerializeToString() == b"\n\x14\n\x0btrace_level\x12\x05\n\x03OFF\x12\x01m"
    stats = MESSAGES["ModelStatistics"]()
    stats.memory_usage.add(type="GPU", id=1, byte_size=2)
    stats.response_stats["0"].cancel.count = 3
    assert stats.SerializeToString() == (
        b"B\x09\n\x03GPU\x10\x01\x18\x02" + b"J\x09\n\x010\x12\x042\x02\x08\x03"
    )
