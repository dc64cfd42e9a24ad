"""Tensors in shared memory: into a request before it goes to an instance, out of its answer after.

A request with such tensors becomes one that carries them, in the protocol's binary form; where an
output shall lie in a region, the answer's bytes are written there and the answer says so. The
forms are those of Triton's extension: `shared_memory_region`, `shared_memory_offset` and
`shared_memory_byte_size` as parameters of an input or a requested output.

What is no request at all is passed on as it is: the codec of the instance says what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import orjson
from google.protobuf.message import DecodeError

from penstock.api.oip.http_extensions import peer_of
from penstock.api.oip.shared_memory import SharedMemoryDoor
from penstock.core.request.body_budget import BodyBudget
from penstock.core.request.shared_regions import RegionRange, SharedRegion, check_range
from penstock.errors import CallerError, NotNowError
from penstock.gateway import shared_memory
from penstock.gateway.http.call import Call
from penstock.wire import plain_json
from penstock.wire.frames import Reply, decode_reply_meta, encode_reply_meta
from penstock.wire.oip_messages import ModelInferRequest, ModelInferResponse

MARK: Final = b"shared_memory_region"
REGION, OFFSET, BYTE_SIZE = (f"shared_memory_{part}" for part in ("region", "offset", "byte_size"))
_KEYS: Final = (REGION, OFFSET, BYTE_SIZE)


class SharedOutputs:
    """The places of a request's outputs, and the room that its inputs take in the budget."""

    def __init__(
        self, budget: BodyBudget, regions: Mapping[str, SharedRegion], bytes_max: int
    ) -> None:
        self._budget = budget
        self._regions = regions
        self._bytes_left = bytes_max
        self._bytes_held = 0
        self.places: dict[str, RegionRange] = {}  #: output -> where it shall lie

    def leave(self) -> None:
        """The request is over: gives the room back. Idempotent."""
        self._budget.give(self._bytes_held)
        self._bytes_held = 0

    def read(self, place: RegionRange) -> bytearray:
        """The bytes of an input. Raises PenstockError."""
        if place.byte_size > self._bytes_left:
            raise CallerError(
                "body-too-large",
                "The tensors in shared memory are larger than a body may be"
                " (limits.oip_body_bytes_max).",
                status=413,
            )
        if not self._budget.take(place.byte_size):
            raise NotNowError(
                "bodies-too-large",
                "The bodies of all requests are as large as the server may hold.",
                hint="Try again shortly.",
                retry_after_s=1.0,
            )
        self._bytes_left -= place.byte_size
        self._bytes_held += place.byte_size
        return shared_memory.read(self._regions[place.region], place)

    def want(self, output: str, place: RegionRange) -> None:
        """Raises CallerError for a place outside its region: before the model runs."""
        region = self._regions[place.region]
        what = f"region '{region.name}'"
        check_range(place.offset, place.byte_size, within=region.byte_size, what=what)
        self.places[output] = place

    def write(self, output: str, data: bytes | memoryview) -> RegionRange:
        """The output's place with its actual size. Raises CallerError."""
        place = self.places[output]
        if len(data) > place.byte_size:
            raise CallerError(
                "shared-memory-small",
                f"shared memory of output {output!r} has {place.byte_size} bytes, and the result"
                f" {len(data)}",
                hint="Give the output a larger place.",
            )
        shared_memory.write(self._regions[place.region], place, data)
        return RegionRange(place.region, place.offset, len(data))


class SharedTensors:
    """Moves tensors for one door."""

    def __init__(self, door: SharedMemoryDoor, budget: BodyBudget, bytes_max: int) -> None:
        self._door = door
        self._budget = budget
        self._bytes_max = bytes_max

    async def json_in(
        self, call: Call, length: bytes | None
    ) -> tuple[bytes, bytes | None, SharedOutputs]:
        """(body, length of its JSON, outputs) of a request over HTTP. Raises PenstockError."""
        body = call.body
        size = int(length) if length is not None and length[:11].isdigit() else len(body)
        try:
            head = plain_json.loads(body[:size])
        except ValueError:
            head = None
        names = regions_in_json(head)
        shared = await self._shared(peer_of(call), names)
        if not names:
            return body, length, shared
        try:
            body, size = json_in(head, memoryview(body)[size:], shared)
        except BaseException:
            shared.leave()
            raise
        return body, b"%d" % size, shared

    async def message_in(self, request: bytes, peer: str) -> tuple[bytes, SharedOutputs]:
        """(message, outputs) of a request over gRPC. Raises PenstockError."""
        try:
            message = ModelInferRequest.FromString(request)
        except DecodeError as cause:
            raise CallerError("bad-protobuf", f"The message can't be read: {cause}") from cause
        names = regions_in_message(message)
        shared = await self._shared(peer, names)
        if not names:
            return request, shared
        try:
            return message_in(message, shared), shared
        except BaseException:
            shared.leave()
            raise

    async def _shared(self, peer: str, names: set[str]) -> SharedOutputs:
        regions = await self._door.regions_for(peer).find(names) if names else {}
        return SharedOutputs(self._budget, regions, self._bytes_max)


def leaving(then: Callable[[Call], None]) -> Callable[[Call], None]:
    """`then`, after the room of the call's shared tensors is given back."""

    def leave(call: Call) -> None:
        if isinstance(call.context, SharedOutputs):
            call.context.leave()
        then(call)

    return leave


def regions_in_json(head: Any) -> set[str]:
    """Names of the regions that a request names. Raises CallerError for malformed parameters."""
    return {place.region for _, place in _places(head)}


def _places(head: Any) -> Iterator[tuple[dict[str, Any], RegionRange]]:
    """The inputs and outputs of a request in shared memory."""
    for side in ("inputs", "outputs"):
        for entry in _entries(head, side):
            place = _place(entry)
            if place is not None:
                yield entry, place


def _entries(head: Any, side: str) -> list[Any]:
    entries = head.get(side) if isinstance(head, dict) else None
    return entries if isinstance(entries, list) else []


def _place(entry: Any) -> RegionRange | None:
    parameters = entry.get("parameters") if isinstance(entry, dict) else None
    if not isinstance(parameters, dict) or REGION not in parameters:
        return None
    return place_of(parameters, str(entry.get("name"))[:80])


def place_of(parameters: Mapping[str, Any], tensor: str) -> RegionRange:
    """Raises CallerError."""
    region, offset = parameters.get(REGION), parameters.get(OFFSET, 0)
    size = parameters.get(BYTE_SIZE)
    if not isinstance(region, str) or type(offset) is not int or type(size) is not int:
        raise CallerError(
            "shared-memory-parameters",
            f"tensor {tensor!r} needs {REGION} (a string), {BYTE_SIZE} and {OFFSET} (integers)",
        )
    return RegionRange(region, offset, size)


def json_in(head: dict[str, Any], tail: memoryview, shared: SharedOutputs) -> tuple[bytes, int]:
    """(body, length of its JSON) with all inputs in the body. Raises PenstockError."""
    parts: list[bytearray | memoryview] = []
    at = 0
    for entry in _entries(head, "inputs"):
        place = _place(entry)
        if place is not None:
            _only_shared(entry)
            data = shared.read(place)
            entry["parameters"] = _without(entry["parameters"]) | {"binary_data_size": len(data)}
            parts.append(data)
            continue
        size = _binary_bytes(entry)
        if size > 0:
            parts.append(tail[at : at + size])
            at += size
    parts.append(tail[at:])
    for entry in _entries(head, "outputs"):
        place = _place(entry)
        if place is not None:
            shared.want(str(entry.get("name")), place)
            entry["parameters"] = _without(entry["parameters"]) | {"binary_data": True}
    written = orjson.dumps(head)
    return b"".join((written, *parts)), len(written)


def _binary_bytes(entry: Any) -> int:
    """Bytes of an input in the request's binary data; 0 for one that has none there."""
    parameters = entry.get("parameters") if isinstance(entry, dict) else None
    size = parameters.get("binary_data_size") if isinstance(parameters, dict) else None
    return size if type(size) is int else 0


def _only_shared(entry: dict[str, Any]) -> None:
    if "data" in entry or "binary_data_size" in entry["parameters"]:
        raise CallerError(
            "shared-memory-parameters",
            f"input {str(entry.get('name'))[:80]!r} is in shared memory and in the request: send"
            " one of the two",
        )


def _without(parameters: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in parameters.items() if name not in _KEYS}


def json_out(reply: Reply, shared: SharedOutputs) -> Reply:
    """The answer without the tensors that were written to regions. Raises PenstockError."""
    meta = decode_reply_meta(reply.meta)
    if not shared.places or meta.json_header_bytes is None:
        return reply
    body = memoryview(reply.body)
    head, tail = plain_json.loads(body[: meta.json_header_bytes]), body[meta.json_header_bytes :]
    kept: list[bytes | memoryview] = []
    at = 0
    for entry in head["outputs"]:
        size = (entry.get("parameters") or {}).get("binary_data_size")
        if size is None:
            continue
        data, at = tail[at : at + size], at + size
        if entry["name"] in shared.places:
            place = shared.write(entry["name"], data)
            entry["parameters"] = _parameters(place)
        else:
            kept.append(data)
    written = orjson.dumps(head)
    content_type = meta.content_type if kept else "application/json"
    length = len(written) if kept else None
    changed = meta._replace(content_type=content_type, json_header_bytes=length)
    return reply._replace(meta=encode_reply_meta(changed), body=b"".join((written, *kept)))


def _parameters(place: RegionRange) -> dict[str, Any]:
    offset = {OFFSET: place.offset} if place.offset else {}
    return {REGION: place.region} | offset | {BYTE_SIZE: place.byte_size}


# gRPC


def regions_in_message(request: Any) -> set[str]:
    """As `regions_in_json`."""
    return {
        _message_place(entry).region
        for entry in (*request.inputs, *request.outputs)
        if REGION in entry.parameters
    }


def _message_place(entry: Any) -> RegionRange:
    given = {
        key: getattr(entry.parameters[key], entry.parameters[key].WhichOneof("parameter_choice"))
        for key in _KEYS
        if key in entry.parameters and entry.parameters[key].WhichOneof("parameter_choice")
    }
    return place_of(given, str(entry.name)[:80])


def message_in(request: Any, shared: SharedOutputs) -> bytes:
    """The message with all inputs in it. Raises PenstockError."""
    raw = iter(list(request.raw_input_contents))
    contents = []
    for entry in request.inputs:
        if REGION not in entry.parameters:
            data = next(raw, None)
            if data is None:
                raise CallerError(
                    "shared-memory-parameters",
                    f"input {entry.name[:80]!r} is neither in shared memory nor in"
                    " raw_input_contents: beside inputs in shared memory, send it there",
                )
            contents.append(data)
            continue
        contents.append(bytes(shared.read(_message_place(entry))))
        _clear(entry)
    contents += raw
    del request.raw_input_contents[:]
    request.raw_input_contents.extend(contents)
    for entry in request.outputs:
        if REGION in entry.parameters:
            shared.want(entry.name, _message_place(entry))
            _clear(entry)
    return bytes(request.SerializeToString())


def _clear(entry: Any) -> None:
    for key in _KEYS:
        entry.parameters.pop(key, None)


def message_out(body: bytes, shared: SharedOutputs) -> bytes:
    """As `json_out`. A tensor in a region keeps an empty place among the raw contents, since
    clients find a tensor's contents by its number."""
    if not shared.places:
        return body
    response = ModelInferResponse.FromString(body)
    for at, entry in enumerate(response.outputs):
        if entry.name not in shared.places:
            continue
        place = shared.write(entry.name, response.raw_output_contents[at])
        response.raw_output_contents[at] = b""
        for key, value in _parameters(place).items():
            if isinstance(value, str):
                entry.parameters[key].string_param = value
            else:
                entry.parameters[key].int64_param = value
    return bytes(response.SerializeToString())
