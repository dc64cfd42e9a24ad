"""A language model of Hugging Face's format as an artifact of runtime `openvino_genai`.

transformers reads the weights, `causal_lm_graph` builds the graph, and the result runs beside the
source, token by token. A graph that fails the comparison is not written. Weights of `cpu-int8` are
INT8 with a scale for each output, and what they multiply is rounded to 8 bits in groups. All else
is FP32: with BF16, processors with AMX convert the weights in each step, and a step takes 1.1 to
1.6 times as long (docs/performance.md).

For the comparison the source continues prompts greedily. Then both are fed prompt and answer
(teacher forcing) and compared at every step of the answer, as in `seq2seq_parity`. The graph runs
without an engine here; the engine's tests show that paged attention computes the same.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from penstock.artifacts.description.description import EngineOptions, ModelDescription
from penstock.compile.causal_lm.causal_lm_graph import causal_lm, sizes_of
from penstock.compile.contract import Compiled, Options, Say
from penstock.compile.libraries import need
from penstock.compile.proof.samples import text_lines
from penstock.compile.seq2seq.seq2seq_graph import Builder
from penstock.compile.seq2seq.seq2seq_parity import Logits, StepsCompared, judged, to_format
from penstock.compile.source.source import Source, read_json
from penstock.compile.source.tokenizer_files import load_model, weights_of, write_tokenizer
from penstock.compile.targets import CompileTarget
from penstock.errors import CallerError
from penstock.runtimes.openvino.runtime import ROUNDED_GROUP, arithmetic
from penstock.runtimes.openvino_genai.record import RECORD as OPENVINO_GENAI

_TOKENS_NEW = 24
#: Format of the weights -> that of the arithmetic.
_PRECISIONS = {"f32": "f32", "bf16": "bf16", "int8": "f32"}


def compare(
    model: Any,
    graph: Path,
    prompts: list[list[int]] | None,
    *,
    kind: str,
    loss_max: float | None,
) -> StepsCompared:
    """Compares the two. It leaves `model` in the artifact's number format, since a copy of large
    weights would cost too much memory.

    Args:
        model: the source in PyTorch.
        graph: openvino_model.xml.
        prompts: token ids; None = random ones.
        kind: format of the weights, f32, bf16 or int8.
        loss_max: the caller's bound, instead of the one derived from the format's effect.
    """
    prompts = prompts or _random_prompts(model)
    answers = [_continued(model, prompt) for prompt in prompts]
    fed = [prompt + answer[:-1] for prompt, answer in zip(prompts, answers, strict=True)]
    starts = [len(prompt) - 1 for prompt in prompts]
    reference = _source_logits(model, fed, starts)
    ours = _graph_logits(graph, fed, starts, _PRECISIONS[kind])

    def rounded() -> Logits:
        to_format(model, kind)
        return _source_logits(model, fed, starts)

    return judged(reference, [ours], precision=kind, loss_max=loss_max, rounded=rounded)


def _random_prompts(model: Any) -> list[list[int]]:
    """Tokens in random order: no token is likely, which makes a hard test."""
    random = np.random.default_rng(0)
    positions = int(getattr(model.config, "max_position_embeddings", 0) or 2048)
    lengths = (1, 3, 9, 17, 40, 70)
    vocabulary = int(model.config.vocab_size)
    return [
        random.integers(0, vocabulary, min(length, max(1, positions // 2))).tolist()
        for length in lengths
    ]


def _continued(model: Any, prompt: list[int]) -> list[int]:
    """The greedy continuation of the prompt by `generate` of transformers."""
    torch = need("torch")
    ids = torch.tensor([prompt])
    with torch.inference_mode():
        made = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=_TOKENS_NEW,
            min_new_tokens=_TOKENS_NEW, num_beams=1, do_sample=False,
        )  # fmt: skip
    return list(made[0, len(prompt) :].tolist())


def _source_logits(model: Any, fed: list[list[int]], starts: list[int]) -> list[np.ndarray]:
    """Logits [steps, vocabulary] of each answer's tokens, computed by the source."""
    torch = need("torch")
    with torch.inference_mode():
        return [
            model(input_ids=torch.tensor([tokens])).logits[0, start:].float().numpy()
            for tokens, start in zip(fed, starts, strict=True)
        ]


def _graph_logits(
    graph: Path, fed: list[list[int]], starts: list[int], precision: str
) -> list[np.ndarray]:
    """The same from the artifact: the prompt at once, then one token per step through the cache."""
    openvino = need("openvino")
    properties = arithmetic(precision, rounded_group=ROUNDED_GROUP)
    compiled = openvino.Core().compile_model(
        graph, "CPU", {**properties, "KV_CACHE_PRECISION": "f32"}
    )
    found = []
    for tokens, start in zip(fed, starts, strict=True):
        request = compiled.create_infer_request()
        steps = [_step(request, tokens[: start + 1], 0)]
        steps += [_step(request, [tokens[at]], at) for at in range(start + 1, len(tokens))]
        found.append(np.array(steps))
    return found


def _step(request: Any, tokens: list[int], past: int) -> np.ndarray:
    total = past + len(tokens)
    logits = request.infer(
        {
            "input_ids": np.array([tokens], dtype=np.int64),
            "attention_mask": np.ones((1, total), dtype=np.int64),
            "position_ids": np.arange(past, total, dtype=np.int64)[None],
            "beam_idx": np.zeros(1, dtype=np.int32),
        }
    )["logits"]
    last: np.ndarray = np.array(logits[0, -1], dtype=np.float32)
    return last


TASK = "text-generation"
_FORMATS = {"cpu-fp32": "f32", "cpu-bf16": "bf16", "cpu-int8": "int8"}
#: Files of the source that the engine process or users read.
_KEPT = (
    "config.json", "generation_config.json", "tokenizer_config.json", "special_tokens_map.json",
    "chat_template.jinja",
)  # fmt: skip
_GRAPH = "openvino_model.xml"


def compile_causal_lm(
    source: Source, staging: Path, options: Options, target: CompileTarget, say: Say
) -> Compiled:
    """Writes the artifact. Raises CallerError (`target-unsupported`, `task-unsupported`,
    `samples-invalid`, those of the tokenizer) and ModelError (`unsupported-architecture`,
    those of `load_model`)."""
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
    say("comparing tokens with the source")
    found = compare(
        model, staging / _GRAPH, _samples(options, staging), kind=kind,
        loss_max=options.tolerance,
    )  # fmt: skip
    return Compiled(
        description=ModelDescription(
            runtime=OPENVINO_GENAI.name,
            task=TASK,
            file=_GRAPH,
            engine=EngineOptions(),
            precision=_PRECISIONS[kind],
        ),
        parity=found.record(),
        framework="PyTorch FP32",
        source_bytes=source.size,
        notes=[*found.notes(kind), *_unused(options)],
        choices={"int8": "weights"} if kind == "int8" else {},
    )


def write_graph(model: Any, folder: Path, kind: str) -> None:
    """Writes the graph's files. `kind`: format of the weights, f32, bf16 or int8."""
    import openvino as ov  # noqa: PLC0415 - heavy, and only conversion needs it

    builder = Builder(weights_of(model), int8=kind == "int8", bf16=kind == "bf16")
    graph = causal_lm(builder, model.config.to_dict())
    ov.save_model(graph, folder / _GRAPH, compress_to_fp16=False)


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
