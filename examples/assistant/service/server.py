"""The shop's catalogue as a service of its own: gRPC for details, HTTP for pictures and pages.

    python examples/assistant/service/server.py --port 9090 --http-port 9091 --delay-s 0.5

Prints `catalogue ready: grpc HOST:PORT http URL` once it serves. `--delay-s` makes every gRPC
answer late, as a service under load is; ending the process shows what an assistant does without it.
Listens on loopback only. The messages are those of `catalogue.proto`, by its descriptors, which the
pipeline's artifact carries (see README).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

EXAMPLE = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(EXAMPLE))

from catalogue import make_catalogue  # noqa: E402 - the example is a folder, not a package
from pages import serve  # noqa: E402
from shelf import Shelf  # noqa: E402

DESCRIPTORS = EXAMPLE / "pipeline" / "catalogue.binpb"
SERVICE = "shop.Catalogue"
_SOLD_AT_ONCE = 40


def descriptors() -> Any:
    """The service as `catalogue.binpb` declares it."""
    files = descriptor_pb2.FileDescriptorSet.FromString(DESCRIPTORS.read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return pool.FindServiceByName(SERVICE)


class Catalogue:
    """The service's methods, each as its messages want it."""

    def __init__(self, shelf: Shelf, service: Any, http_url: str, delay_s: float) -> None:
        self._shelf = shelf
        self._http_url = http_url
        self._delay_s = delay_s
        methods = service.methods_by_name
        self._product: Any = message_factory.GetMessageClass(methods["GetProduct"].output_type)
        self._health: Any = message_factory.GetMessageClass(methods["Health"].output_type)

    async def get_product(self, request: Any, context: Any) -> Any:
        await asyncio.sleep(self._delay_s)
        return await self._found(request.id, context)

    async def get_products(self, request: Any, context: Any) -> AsyncIterator[Any]:
        for ident in request.ids:
            await asyncio.sleep(self._delay_s)
            yield await self._found(ident, context)

    async def update(self, request: Any, context: Any) -> Any:
        price = request.price_cents if request.HasField("price_cents") else None
        stock = request.stock if request.HasField("stock") else None
        try:
            self._shelf.update(request.id, price_cents=price, stock=stock)
        except ValueError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except KeyError:
            pass  # told by what follows
        return await self._found(request.id, context)

    async def health(self, request: Any, context: Any) -> Any:
        return self._health(products=len(self._shelf.products), delay_s=self._delay_s)

    async def _found(self, ident: str, context: Any) -> Any:
        try:
            fields = self._shelf.fields(ident)
        except KeyError:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no product {ident!r}")
        return self._product(
            **fields,
            image_url=f"{self._http_url}/images/{ident}.svg",
            url=f"{self._http_url}/products/{ident}",
        )


def handlers(catalogue: Catalogue) -> Any:
    """gRPC's handlers, with messages made of descriptors in place of generated code."""
    service = descriptors()
    made = {}
    for name, call in (
        ("GetProduct", catalogue.get_product),
        ("GetProducts", catalogue.get_products),
        ("Update", catalogue.update),
        ("Health", catalogue.health),
    ):
        method = service.methods_by_name[name]
        kind = (
            grpc.unary_stream_rpc_method_handler
            if method.server_streaming
            else grpc.unary_unary_rpc_method_handler
        )
        made[name] = kind(
            call,
            request_deserializer=message_factory.GetMessageClass(method.input_type).FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )
    return grpc.method_handlers_generic_handler(SERVICE, made)


async def run(port: int, http_port: int, *, delay_s: float, sales_s: float) -> None:
    shelf = Shelf(make_catalogue())
    pages = serve(shelf, http_port)
    threading.Thread(target=pages.serve_forever, daemon=True).start()
    http_url = f"http://127.0.0.1:{pages.server_address[1]}"
    server = grpc.aio.server()
    catalogue = Catalogue(shelf, descriptors(), http_url, delay_s)
    server.add_generic_rpc_handlers((handlers(catalogue),))
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    print(f"catalogue ready: grpc 127.0.0.1:{port} http {http_url}", flush=True)
    while not stop.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), sales_s)
        shelf.sell(_SOLD_AT_ONCE)
    pages.shutdown()
    await server.stop(0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=9090, help="gRPC; 0 = any free port")
    parser.add_argument("--http-port", type=int, default=0, help="pictures and pages")
    parser.add_argument("--delay-s", type=float, default=0.0, help="of every gRPC answer")
    parser.add_argument("--sales-s", type=float, default=20.0, help="how often stock is sold")
    asked = parser.parse_args()
    asyncio.run(run(asked.port, asked.http_port, delay_s=asked.delay_s, sales_s=asked.sales_s))


if __name__ == "__main__":
    main()
