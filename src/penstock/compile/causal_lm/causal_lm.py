"""A language model of Hugging Face's format as an artifact of runtime `openvino_genai`.

Weights are read by transformers, the graph is built by `causal_lm_graph`, and the result is run
beside the source, token for token. What fails that comparison is not written. Weights of `cpu-int8`
are INT8 with a scale for each output; arithmetic stays in the processor's fastest floating format.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from penstock.artifacts.description.description import EngineOptions, ModelDescription
from penstock.compile.causal_lm.causal_lm_graph import causal_lm, sizes_of
from penstock.compile.causal_lm.causal_lm_parity import compare
from penstock.compile.contract import Compiled, Options, Say
from penstock.compile.libraries import need
from penstock.compile.seq2seq.seq2seq_graph import Builder
from penstock.compile.source.source import Source, read_json
from penstock.compile.source.text_lines import text_lines
from penstock.compile.source.tokenizer_files import write_tokenizer
from penstock.compile.source.transformers_model import load_model, weights_of
from penstock.compile.targets import CompileTarget, cpu_has_bf16
from penstock.errors import CallerError

TASK = "text-generation"
_FORMATS = {"cpu-fp32": "f32", "cpu-bf16": "bf16", "cpu-int8": "int8"}
#: Files of the source that the engine process or its users read.
_KEPT = (
    "config.json", "generation_config.json", "tokenizer_config.json", "special_tokens_map.json",
    "chat_template.jinja",
)  # fmt: skip
_GRAPH = "openvino_model.xml"


def compile_causal_lm(
    source: Source, staging: Path, options: Options, target: CompileTarget, say: Say
) -> Compiled:
    """Raises CallerError (`target-unsupported`, `task-unsupported`, `samples-invalid`, those of the
    tokenizer) and ModelError (`unsupported-architecture`, those of `load_model`)."""
    kind = _FORMATS.get(target.name)
    if kind is None:
        raise CallerError(
            "target-unsupported",
            f"language models are not compiled for {target.name}",
            hint=f"Use one of: {', '.join(_FORMATS)}; on GPUs serve the source with runtime vllm.",
        )
    if options.task not in ("", TASK):
        raise CallerError(
            "task-unsupported",
            f"a language model can't be served as {options.task!r}",
            hint=f"Leave --task out: it is {TASK}.",
        )
    sizes = sizes_of(read_json(source.root / "config.json"))
    say("reading weights")
    model = load_model(source.root, "AutoModelForCausalLM", "a language model")
    write_tokenizer(
        source.root,
        staging,
        tokens_max=sizes.positions,
        vocabulary=sizes.vocabulary,
        pad_id=model.config.pad_token_id,
    )
    for name in _KEPT:
        if (source.root / name).is_file():
            shutil.copyfile(source.root / name, staging / name)
    say(f"building the graph: {sizes.layers} layers, width {sizes.width}, {kind}")
    write_graph(model, staging, kind)
    precision = _precision(kind)
    say("comparing tokens with the source")
    found = compare(
        model, staging / _GRAPH, _samples(options, staging), kind=kind, precision=precision,
        loss_max=options.tolerance,
    )  # fmt: skip
    return Compiled(
        description=ModelDescription(
            runtime="openvino_genai",
            task=TASK,
            file=_GRAPH,
            engine=EngineOptions(),
            precision=precision if kind != "int8" else "",
        ),
        parity=found.record,
        framework="PyTorch FP32",
        source_bytes=source.size,
        notes=[*found.notes, *_unused(options)],
        choices={"int8": "weights"} if kind == "int8" else {},
    )


def write_graph(model: Any, folder: Path, kind: str) -> None:
    """`kind`: f32, bf16 or int8."""
    import openvino as ov  # noqa: PLC0415 - heavy, and only conversion needs it

    builder = Builder(weights_of(model), int8=kind == "int8", bf16=kind == "bf16")
    graph = causal_lm(builder, model.config.to_dict())
    ov.save_model(graph, folder / _GRAPH, compress_to_fp16=False)


def _precision(kind: str) -> str:
    """What the artifact computes in on this machine."""
    if kind == "int8":
        return "bf16" if cpu_has_bf16() else "f32"
    return kind


def _samples(options: Options, staging: Path) -> list[list[int]] | None:
    if options.samples is None:
        return None
    tokenizer = need("tokenizers").Tokenizer.from_file(str(staging / "tokenizer.json"))
    tokens = [tokenizer.encode(line).ids for line in text_lines(options.samples)]
    return [each for each in tokens if each] or None


def _unused(options: Options) -> list[str]:
    notes = []
    if options.calibration is not None:
        notes.append("--calibration was not used: INT8 of language models is weight-only")
    if options.measure_s > 0:
        notes.append("not timed: an engine's speed is that of its batches; ask a load test")
    return notes
