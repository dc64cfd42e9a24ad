"""Text models: texts or pairs of texts in; labels with scores, numbers, or vectors, out.

A text is a string, or an object `{"text": "...", "text_pair": "..."}` where a model compares two.
Bodies: `{"inputs": text | [text, ...], "parameters": {...}}`, `{"instances": [...]}`, a bare JSON
list of texts, text/plain (one text), text/csv (a text or a pair a line), or BYTES tensors `text`
and `text_pair` over the Open Inference Protocol. Answers follow the Hugging Face toolkit:

* one result per text: a list for a list, a list of one for a string, the result for an object;
* a result is the best `{"label", "score"}`, a regression's `{"label", "score"}`, or a vector;
* with `parameters.top_k` (a number, or null for all) it is the list of the best k, best first,
  which a string gets without the list around it;
* a model of several heads answers `{"head": result, ...}` for each text, with the heads that
  `parameters.heads` (names) asks for, else with all.

Over the Open Inference Protocol the outputs are those of `text_heads.output_specs`. There `heads`
may be names parted by commas, as parameters are no lists, or follows from the outputs asked for.
"""

from __future__ import annotations

import copy
import csv
import dataclasses
import io
from collections.abc import Sequence
from typing import Any, Final, Self

from penstock.artifacts.description.description import Head, TensorSpec
from penstock.instance.codecs import oip_grpc, oip_json
from penstock.instance.codecs.base import CodecModel, Decoded, Encode, Tensors, bad
from penstock.instance.codecs.text_bodies import (
    JSON_META,
    Forms,
    check_count,
    inputs_and_parameters,
    read,
)
from penstock.instance.codecs.text_heads import TopK, as_json, as_tensors, output_specs
from penstock.instance.codecs.values import dump_json, texts_of
from penstock.wire.frames import RequestMeta

TEXTS_MAX: Final = 4096  #: most texts in one request
_TEXT: Final = TensorSpec(name="text", dtype="BYTES", shape=(-1,))
_TEXT_PAIR: Final = TensorSpec(name="text_pair", dtype="BYTES", shape=(-1,))
#: Whether a task compares two texts; the other tasks read one.
_PAIRS: Final = {"pair-classification": "always", "text-regression": "may", "multi-head": "may"}
_PAIR_HINT: Final = '{"inputs": {"text": "red cup, 2 pieces", "text_pair": "two red cups"}}'

#: One text, or two to compare.
Text = str | tuple[str, str]


def input_specs(task: str) -> tuple[TensorSpec, ...]:
    """The inputs over the Open Inference Protocol; `text_pair` may be left out unless the task is
    pair-classification."""
    return (_TEXT, _TEXT_PAIR) if task in _PAIRS else (_TEXT,)


class TextModel:
    """A text model as bodies are checked against it."""

    __slots__ = ("_alone", "_names", "_paired", "heads", "name", "pairs", "scoring")

    def __init__(self, model: CodecModel, task: str, heads: Sequence[Head]) -> None:
        self.name = model.name  #: the endpoint's, or that under which it was asked
        self.heads = tuple(heads)  #: classification and regression heads have their labels
        self.pairs = _PAIRS.get(task, "never")  #: always | may | never
        one = [head for head in heads if head.task != "embedding" and len(head.labels) == 1]
        #: The one head with one number for two texts; None: there is none, or several
        self.scoring = one[0] if self.pairs != "never" and len(one) == 1 else None
        self._names = tuple(head.name for head in heads if head.name)
        outputs = output_specs(heads)
        self._alone = dataclasses.replace(model, inputs=(_TEXT,), outputs=outputs)
        self._paired = dataclasses.replace(model, inputs=(_TEXT, _TEXT_PAIR), outputs=outputs)

    def named(self, name: str) -> Self:
        if name == self.name:
            return self
        model = copy.copy(self)
        model.name = name
        model._alone = self._alone.named(name)
        model._paired = self._paired.named(name)
        return model

    def codec(self, names: set[Any], heads: tuple[Head, ...]) -> CodecModel:
        """The tensors of a request with inputs of these names, which asks for these heads."""
        wants_pair = self.pairs == "always" or (self.pairs == "may" and "text_pair" in names)
        model = self._paired if wants_pair else self._alone
        if len(heads) == len(self.heads):
            return model
        return dataclasses.replace(model, outputs=output_specs(heads))

    def asked(self, value: Any) -> tuple[Head, ...]:
        """The heads that `parameters.heads` names, in the model's order. Raises ModelError."""
        if value is None:
            return self.heads
        if not self._names:
            raise bad("parameters.heads is for models of several heads, this one has one")
        names = value.split(",") if isinstance(value, str) else value
        if not isinstance(names, list) or not names:
            raise bad(f"heads is a list of names, of {', '.join(self._names)}")
        wanted = {name.strip() for name in names if isinstance(name, str)}
        unknown = [name for name in names if not isinstance(name, str)]
        unknown += sorted(wanted.difference(self._names))
        if unknown:
            known = ", ".join(self._names)
            raise bad(f"head {str(unknown[0])[:80]!r} is not one of the model's: {known}")
        return tuple(head for head in self.heads if head.name in wanted)

    def of_outputs(self, outputs: set[str]) -> tuple[Head, ...]:
        """The heads of the requested outputs; all heads if no output is known."""
        if not outputs or not self._names:
            return self.heads
        names = {name.rpartition(".")[0] for name in outputs}
        return tuple(head for head in self.heads if head.name in names) or self.heads


class TextDecoded(Decoded):
    """Texts of one request; its `encode` takes the tensors of its heads (see `text_heads`)."""

    __slots__ = ("as_json", "heads", "texts")

    def __init__(self, texts: list[Text], heads: tuple[Head, ...], encode: Encode) -> None:
        super().__init__({}, len(texts), encode)
        self.texts = texts
        self.heads = heads
        #: For a fast path, what `encode` writes: (one result without a list around it, number of
        #: labels of each). None: it is not that simple, and `encode` must be called.
        self.as_json: tuple[bool, TopK] | None = None


def decode_texts(model: TextModel, meta: RequestMeta, body: bytes) -> TextDecoded:
    """Raises ModelError with the status that the model answers."""
    return read(_FORMS, model, meta, body)


def _from_plain(model: TextModel, text: str) -> TextDecoded:
    return _answering(model, [text], model.heads, form="string", top_k=0)


def _from_csv(model: TextModel, lines: str) -> TextDecoded:
    return _answering(model, _csv_texts(model, lines), model.heads, form="list", top_k=0)


def _csv_texts(model: TextModel, lines: str) -> list[Text]:
    texts: list[Text] = []
    for row in csv.reader(io.StringIO(lines)):
        if len(row) == 1:
            texts.append(row[0])
        elif len(row) == 2 and model.pairs != "never":
            texts.append((row[0], row[1]))
        elif row:
            what = "one text" if model.pairs == "never" else "a text, or two that are compared"
            raise bad(f"each line of the CSV is {what}; quote texts that hold commas")
    return texts


def from_json(model: TextModel, parsed: Any) -> TextDecoded:
    """Decodes JSON that is not of the Open Inference Protocol."""
    inputs, parameters = inputs_and_parameters(parsed)
    top_k = _top_k(parameters.get("top_k", 0))
    heads = model.asked(parameters.get("heads"))
    if isinstance(inputs, list):
        texts = [text if isinstance(text, str) else _pair(model, text) for text in inputs]
        return _answering(model, texts, heads, form="list", top_k=top_k)
    if isinstance(inputs, str):
        return _answering(model, [inputs], heads, form="string", top_k=top_k)
    return _answering(model, [_pair(model, inputs)], heads, form="object", top_k=top_k)


def _pair(model: TextModel, value: Any) -> Text:
    if not isinstance(value, dict) or not isinstance(value.get("text"), str):
        hint = _PAIR_HINT if model.pairs == "always" else '{"inputs": "where is my order"}'
        raise bad('"inputs" must be a text or a list of texts', hint=hint)
    if not value.keys() <= {"text", "text_pair"}:
        extra = next(key for key in value if key not in ("text", "text_pair"))
        raise bad(f"{str(extra)[:80]!r} is not a key of a text: they are text and text_pair")
    other = value.get("text_pair")
    if other is None:
        return str(value["text"])
    if not isinstance(other, str):
        raise bad("text_pair is not a text")
    if model.pairs == "never":
        raise bad(
            "text_pair came, and this model reads one text at a time",
            hint="A model that compares two texts is deployed as task pair-classification, "
            "text-regression or multi-head.",
        )
    return value["text"], other


def _top_k(value: Any) -> TopK:
    """0: not given; None: all."""
    if value is None or (type(value) is int and value >= 0):
        return value
    raise bad(f"top_k is a number of labels or null, {str(value)[:40]} came")


def _answering(
    model: TextModel, texts: list[Text], heads: tuple[Head, ...], *, form: str, top_k: TopK
) -> TextDecoded:
    """`form`: of the inputs: string, object or list."""
    _check(model, texts)
    # The toolkit answers a string with a list of one; the list of its best k is a list already.
    bare = form == "object"
    if form == "string" and top_k != 0 and not heads[0].name:
        bare = heads[0].task == "classification"

    def encode(outputs: Tensors) -> tuple[bytes, bytes]:
        answer = as_json(heads, outputs, top_k)
        return dump_json(answer[0] if bare else answer), JSON_META

    decoded = TextDecoded(texts, heads, encode)
    decoded.as_json = (bare, top_k)
    return decoded


def _check(model: TextModel, texts: Sequence[Text]) -> None:
    check_count(len(texts), TEXTS_MAX)
    if model.pairs == "always" and any(isinstance(text, str) for text in texts):
        raise bad("this model compares two texts: text_pair is missing", hint=_PAIR_HINT)


def _from_oip(model: TextModel, parsed: Any, binary: memoryview, sagemaker: bool) -> TextDecoded:
    parameters = parsed.get("parameters") if isinstance(parsed, dict) else None
    top_k: TopK = 0
    heads = model.heads
    names: set[Any] = set()
    if isinstance(parsed, dict):
        asked = None
        if isinstance(parameters, dict):
            top_k = _top_k(parameters.get("top_k", 0))
            asked = parameters.get("heads")
            # It may be a list, which no parameter of the protocol is.
            others = {name: value for name, value in parameters.items() if name != "heads"}
            parsed = {**parsed, "parameters": others}
        heads = model.asked(asked) if asked is not None else model.of_outputs(_outputs_of(parsed))
        for entry in parsed["inputs"] if isinstance(parsed.get("inputs"), list) else ():
            if isinstance(entry, dict):
                names.add(str(entry.get("name")))
    codec = model.codec(names, heads)
    decoded = oip_json.decode_parsed(codec, parsed, binary, sagemaker=sagemaker)
    return _over_tensors(model, decoded, heads, top_k)


def _outputs_of(parsed: dict[str, Any]) -> set[str]:
    outputs = parsed.get("outputs")
    if not isinstance(outputs, list):
        return set()
    return {str(entry.get("name")) for entry in outputs if isinstance(entry, dict)}


def _from_grpc(model: TextModel, request: Any) -> TextDecoded:
    top_k: TopK = 0
    if "top_k" in request.parameters:
        top_k = _top_k(request.parameters["top_k"].int64_param)
    if "heads" in request.parameters:
        heads = model.asked(request.parameters["heads"].string_param)
    else:
        heads = model.of_outputs({entry.name for entry in request.outputs})
    codec = model.codec({entry.name for entry in request.inputs}, heads)
    return _over_tensors(model, oip_grpc.decode_parsed(codec, request), heads, top_k)


def _over_tensors(
    model: TextModel, decoded: Decoded, heads: tuple[Head, ...], top_k: TopK
) -> TextDecoded:
    texts: list[Text] = list(texts_of(decoded.tensors["text"], "text"))
    pairs = decoded.tensors.get("text_pair")
    if pairs is not None:
        texts = list(zip(texts, texts_of(pairs, "text_pair"), strict=True))  # type: ignore[arg-type]
    _check(model, texts)
    inner = decoded.encode

    def encode(outputs: Tensors) -> tuple[bytes, bytes]:
        return inner(as_tensors(heads, outputs, top_k))

    return TextDecoded(texts, heads, encode)


_FORMS: Final = Forms(
    json=from_json, plain=_from_plain, oip=_from_oip, grpc=_from_grpc, csv=_from_csv
)
