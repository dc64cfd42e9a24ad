"""An encoder-decoder model of Hugging Face's format as an artifact of runtime `seq2seq`.

transformers reads the weights, `seq2seq_t5` and `seq2seq_bart` build the graphs, and the result
runs beside the source, token by token. An artifact that fails the comparison is not written.
"""

from __future__ import annotations

import shutil
import tempfile
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
from penstock.compile.seq2seq import seq2seq_bart, seq2seq_t5
from penstock.compile.seq2seq.seq2seq_graph import Builder, CacheShape
from penstock.compile.seq2seq.seq2seq_parity import MEASURE, Seq2SeqParity, compare, parity_record
from penstock.compile.source.source import read_json
from penstock.compile.source.tokenizer_files import write_tokenizer
from penstock.compile.source.transformers_model import load_model, weights_of
from penstock.errors import CallerError, ModelError
from penstock.runtimes.seq2seq.record import RECORD as SEQ2SEQ

PRECISIONS = ("f32", "bf16", "int8")
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

#: Writes the graphs of (model, its config) into a folder; returns the matching description.
Write = Callable[[Any, dict[str, Any], Path, ModelDescription], ModelDescription]


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


def compile_seq2seq(source_dir: Path, out_dir: Path, wanted: Seq2SeqSpec) -> Seq2SeqParity:
    """Writes `out_dir`: encoder.xml, decoder.xml (and .bin), tokenizer.json, model.yaml.

    Args:
        source_dir: a Hugging Face directory: config.json, weights, a tokenizer.
        out_dir: must be missing or empty; an error leaves it unchanged.
        wanted: int8 applies to weights; the runtime rounds activations at run time, unless
            `precision: f32` is written into model.yaml.

    Raises CallerError (`unknown-precision`, `unsupported-architecture`, `out-dir-not-empty`, and
    those of the tokenizer), ModelError (`weights-unreadable`, `weights-missing`, `parity-failed`).
    """
    precision = wanted.precision
    if precision not in PRECISIONS:
        raise CallerError(
            "unknown-precision", f"precision {precision!r} is not one of {', '.join(PRECISIONS)}"
        )
    if out_dir.exists() and any(out_dir.iterdir()):
        raise CallerError("out-dir-not-empty", f"{out_dir.name} is there and not empty")
    builders = _builders_of(source_dir)

    def write(
        model: Any, config: dict[str, Any], folder: Path, description: ModelDescription
    ) -> ModelDescription:
        sizes: CacheShape = builders.shape_of(config)
        wanted.log(
            f"building graphs: {sizes.layers} decoder layers, width {sizes.width}, {precision}"
        )
        write_graphs(builders, weights_of(model), config, folder, precision)
        return description

    out_dir.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out_dir.parent, prefix=".compiling-") as made:
        staging = Path(made) / "artifact"
        staging.mkdir()
        parity = write_artifact(source_dir, staging, wanted, builders, write)
        _check(parity)
        if out_dir.exists():
            out_dir.rmdir()
        shutil.move(staging, out_dir)
    return parity


def write_artifact(
    source_dir: Path, folder: Path, wanted: Seq2SeqSpec, builders: Any, write: Write
) -> Seq2SeqParity:
    """Writes all files of an artifact and runs it. It does not check the comparison's result."""
    model = load_source(source_dir)
    config = model.config.to_dict()
    config["scale_decoder_outputs"] = getattr(model.config, "scale_decoder_outputs", False)
    tokenizer = write_tokenizer(
        source_dir, folder, tokens_max=_within_positions(config, wanted.tokens_max),
        vocabulary=builders.shape_of(config).vocabulary, pad_id=config.get("pad_token_id"),
    )  # fmt: skip
    description = write(model, config, folder, describe(model, config, tokenizer, wanted))
    (folder / model_yaml.FILE_NAME).write_text(model_yaml.dump(description), encoding="utf-8")
    wanted.log("comparing answers with the source")
    return compare(
        model, folder, description, wanted.samples,
        precision=wanted.precision, loss_max=wanted.difference_max,
    )  # fmt: skip


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
    failures = parity_record(parity).failures()
    if failures:
        raise ModelError(
            "parity-failed",
            f"the artifact's tokens are not its source's: {'; '.join(failures)} ({MEASURE}); "
            f"{parity.same} of {parity.answers} answers are the source's",
            hint="Nothing was written. Compile for cpu-fp32 to see whether the number format is "
            "the cause; --tolerance names the loss of a token that is acceptable to you.",
        )
