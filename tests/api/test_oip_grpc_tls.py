"""gRPC over TLS: the same calls, and a port that speaks nothing else."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import grpc
import pytest
from tests.kit.certificates import self_signed
from tests.kit.doors import door_site
from tests.kit.gateway import run

from penstock.wire.oip_messages import SERVICE, ModelInferRequest, ModelStreamInferResponse

pytestmark = pytest.mark.loop(by=run)

UNBOUNDED = [("grpc.max_receive_message_length", -1)]


async def test_calls_of_any_size_pass_over_tls(tmp_path: Path) -> None:
    """Eight large ones at once do not fit into the socket: the rest leaves as the client reads."""
    cert, key = self_signed(tmp_path)
    trusted = grpc.ssl_channel_credentials(cert.read_bytes())
    async with door_site(grpc_tls=(cert, key)) as served:
        target = f"localhost:{served.grpc_port}"
        async with grpc.aio.secure_channel(target, trusted, options=UNBOUNDED) as channel:
            call = channel.unary_unary(f"/{SERVICE}/ModelInfer")
            for size, at_once in ((1, 1), (4 << 20, 8)):
                message = ModelInferRequest(model_name="echo", id="7" * size).SerializeToString()
                answers = await asyncio.gather(*(call(message) for _ in range(at_once)))
                assert answers == [message] * at_once
            stream = channel.stream_stream(f"/{SERVICE}/ModelStreamInfer")()
            for ident in "abc":
                await stream.write(
                    ModelInferRequest(model_name="echo", id=ident).SerializeToString()
                )
                answer = ModelStreamInferResponse.FromString(await stream.read())
                assert answer.infer_response.id == ident
            await stream.done_writing()
            assert await stream.read() is grpc.aio.EOF


async def test_the_protocol_is_agreed_upon_in_the_handshake(tmp_path: Path) -> None:
    cert, key = self_signed(tmp_path)
    context = ssl.create_default_context(cafile=str(cert))
    context.set_alpn_protocols(["http/1.1", "h2"])
    async with door_site(grpc_tls=(cert, key)) as served:
        _, writer = await asyncio.open_connection("localhost", served.grpc_port, ssl=context)
        assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
        writer.close()


async def test_a_client_without_tls_is_cut_off(tmp_path: Path) -> None:
    async with door_site(grpc_tls=self_signed(tmp_path)) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.grpc_port)
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        async with asyncio.timeout(10):
            assert b"SETTINGS" not in await reader.read()
        writer.close()
