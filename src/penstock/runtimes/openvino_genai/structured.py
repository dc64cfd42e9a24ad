"""Constrained output of OpenVINO GenAI: its vocabulary, and checks of grammars.

GenAI enforces a grammar through xgrammar, which needs the bytes of every token. GenAI reads them
from a detokenizer model. The one written here has the vocabulary but can't detokenize, so no string
tensor of ours enters the library.

A grammar that xgrammar refuses raises in the middle of a step, and then no sequence of that engine
can go on. So each one is first tried on a model of a few hundred bytes with an engine of its own,
which may break.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from penstock.errors import CallerError
from penstock.runtimes.generation.base import EngineRequest
from penstock.runtimes.generation.json_grammar import json_grammar
from penstock.runtimes.generation.json_patterns import literal
from penstock.runtimes.generation.tool_formats import FormatReader
from penstock.runtimes.openvino.runtime import arithmetic

#: How many valid grammars are remembered; each is a text of some 64 KiB.
_KNOWN_MAX: Final = 256
_BYTE_TOKENS = 256
_WIDTH = 8


def token_bytes(tokenizer: Any, vocabulary: int) -> list[bytes]:
    """The bytes that each token id stands for, b"" for special ones and ids without a token.

    Args:
        tokenizer: a `tokenizers.Tokenizer`.
        vocabulary: rows of the model's logits; may be above the tokenizer's ids.
    """
    decoder = json.dumps(json.loads(tokenizer.to_str()).get("decoder") or {})
    turned = _byte_alphabet() if "ByteLevel" in decoder else None
    special = {
        ident for ident, token in tokenizer.get_added_tokens_decoder().items() if token.special
    }
    found = [b""] * vocabulary
    for text, ident in tokenizer.get_vocab(with_added_tokens=True).items():
        if ident >= vocabulary or ident in special:
            continue
        if turned is not None and all(char in turned for char in text):
            found[ident] = bytes(turned[char] for char in text)
        elif len(text) == 6 and text.startswith("<0x") and text.endswith(">"):
            found[ident] = bytes([int(text[3:5], 16)])
        else:
            found[ident] = text.replace("▁", " ").encode()
    return found


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's mapping of bytes to printable characters: printable ones stand for themselves."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [each for each in range(256) if each not in plain]
    return {chr(each): each for each in plain} | {
        chr(256 + at): each for at, each in enumerate(others)
    }


def genai_tokenizer(library: Any, tokens: Sequence[bytes], eos_id: int) -> Any:
    """A GenAI `Tokenizer` that knows `tokens` and can do nothing else."""
    import numpy as np
    import openvino as ov
    import openvino.opset13 as ops

    sizes = np.array([len(each) for each in tokens], dtype=np.int32)
    ends = np.cumsum(sizes, dtype=np.int32)
    characters = np.frombuffer(b"".join(tokens), dtype=np.uint8).astype(np.int32)
    ids = ops.parameter([-1, -1], ov.Type.i64)
    ids.output(0).get_tensor().set_names({"input_ids"})
    flat = ops.reshape(ops.convert(ids, "i32"), ops.constant(np.array([-1], np.int32)), False)
    parts = [flat, *(ops.constant(each) for each in (ends - sizes, ends, characters))]
    vocabulary = ops.concat(parts, 0)
    vocabulary.set_friendly_name("VocabDecoder")  # by this name it is found, inputs 1 to 3 are read
    zero, one = (ops.constant(np.array([each], np.int32)) for each in (0, 1))
    shape = ops.add(ops.multiply(ops.reduce_max(vocabulary, zero, True), zero), one)
    text = ops.reshape(ov.op.Constant(ov.Tensor(np.array([""]))), shape, False)
    folder = Path(tempfile.mkdtemp(prefix="penstock-vocabulary-"))
    try:
        model = ov.Model([ops.result(text)], [ids], "vocabulary")
        ov.save_model(model, folder / "openvino_detokenizer.xml", compress_to_fp16=False)
        (folder / "config.json").write_text(json.dumps({"eos_token_id": eos_id}))
        return library.Tokenizer(str(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Constraint(NamedTuple):
    """What the library holds an answer to, by the name of its setting."""

    kind: str  #: grammar | regex
    text: str
    param: str  #: field of `Sampling`, for errors


def constraint_of(request: EngineRequest) -> Constraint | None:
    """Raises CallerError (`json-schema-refused`)."""
    sampling, tools = request.sampling, request.tools
    if isinstance(tools, FormatReader) and tools.grammar is not None:
        return Constraint("grammar", tools.grammar, "tools")
    if sampling.json_schema is not None:
        return Constraint("grammar", json_grammar(sampling.json_schema), "json_schema")
    if sampling.regex is not None:
        return Constraint("regex", sampling.regex, "regex")
    if sampling.choices:
        choices = " | ".join(map(literal, sampling.choices))
        return Constraint("grammar", f"root ::= {choices}\n", "choices")
    if sampling.grammar is not None:
        return Constraint("grammar", sampling.grammar, "grammar")
    return None


def structured(library: Any, constraint: Constraint) -> Any:
    return library.StructuredOutputConfig(**{constraint.kind: constraint.text})


class GrammarCheck:
    """Use from one thread."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._pipeline: Any = None
        self._known: dict[Constraint, None] = {}

    def check(self, constraint: Constraint) -> None:
        """Raises CallerError (`json-schema-refused`, `grammar-refused`)."""
        if constraint in self._known:
            return
        try:
            self._try(constraint)
        except Exception as error:  # RuntimeError of the library, or what pybind makes of others
            self._pipeline = None  # the engine can't go on
            words = str(error).strip().splitlines()
            reason = words[-1].rpartition(": ")[2] if words else type(error).__name__
            raise CallerError(
                "grammar-refused",
                f"the engine can't hold an answer to this {constraint.kind}: {reason[:300]}",
                hint="It is read by xgrammar: grammars are EBNF as in GBNF, with a rule root.",
                param=constraint.param,
            ) from None
        if len(self._known) >= _KNOWN_MAX:
            self._known.clear()
        self._known[constraint] = None

    def _try(self, constraint: Constraint) -> None:
        if self._pipeline is None:
            self._pipeline = self._small_pipeline()
        import numpy as np
        import openvino as ov

        library = self._library
        config = library.GenerationConfig()
        config.max_new_tokens = 1
        config.eos_token_id = _BYTE_TOKENS
        config.stop_token_ids = {_BYTE_TOKENS}
        config.structured_output_config = structured(library, constraint)
        prompt = ov.Tensor(np.zeros((1, 1), dtype=np.int64))
        handle = self._pipeline.add_request(0, prompt, config)
        while self._pipeline.has_non_finished_requests():
            self._pipeline.step()
        handle.cancel()

    def _small_pipeline(self) -> Any:
        import openvino as ov

        library = self._library
        tokens = [bytes([each]) for each in range(_BYTE_TOKENS)] + [b""]
        tokenizer = genai_tokenizer(library, tokens, _BYTE_TOKENS)
        scheduling = library.SchedulerConfig()
        scheduling.num_kv_blocks = 4
        scheduling.max_num_seqs = 1
        folder = Path(tempfile.mkdtemp(prefix="penstock-schemas-"))
        try:
            ov.save_model(_smallest_model(), folder / "openvino_model.xml")
            (folder / "config.json").write_text("{}")
            properties = {"INFERENCE_NUM_THREADS": 1, **arithmetic("")}
            return library.ContinuousBatchingPipeline(
                str(folder), tokenizer, scheduling, "CPU", **properties
            )
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def with_past(name: str, new: Any, ids: Any, beams: Any) -> tuple[Any, Any]:
    """A cache variable like any layer's keys or values: the past in the order of `beams`, then
    `new` [rows, 1, tokens, size]. Also returns the sink that keeps it."""
    import numpy as np
    import openvino as ov
    import openvino.opset13 as ops
    from openvino.op.util import Variable, VariableInfo

    def integers(*values: int) -> Any:
        return ops.constant(np.array(values, dtype=np.int64))

    size = new.output(0).get_partial_shape()[3].get_length()
    info = VariableInfo()
    info.data_shape = ov.PartialShape([-1, 1, -1, size])
    info.data_type = ov.Type.f32
    info.variable_id = name
    variable = Variable(info)
    rows = ops.gather(ops.shape_of(ids, "i64"), integers(0), integers(0))
    empty = ops.broadcast(np.float32(0), ops.concat([rows, integers(1, 0, size)], 0))
    past = ops.gather(ops.read_value(empty, variable), beams, integers(0))
    joined = ops.concat([past, new], 2)
    return joined, ops.assign(joined, variable)


def _smallest_model() -> Any:
    """One layer of attention over an embedding, in a form that can be converted to paged
    attention."""
    import numpy as np
    import openvino as ov
    import openvino.opset13 as ops

    def parameter(name: str, dtype: Any, shape: list[int]) -> Any:
        node = ops.parameter(shape, dtype)
        node.set_friendly_name(name)
        node.output(0).get_tensor().set_names({name})
        return node

    def integers(*values: int) -> Any:
        return ops.constant(np.array(values, dtype=np.int32))

    ids = parameter("input_ids", ov.Type.i64, [-1, -1])
    mask = parameter("attention_mask", ov.Type.i64, [-1, -1])
    positions = parameter("position_ids", ov.Type.i64, [-1, -1])
    beams = parameter("beam_idx", ov.Type.i32, [-1])
    table = ops.constant(np.zeros((_BYTE_TOKENS + 1, _WIDTH), dtype=np.float32))
    placed = ops.multiply(ops.convert(ops.unsqueeze(positions, integers(2)), "f32"), np.float32(0))
    embedded = ops.add(ops.gather(table, ids, integers(0)), placed)
    value = ops.transpose(
        ops.reshape(embedded, integers(0, 0, 1, _WIDTH), True), integers(0, 2, 1, 3)
    )
    keys, key_sink = with_past("past.key", value, ids, beams)
    values, value_sink = with_past("past.value", value, ids, beams)
    seen = ops.multiply(ops.unsqueeze(ops.convert(mask, "f32"), integers(1, 2)), np.float32(0))
    mixed = ops.scaled_dot_product_attention(value, keys, values, seen, causal=False)
    flat = ops.reshape(ops.transpose(mixed, integers(0, 2, 1, 3)), integers(0, 0, _WIDTH), True)
    result = ops.result(ops.matmul(flat, table, False, True))
    result.output(0).get_tensor().set_names({"logits"})
    return ov.Model([result], [key_sink, value_sink], [ids, mask, positions, beams], "smallest")
