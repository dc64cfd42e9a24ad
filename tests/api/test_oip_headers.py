"""Headers that the doors pass on to models, over HTTP and gRPC."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import orjson
import pytest
from tests.api.test_oip_tritonclient import echo_tensor_grpc, echo_tensor_http
from tests.kit.doors import DoorSite, door_site
from tests.kit.environments import python_of
from tests.kit.gateway import run
from tests.kit.http_clients import post

from penstock.wire import frames
from penstock.wire.oip_messages import SERVICE, ModelInferRequest

pytestmark = pytest.mark.loop(by=run)

CLIENT = """
import sys
import numpy as np
import tritonclient.KIND as triton

client = triton.InferenceServerClient("127.0.0.1:" + sys.argv[1])
tensor = triton.InferInput("x", (1, 4), "FP32")
tensor.set_data_from_numpy(np.zeros((1, 4), np.float32))
client.infer("echo", [tensor], headers={"prefix_tenant": "a", "other": "b"})
client.infer("echo", [tensor], headers={"CASED": "c"})
client.infer("echo", [tensor])
print("served")
"""


def passed_on(served: DoorSite) -> list[dict[str, Any]]:
    metas = [frames.decode_request_meta(one.meta) for one in served.instance.invokes]
    return [orjson.loads(one.parameters) if one.parameters else {} for one in metas]


@pytest.mark.parametrize("kind", ["http", "grpc"])
async def test_tritonclient_s_headers_are_passed_on_unmodified(kind: str) -> None:
    async with door_site(forward_headers=("PREFIX_*",)) as served:
        http = kind == "http"
        cased = "Prefix_Tenant" if http else "prefix_tenant"  # gRPC has no upper case
        code = CLIENT.replace("KIND", kind).replace("CASED", cased)
        served.instance.on_invoke = echo_tensor_http if http else echo_tensor_grpc
        process = await asyncio.create_subprocess_exec(
            *(str(python_of("client-tritonclient")), "-c", code),
            str(served.server.port if http else served.grpc_port),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        assert output.decode().splitlines()[-1:] == ["served"], output.decode()
        assert passed_on(served) == [
            {"headers": {"prefix_tenant": "a"}},
            {"headers": {cased: "c"}},
            {},
        ]


async def test_metadata_of_any_kind_is_passed_on_or_refused_by_name() -> None:
    """Repeated keys, binary ones, names of any case in the setting; over a stream as well."""
    message = ModelInferRequest(model_name="echo").SerializeToString()
    metadata = [
        ("x-tenant", "a"), ("x-raw-bin", "ä".encode()), ("x-tenant", "b"),
        ("authorization", "Bearer k"), ("other", "c"),
    ]  # fmt: skip
    passed = {"x-tenant": "a,b", "x-raw-bin": "ä"}
    async with (
        door_site(forward_headers=("X-*", "authorization")) as served,
        grpc.aio.insecure_channel(f"127.0.0.1:{served.grpc_port}") as channel,
    ):
        unary = channel.unary_unary(f"/{SERVICE}/ModelInfer")
        stream = channel.stream_stream(f"/{SERVICE}/ModelStreamInfer")
        await unary(message, metadata=metadata)
        call = stream(metadata=metadata)
        for _ in range(2):
            await call.write(message)
            assert await call.read()
        assert [one["headers"] for one in passed_on(served)] == [passed] * 3
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await unary(message, metadata=[("x-raw-bin", b"\xff")])
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert "'x-raw-bin'" in (caught.value.details() or "")
        assert len(served.instance.invokes) == 3


async def test_generate_and_versions_have_them_too_and_nothing_is_passed_on_unasked() -> None:
    async with door_site(forward_headers=("x-a",)) as served:
        client = await served.client()
        for path in ("/v2/models/echo/generate", "/v2/models/echo/versions/3/infer"):
            await client.ask(post(path, b"{}", "X-A: 1"))
            await client.ask(post(path, b"{}"))
        client.close()
        assert passed_on(served) == [
            {"operation": "generate", "headers": {"X-A": "1"}},
            {"operation": "generate"},
            {"version": "3", "headers": {"X-A": "1"}},
            {"version": "3"},
        ]
    async with door_site() as served:
        client = await served.client()
        await client.ask(post("/v2/models/echo/infer", b"{}", "X-A: 1"))
        client.close()
        assert passed_on(served) == [{}]


async def test_a_reserved_name_is_refused() -> None:
    async with door_site(forward_headers=("*",)) as served:
        client = await served.client()
        request = post("/v2/models/echo/infer", b"{}", "triton_x: 1")
        status, _, body = await client.ask(request)
        client.close()
        assert (status, b"parameter of Triton's own" in body) == (400, True)
        assert served.instance.invokes == []
