"""Shared memory as the unmodified tritonclient uses it, and as strangers would."""

from __future__ import annotations

import asyncio
import json
import secrets
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import grpc
import orjson
import pytest
from tests.api.test_oip_tritonclient import echo_tensor_grpc, echo_tensor_http
from tests.kit.doors import DoorSite, door_site
from tests.kit.environments import python_of
from tests.kit.gateway import run
from tests.kit.http_clients import post
from tests.kit.polling import until

from penstock.api.oip.shared_memory import OwnRegions, is_near
from penstock.core.request.grants import Grant
from penstock.wire.oip_messages import SERVICE, ModelInferRequest, method_classes

pytestmark = pytest.mark.loop(by=run)

CLIENT = """
import asyncio, inspect, os, sys
import numpy as np
import tritonclient.KIND as triton
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException

async def wait(value):
    return await value if inspect.isawaitable(value) else value

async def refused(value, words):
    try:
        await wait(value() if callable(value) else value)
    except InferenceServerException as error:
        assert words in str(error), error
    else:
        raise SystemExit("not refused: " + words)

async def main():
    client = triton.InferenceServerClient("127.0.0.1:" + sys.argv[1])
    call = lambda name, *given, **named: wait(getattr(client, name)(*given, **named))
    key = "/penstock-test-" + sys.argv[2]
    given = np.arange(8, dtype=np.float32).reshape(2, 4)
    size = given.nbytes
    handle = shm.create_shared_memory_region("all", key, 2 * size)
    try:
        shm.set_shared_memory_region(handle, [given])
        await call("register_system_shared_memory", "in", key, size)
        await call("register_system_shared_memory", "out", key, size, offset=size)
        status = await call("get_system_shared_memory_status")
        shown = status if isinstance(status, list) else list(status.regions.values())
        names = [each["name"] if isinstance(each, dict) else each.name for each in shown]
        assert sorted(names) == ["in", "out"], status
        assert not getattr(await call("get_cuda_shared_memory_status"), "regions", None)

        tensor = triton.InferInput("x", given.shape, "FP32")
        tensor.set_shared_memory("in", size)
        result = triton.InferRequestedOutput("y")
        result.set_shared_memory("out", size)
        answer = await call("infer", "echo", [tensor], outputs=[result])
        told = answer.get_output("y")
        shape = told["shape"] if isinstance(told, dict) else list(told.shape)
        found = shm.get_contents_as_numpy(handle, np.float32, shape, offset=size)
        assert (found == given).all(), found

        carried = await call("infer", "echo", [tensor])
        assert (carried.as_numpy("y") == given).all()

        small = triton.InferRequestedOutput("y")
        small.set_shared_memory("out", 4)
        await refused(lambda: client.infer("echo", [tensor], outputs=[small]), "has 4 bytes")
        far = triton.InferInput("x", given.shape, "FP32")
        far.set_shared_memory("in", size, offset=4)
        await refused(lambda: client.infer("echo", [far]), "not inside the 32 bytes")
        far.set_shared_memory("nobody", size)
        await refused(lambda: client.infer("echo", [far]), "Unable to find")
        again = lambda: client.register_system_shared_memory("in", key, size)
        await refused(again, "registered already")
        away = lambda: client.register_system_shared_memory("up", "/../etc/passwd", 1)
        await refused(away, "no key of shared memory")

        os.truncate("/dev/shm" + key, 8)
        await refused(lambda: client.infer("echo", [tensor]), "has become shorter")
        await call("unregister_system_shared_memory", "in")
        await refused(lambda: client.infer("echo", [tensor]), "Unable to find")
        await call("unregister_system_shared_memory")
        status = await call("get_system_shared_memory_status")
        assert not (status if isinstance(status, list) else status.regions), status
        await refused(lambda: client.register_cuda_shared_memory("c", b"0" * 64, 0, 1), "CUDA")
        assert await call("is_server_live")
    finally:
        os.truncate("/dev/shm" + key, 2 * size)
        shm.destroy_shared_memory_region(handle)
    await wait(client.close())
    print("served")

asyncio.run(main())
"""


@pytest.mark.parametrize("kind", ["http", "http.aio", "grpc", "grpc.aio"])
async def test_tritonclient_shares_memory_unmodified(kind: str) -> None:
    async with door_site(regions=OwnRegions()) as served:
        http = kind.startswith("http")
        served.instance.on_invoke = echo_tensor_http if http else echo_tensor_grpc
        port = served.server.port if http else served.grpc_port
        process = await asyncio.create_subprocess_exec(
            str(python_of("client-tritonclient")),
            *("-c", CLIENT.replace("KIND", kind), str(port), secrets.token_hex(8)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        assert output.decode().splitlines()[-1:] == ["served"], output.decode()


async def ask(served: DoorSite, request: bytes) -> tuple[int, Any]:
    client = await served.client()
    status, _, body = await client.ask(request)
    client.close()
    try:
        return status, orjson.loads(body)
    except ValueError:
        return status, body  # an echo of tensors


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


REGISTER = "/v2/systemsharedmemory/region/r/register"


def asked(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


async def test_it_is_off_unless_the_operator_turns_it_on() -> None:
    async with door_site() as served:
        status, answer = await ask(served, post(REGISTER, asked(key="/k", byte_size=1)))
        assert (status, "listen.client_shared_memory" in answer["error"]) == (501, True)
        assert await ask(served, get("/v2/systemsharedmemory/status")) == (200, [])
        one = get("/v2/systemsharedmemory/region/r/status")
        assert (await ask(served, one))[0] == 404
        assert "system_shared_memory" not in (await ask(served, get("/v2")))[1]["extensions"]


async def test_paths_and_methods_are_those_of_the_protocol() -> None:
    async with door_site(regions=OwnRegions()) as served:
        assert "system_shared_memory" in (await ask(served, get("/v2")))[1]["extensions"]
        assert (await ask(served, get(REGISTER)))[0] == 405
        assert (await ask(served, post("/v2/systemsharedmemory/status")))[0] == 405
        assert (await ask(served, post("/v2/systemsharedmemory/register")))[0] == 404
        assert (await ask(served, get("/v2/systemsharedmemory")))[0] == 404
        for cuda in ("region/r/register", "region/r/unregister", "unregister"):
            assert (await ask(served, post(f"/v2/cudasharedmemory/{cuda}")))[0] == 501
        assert await ask(served, get("/v2/cudasharedmemory/status")) == (200, [])
        wrong = ({}, {"key": "/k"}, {"key": 1, "byte_size": 1}, {"key": "/k", "byte_size": True})
        for body in map(json.dumps, wrong):
            assert (await ask(served, post(REGISTER, body.encode())))[0] == 400


async def test_a_tensor_beside_one_in_shared_memory_keeps_its_bytes() -> None:
    """The binary data of a request lie in the order of its inputs, wherever they come from."""
    memory = SharedMemory(create=True, size=8)
    memory.buf[:8] = b"SHARED!!"
    try:
        async with door_site(regions=OwnRegions()) as served:
            body = asked(key=memory.name, byte_size=8)
            assert (await ask(served, post(REGISTER, body)))[0] == 200
            place = {"shared_memory_region": "r", "shared_memory_byte_size": 6}
            head = asked(
                inputs=[
                    {"name": "a", "parameters": {"binary_data_size": 2}},
                    {"name": "b", "parameters": place},
                    {"name": "c", "data": [1]},
                    {"name": "d", "parameters": {"binary_data_size": 3}},
                ]
            )
            length = f"Inference-Header-Content-Length: {len(head)}"
            served.instance.invokes.clear()
            await ask(served, post("/v2/models/echo/infer", head + b"aaddd", length))
            [invoke] = served.instance.invokes
            assert invoke.body.endswith(b"aaSHAREDddd")
            sent = orjson.loads(invoke.body[: -len(b"aaSHAREDddd")])["inputs"]
            assert sent[1] == {"name": "b", "parameters": {"binary_data_size": 6}}
            both = asked(inputs=[{"name": "b", "parameters": place, "data": [1]}])
            status, answer = await ask(served, post("/v2/models/echo/infer", both))
            assert (status, "send one of the two" in answer["error"]) == (400, True)
            odd = [{"name": "b", "parameters": place}, {"name": "o", "parameters": [1]}, 7, "x"]
            assert (await ask(served, post("/v2/models/echo/infer", asked(inputs=odd))))[0] == 200
            word = asked(inputs=[{"name": "b", "data": ["shared_memory_region"]}])
            assert (await ask(served, post("/v2/models/echo/infer", word)))[0] == 200
    finally:
        memory.close()
        memory.unlink()


async def test_shared_tensors_are_within_the_limits_of_bodies() -> None:
    memory = SharedMemory(create=True, size=4000)
    try:
        async with door_site(regions=OwnRegions(), oip_body_bytes_max=3000) as served:
            await ask(served, post(REGISTER, asked(key=memory.name, byte_size=4000)))

            def request(size: int) -> bytes:
                place = {"shared_memory_region": "r", "shared_memory_byte_size": size}
                body = asked(inputs=[{"name": "b", "parameters": place}])
                return post("/v2/models/echo/infer", body)

            for _ in range(3):
                assert (await ask(served, request(2000)))[0] == 200
            assert (await ask(served, request(2000).replace(b"echo", b"none")))[0] == 404
            assert (await ask(served, request(3001)))[0] == 413
            await until(lambda: served.bodies.bytes_taken == 0, "all room is given back")
    finally:
        memory.close()
        memory.unlink()


async def test_only_keys_that_may_operate_register_over_grpc() -> None:
    def grant_of(token: str) -> Grant:
        return Grant("operate" if token == "o" else "invoke")

    async with (
        door_site(regions=OwnRegions(), grant_of=grant_of) as served,
        grpc.aio.insecure_channel(f"127.0.0.1:{served.grpc_port}") as channel,
    ):
        request_class, _ = method_classes("SystemSharedMemoryRegister")
        method = channel.unary_unary(f"/{SERVICE}/SystemSharedMemoryRegister")
        message = request_class(name="r", key="/none", byte_size=1).SerializeToString()
        for token, code in (
            ("i", grpc.StatusCode.PERMISSION_DENIED),
            ("o", grpc.StatusCode.INVALID_ARGUMENT),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await method(message, metadata=(("authorization", f"Bearer {token}"),))
            assert caught.value.code() == code


async def test_an_input_over_grpc_is_in_one_place() -> None:
    async with (
        door_site(regions=OwnRegions()) as served,
        grpc.aio.insecure_channel(f"127.0.0.1:{served.grpc_port}") as channel,
    ):
        request = ModelInferRequest(model_name="echo")
        request.inputs.add(name="x").parameters["shared_memory_region"].string_param = "r"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary(f"/{SERVICE}/ModelInfer")(request.SerializeToString())
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert "shared_memory_byte_size" in (caught.value.details() or "")


@pytest.mark.parametrize(
    ("peer", "near"),
    [
        ("127.0.0.1", True), ("::1", True), ("::ffff:127.0.0.1", True), ("", True),
        ("ipv4:127.0.0.1:99", True), ("ipv6:%5B::1%5D:99", True), ("unix:/x", True),
        ("192.0.2.7", False), ("ipv4:192.0.2.7:1", False), ("ipv6:%5B2001:db8::1%5D:9", False),
    ],
)  # fmt: skip
def test_callers_of_other_machines_have_no_regions(peer: str, near: bool) -> None:
    assert is_near(peer) is near
