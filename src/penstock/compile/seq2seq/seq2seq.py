"""An encoder-decoder model of Hugging Face's format as an artifact of runtime `seq2seq`.

transformers reads the weights, `seq2seq_t5` and `seq2seq_bart` build the graphs, and the result
runs beside the source, token by token. An artifact that fails the comparison is not written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from penstock.artifacts.description import model_yaml
from penstock.artifacts.description.description import (
    Batching,
    Generation,
    ModelDescription,
    Tokenizer,
)
from penstock.compile.contract import Compiled, Options, Say, Timing
from penstock.compile.graphs.graph import Arrays
from penstock.compile.libraries import need
from penstock.compile.proof.proof import cores, load_context, measured
from penstock.compile.proof.samples import text_lines
from penstock.compile.seq2seq import seq2seq_bart, seq2seq_t5
from penstock.compile.seq2seq.seq2seq_graph import Builder, CacheShape
from penstock.compile.seq2seq.seq2seq_parity import (
    MEASURE,
    Seq2SeqParity,
    compare,
    generate,
)
from penstock.compile.source.source import Source, read_json
from penstock.compile.source.tokenizer_files import load_model, weights_of, write_tokenizer
from penstock.compile.targets import CompileTarget
from penstock.errors import CallerError, ModelError
from penstock.runtimes.loader import load_seq2seq_model
from penstock.runtimes.seq2seq.record import RECORD as SEQ2SEQ
from penstock.runtimes.seq2seq.request import GenerationRequest

#: model_type of config.json -> the module that builds its graphs
_BUILDERS: Mapping[str, Any] = {
    "t5": seq2seq_t5,
    "mt5": seq2seq_t5,
    "bart": seq2seq_bart,
    "mbart": seq2seq_bart,
    "marian": seq2seq_bart,
}
#: settings of generation_config.json that become the artifact's default settings
_DEFAULTS = (
    "num_beams",
    "length_penalty",
    "early_stopping",
    "no_repeat_ngram_size",
    "forced_bos_token_id",
    "forced_eos_token_id",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seq2SeqSpec:
    """The artifact's settings, and how it is proven."""

    precision: str  #: f32, bf16 or int8; programs of torch.export: f32, f16 or bf16
    name: str = ""
    tokens_max: int = 512  #: longer sources are cut, tokens
    tokens_new_max: int = 64  #: most new tokens that a request may ask for
    beams_max: int = 4  #: most beams that a request may ask for
    rows_max: int = 16  #: most rows of a decode batch
    samples: list[str] | None = None  #: texts for the comparison; None = random tokens
    #: Largest loss of a token, in spreads (`seq2seq_parity`); None = the precision's own
    #: tolerance.
    difference_max: float | None = None
    log: Callable[[str], None] = lambda line: None


def compile_seq2seq(
    source_dir: Path, folder: Path, wanted: Seq2SeqSpec, *, programs_on: str = ""
) -> Seq2SeqParity:
    """Writes encoder.xml, decoder.xml (and .bin), tokenizer.json, model.yaml into `folder`.

    Args:
        source_dir: a Hugging Face directory: config.json, weights, a tokenizer.
        folder: exists, and is empty. The caller removes it after an error.
        wanted: int8 applies to weights; the runtime rounds activations at run time, unless
            `precision: f32` is written into model.yaml.
        programs_on: the device that the artifact is proven on and will run on. Where it is given,
            encoder.pt2 and decoder.pt2 are written instead of graphs, and the caller checks the
            result of the comparison.

    Raises CallerError (`unsupported-architecture`, `architecture-unsupported`,
    `conversion-failed`, and those of the tokenizer), ModelError (`weights-unreadable`,
    `weights-missing`, `parity-failed`).
    """
    precision = wanted.precision
    if programs_on:
        from penstock.compile.seq2seq import torch_t5  # noqa: PLC0415 - imports torch

        torch_t5.check_family(read_json(source_dir / "config.json"))
    builders = _builders_of(source_dir)
    model = load_source(source_dir)
    config = model.config.to_dict()
    config["scale_decoder_outputs"] = getattr(model.config, "scale_decoder_outputs", False)
    sizes: CacheShape = builders.shape_of(config)
    tokenizer = write_tokenizer(
        source_dir, folder, tokens_max=_within_positions(config, wanted.tokens_max),
        vocabulary=sizes.vocabulary, pad_id=config.get("pad_token_id"),
    )  # fmt: skip
    description = describe(model, config, tokenizer, wanted)
    if programs_on:
        wanted.log(f"exporting programs: {precision} on {programs_on}")
        torch_t5.write_programs(model, config, folder, precision=precision, device=programs_on)
        description = torch_t5.as_programs(description, precision=precision, device=programs_on)
    else:
        wanted.log(
            f"building graphs: {sizes.layers} decoder layers, width {sizes.width}, {precision}"
        )
        write_graphs(builders, weights_of(model), config, folder, precision)
    (folder / model_yaml.FILE_NAME).write_text(model_yaml.dump(description), encoding="utf-8")
    wanted.log("comparing answers with the source")
    parity = compare(
        model, folder, description, wanted.samples,
        precision=precision, loss_max=wanted.difference_max,
    )  # fmt: skip
    if not programs_on:
        _check(parity)
    return parity


def _builders_of(source_dir: Path) -> Any:
    model_type = str(read_json(source_dir / "config.json").get("model_type"))
    if model_type not in _BUILDERS:
        raise CallerError(
            "unsupported-architecture",
            f"model_type {model_type!r} is not one of {', '.join(_BUILDERS)}",
            hint="Serve it with runtime `python` and your own code.",
        )
    return _BUILDERS[model_type]


def load_source(source_dir: Path) -> Any:
    """The model in PyTorch, FP32, on the CPU. Raises what `load_model` raises."""
    return load_model(source_dir, "AutoModelForSeq2SeqLM", "an encoder-decoder model")


def write_graphs(
    builders: Any, weights: Mapping[str, np.ndarray], config: dict[str, Any], folder: Path,
    precision: str,
) -> None:  # fmt: skip
    import openvino as ov  # noqa: PLC0415 - heavy, and only conversion needs it

    for part in ("encoder", "decoder"):
        builder = Builder(weights, int8=precision == "int8", bf16=precision == "bf16")
        model = getattr(builders, part)(builder, config)
        ov.save_model(model, folder / f"{part}.xml", compress_to_fp16=False)


def describe(
    model: Any, config: dict[str, Any], tokenizer: Tokenizer, wanted: Seq2SeqSpec
) -> ModelDescription:
    generation = model.generation_config
    eos = generation.eos_token_id if generation.eos_token_id is not None else config["eos_token_id"]
    start = generation.decoder_start_token_id
    if start is None:
        start = config["decoder_start_token_id"]
    defaults = {key: getattr(generation, key, None) for key in _DEFAULTS}
    parameters = {key: str(value).lower() for key, value in defaults.items() if value is not None}
    if int(parameters.get("num_beams", "1")) > wanted.beams_max:
        parameters["num_beams"] = str(wanted.beams_max)
    return ModelDescription(
        runtime=SEQ2SEQ.name,
        task="text2text-generation",
        name=wanted.name,
        file="decoder.xml",
        tokenizer=tokenizer,
        generation=Generation(
            eos_ids=tuple(eos) if isinstance(eos, list) else (int(eos),),
            decoder_start_id=int(start),
            tokens_new_max=_within_positions(config, wanted.tokens_new_max),
            beams_max=wanted.beams_max,
        ),
        batching=Batching(rows_max=wanted.rows_max),
        parameters=parameters,
        precision="" if wanted.precision == "int8" else wanted.precision,
    )


def _within_positions(config: dict[str, Any], tokens: int) -> int:
    """The bound of absolute positions; relative ones have none."""
    positions = config.get("max_position_embeddings")
    return min(tokens, int(positions)) if positions else tokens


def _check(parity: Seq2SeqParity) -> None:
    """Raises ModelError if the artifact's answers differ from its source's."""
    failures = parity.record().failures()
    if failures:
        raise ModelError(
            "parity-failed",
            f"the artifact's tokens are not its source's: {'; '.join(failures)} ({MEASURE}); "
            f"{parity.same} of {parity.answers} answers are the source's",
            hint="Nothing was written. Compile for cpu-fp32 to see whether the number format is "
            "the cause; --tolerance names the loss of a token that is acceptable to you.",
        )


_PRECISIONS = {"cpu-fp32": "f32", "cpu-bf16": "bf16", "cpu-int8": "int8"}
_PROGRAMS = {"cuda-fp32": "f32", "cuda-fp16": "f16", "cuda-bf16": "bf16"}
_ROWS_MAX = 16  #: rows of a decode step; `seq2seq` was tuned for this
#: Lengths of a misspelt query and its correction, in tokens; measured alone and as a batch.
_TOKENS_IN, _TOKENS_OUT = 9, 11
_ROWS_MEASURED = (1, 8)


def compile_encoder_decoder(
    source: Source, staging: Path, options: Options, target: CompileTarget, say: Say
) -> Compiled:
    """Compiles it. Raises the errors of `compile_seq2seq`, `target-unsupported`,
    `task-unsupported`."""
    precision = {**_PRECISIONS, **_PROGRAMS}.get(target.name)
    if precision is None:
        raise CallerError(
            "target-unsupported",
            f"encoder-decoder models are not compiled for {target.name}",
            hint=f"Use one of: {', '.join((*_PRECISIONS, *_PROGRAMS))}.",
        )
    if options.task not in ("", "text2text-generation"):
        raise CallerError(
            "task-unsupported",
            f"an encoder-decoder model can't be served as {options.task!r}",
            hint="Leave --task out: it is text2text-generation.",
        )
    wanted = Seq2SeqSpec(
        precision=precision,
        tokens_max=options.tokens_max or 512,
        rows_max=min(options.rows_max, _ROWS_MAX),
        samples=text_lines(options.samples) if options.samples is not None else None,
        difference_max=options.tolerance,
        log=say,
    )
    device = target.device if target.name in _PROGRAMS else ""
    found = compile_seq2seq(source.root, staging, wanted, programs_on=device)
    choices = {"torch_device": device} if device else {}
    if precision == "int8":
        choices = {"int8": "weights"}
    notes = found.notes(precision)
    if options.calibration is not None:
        notes.append("--calibration was not used: encoder-decoder INT8 is weight-only")
    description = model_yaml.load(staging)
    timings: tuple[Timing, ...] = ()
    if options.measure_s > 0:
        say(f"measuring {_TOKENS_IN} tokens in, {_TOKENS_OUT} out")
        timings = _timings(source.root, staging, description, options)
    return Compiled(
        description=description,
        timings=timings,
        parity=found.record(),
        framework="PyTorch FP32",
        source_bytes=source.size,
        notes=notes,
        choices=choices,
    )


def _timings(
    root: Path, staging: Path, description: ModelDescription, options: Options
) -> tuple[Timing, ...]:
    """Times greedy answers of one length, by transformers' `generate` and by the runtime."""
    torch, threads = need("torch"), options.threads or cores()
    model = load_source(root)
    torch.set_num_threads(threads)
    request = GenerationRequest(max_new_tokens=_TOKENS_OUT, min_new_tokens=_TOKENS_OUT)

    def before(inputs: Arrays) -> None:
        ids = torch.from_numpy(inputs["input_ids"])
        with torch.inference_mode():
            model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=_TOKENS_OUT,
                min_new_tokens=_TOKENS_OUT,
                num_beams=1,
                do_sample=False,
            )

    compiled = load_seq2seq_model(load_context(staging, description, threads))
    try:
        random = np.random.default_rng(0)
        largest = int(model.config.vocab_size)
        batches = [
            (rows, _TOKENS_IN, {"input_ids": random.integers(0, largest, (rows, _TOKENS_IN))})
            for rows in _ROWS_MEASURED
            if rows <= description.batching.rows_max
        ]
        return measured(
            before,
            lambda inputs: generate(compiled, description, inputs["input_ids"].tolist(), request),
            batches,
            seconds=options.measure_s,
        )
    finally:
        compiled.close()
