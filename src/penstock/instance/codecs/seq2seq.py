"""Sequence-to-sequence models: texts and generation parameters in, texts out.

Artifacts name their task as Hugging Face does, `text2text-generation`; all names here are
`seq2seq`.

Bodies: `{"inputs": "text" | ["text", ...], "parameters": {...}}`, text/plain (one text), or a BYTES
tensor `text` over the Open Inference Protocol. Answers follow the Hugging Face toolkit: a list with
one `{"generated_text": "..."}` per text; over the Open Inference Protocol a BYTES tensor
`generated_text`. `runtimes.seq2seq.request` defines the parameters; over the Open Inference
Protocol they are request parameters, where names that are not ours belong to the protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.artifacts.description.description import TensorSpec
from penstock.instance.codecs import oip_grpc, oip_json
from penstock.instance.codecs.base import CodecModel, Decoded, Encode, Tensors, bad
from penstock.instance.codecs.text_bodies import (
    JSON_META,
    Forms,
    check_count,
    inputs_and_parameters,
    read,
)
from penstock.instance.codecs.values import dump_json, texts_of
from penstock.runtimes.seq2seq.request import PARAMETERS
from penstock.wire.frames import RequestMeta

INPUTS: Final = (TensorSpec(name="text", dtype="BYTES", shape=(-1,)),)
OUTPUTS: Final = (TensorSpec(name="generated_text", dtype="BYTES", shape=(-1,)),)
TEXTS_MAX: Final = 1024  #: most texts in one request
_EXAMPLE: Final = '{"inputs": "wireles hedphones", "parameters": {"max_new_tokens": 20}}'


class Seq2SeqDecoded(Decoded):
    """Texts of one request; its `encode` takes `generated_text`, an array of UTF-8 bytes."""

    __slots__ = ("parameters", "texts")

    def __init__(self, texts: list[str], parameters: Mapping[str, Any], encode: Encode) -> None:
        super().__init__({}, len(texts), encode)
        self.texts = texts
        self.parameters = parameters


def decode_seq2seq(model: CodecModel, meta: RequestMeta, body: bytes) -> Seq2SeqDecoded:
    """Does not check parameters. Raises ModelError with the status that the model answers."""
    return read(_FORMS, model, meta, body)


def _from_json(_model: CodecModel, parsed: Any) -> Seq2SeqDecoded:
    inputs, parameters = inputs_and_parameters(parsed, hint=_EXAMPLE)
    texts = [inputs] if isinstance(inputs, str) else inputs
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise bad('"inputs" must be a text or a list of texts', hint=_EXAMPLE)
    return _checked(texts, parameters, _as_json)


def _from_plain(_model: CodecModel, text: str) -> Seq2SeqDecoded:
    return _checked([text], {}, _as_json)


def _as_json(outputs: Tensors) -> tuple[bytes, bytes]:
    texts = [{"generated_text": text.decode()} for text in outputs["generated_text"].tolist()]
    return dump_json(texts), JSON_META


def _checked(texts: list[str], parameters: Mapping[str, Any], encode: Encode) -> Seq2SeqDecoded:
    check_count(len(texts), TEXTS_MAX, hint=_EXAMPLE)
    return Seq2SeqDecoded(texts, parameters, encode)


def _from_oip(
    model: CodecModel, parsed: Any, binary: memoryview, sagemaker: bool
) -> Seq2SeqDecoded:
    given = parsed.get("parameters") if isinstance(parsed, dict) else None
    parameters: dict[str, Any] = {}
    if isinstance(given, dict):
        parameters = {name: given[name] for name in PARAMETERS if name in given}
    decoded = oip_json.decode_parsed(model, parsed, binary, sagemaker=sagemaker)
    return _over_tensors(decoded, parameters)


def _from_grpc(model: CodecModel, request: Any) -> Seq2SeqDecoded:
    parameters: dict[str, Any] = {}
    for name in PARAMETERS:
        if name in request.parameters:
            value = request.parameters[name]
            chosen = value.WhichOneof("parameter_choice")
            parameters[name] = getattr(value, chosen) if chosen else None
    return _over_tensors(oip_grpc.decode_parsed(model, request), parameters)


def _over_tensors(decoded: Decoded, parameters: Mapping[str, Any]) -> Seq2SeqDecoded:
    texts = texts_of(decoded.tensors["text"], "text")
    return _checked(texts, parameters, decoded.encode)


_FORMS: Final = Forms(json=_from_json, plain=_from_plain, oip=_from_oip, grpc=_from_grpc)
