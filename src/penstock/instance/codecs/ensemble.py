"""An ensemble's requests and answers: tensors at both ends, as with any tensor model.

The answer comes as events with some of its tensors each, as the steps make them. It is written when
all tensors are there. Knows no step.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.instance.codecs.base import JSON, CodecModel, Encode, Tensors, check_arrays
from penstock.instance.codecs.generation.calls import Event, GeneratedAnswer, WholeTensors
from penstock.instance.codecs.select import decode_tensors
from penstock.wire.frames import RequestMeta


@dataclass(slots=True)
class EnsembleCall:
    """One request, whichever front door or model it came from."""

    request: Tensors
    writer: TensorsWriter


class TensorsWriter(WholeTensors):
    """Collects tensors, and writes them in the form that the request asks for."""

    __slots__ = ("_encode", "_tensors_made", "stream")

    def __init__(self, encode: Encode, made: Tensors) -> None:
        """`made`: outputs that exist already, because they are inputs, too."""
        self.stream = False
        self.content_type = JSON
        self.json_header_bytes = None
        self._encode = encode
        self._tensors_made = made

    @property
    def size_bytes(self) -> int:
        return sum(array.nbytes for array in self._tensors_made.values())

    def gather(self, event: Event) -> None:
        if event.get("k") == "tensors":
            self._tensors_made.update(event["d"])

    def chunk(self, event: Event, answer: GeneratedAnswer) -> bytes:
        raise AssertionError("an ensemble has one answer")

    def whole(self, answer: GeneratedAnswer) -> bytes:
        return self._tensors(self._encode(self._tensors_made))


def decode(model: CodecModel, meta: RequestMeta, body: bytes) -> EnsembleCall:
    """Decodes a body. Raises ModelError with the status of the answer."""
    decoded = decode_tensors(model, meta, body)
    return _call(model, decoded.tensors, decoded.encode)


def taken(model: CodecModel, tensors: Tensors, encode: Encode) -> EnsembleCall:
    """A call with arrays that another model of the artifact sends. Raises ModelError."""
    check_arrays(model, tensors)
    return _call(model, tensors, encode)


def _call(model: CodecModel, tensors: Tensors, encode: Encode) -> EnsembleCall:
    outputs = {spec.name for spec in model.outputs}
    passed_on = {name: array for name, array in tensors.items() if name in outputs}
    return EnsembleCall(tensors, TensorsWriter(encode, passed_on))
