"""T5 and relatives as two programs of torch.export, for runtime `torch` with a static cache.

`encoder.pt2` and `decoder.pt2` have the interface that `penstock.runtimes.seq2seq` defines, with
the caches of all layers stacked into one tensor each. A decoder step reads them in place and
returns the new keys and values, which the runtime writes at each row's own position. Sums over the
layers, norms, softmax and logits are FP32 in every weight format. In FP16 the last
matrix of a feed-forward block is FP32 too: trained T5 leaves FP16's range there (transformers keeps
that matrix in FP32 as well).
Source of the algorithm: Raffel et al., 2020, "Exploring the Limits of Transfer Learning", 2.1.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.artifacts.description.description import ModelDescription
from penstock.compile.graphs.torch_graph import DTYPES, not_converted
from penstock.compile.libraries import need
from penstock.compile.seq2seq import seq2seq_t5
from penstock.compile.seq2seq.seq2seq import Seq2SeqSpec, write_artifact
from penstock.compile.seq2seq.seq2seq_parity import Seq2SeqParity
from penstock.compile.source.source import read_json
from penstock.errors import CallerError
from penstock.runtimes.pytorch.record import RECORD as PYTORCH

ENCODER_FILE, DECODER_FILE = "encoder.pt2", "decoder.pt2"
FAMILIES = ("t5", "mt5")
#: Example sizes: rows, source, past. All differ and none is 1, which would become a constant.
_ROWS, _SOURCE, _PAST = 3, 7, 5


def compile_programs(
    source_dir: Path, staging: Path, wanted: Seq2SeqSpec, *, device: str = "cuda"
) -> Seq2SeqParity:
    """Writes encoder.pt2, decoder.pt2, tokenizer.json and model.yaml into `staging`.

    `device` is where the artifact is proven and will run. The caller checks the result of the
    comparison.

    Raises CallerError (`architecture-unsupported`, `conversion-failed`, those of the tokenizer),
    ModelError (those of loading the source and of running the artifact).
    """
    precision = wanted.precision
    _check_family(read_json(source_dir / "config.json"))

    def write(
        model: Any, config: dict[str, Any], folder: Path, description: ModelDescription
    ) -> ModelDescription:
        wanted.log(f"exporting programs: {precision} on {device}")
        write_programs(model, config, folder, precision=precision, device=device)
        return as_programs(description, precision=precision, device=device)

    return write_artifact(source_dir, staging, wanted, seq2seq_t5, write)


def as_programs(description: ModelDescription, *, precision: str, device: str) -> ModelDescription:
    """The description of an encoder-decoder that has these programs as its graphs."""
    generation = description.generation
    assert generation is not None
    return dataclasses.replace(
        description,
        runtime=PYTORCH.name,
        file=DECODER_FILE,
        generation=dataclasses.replace(
            generation, encoder_file=ENCODER_FILE, decoder_file=DECODER_FILE
        ),
        precision=precision,
        parameters={**description.parameters, "torch_device": device},
    )


def _check_family(config: Mapping[str, Any]) -> None:
    if config.get("model_type") not in FAMILIES:
        raise CallerError(
            "architecture-unsupported",
            f"model_type {config.get('model_type')!r} is not compiled for GPUs",
            hint=f"Of the encoder-decoders, {' and '.join(FAMILIES)} are; use a cpu-... target.",
        )


def write_programs(
    model: Any, config: Mapping[str, Any], folder: Path, *, precision: str, device: str
) -> None:
    """Writes both files. `model` is transformers' own, in FP32.

    Args:
        config: `model.config.to_dict()`, with `scale_decoder_outputs`.
        precision: of the weights and products: f32, f16 or bf16.
        device: where the programs will run; their weights are stored for it.

    Raises CallerError (`architecture-unsupported`, `conversion-failed`).
    """
    torch = need("torch")
    _check_family(config)
    from penstock.compile.seq2seq import torch_t5  # noqa: PLC0415 - imports torch

    dtype = getattr(torch, DTYPES[precision])
    sizes = seq2seq_t5.shape_of(dict(config))
    source = torch_t5.T5Source(model.state_dict(), config, dtype)
    encoder, decoder = (
        kind(source).to(device).requires_grad_(False).eval()
        for kind in (torch_t5.Encoder, torch_t5.T5Decoder)
    )
    free = torch.export.Dim.DYNAMIC
    ids = torch.ones((_ROWS, _SOURCE), dtype=torch.int32, device=device)
    mask = torch.ones((_ROWS, _SOURCE), device=device)
    both = {0: free, 1: free}
    _export(encoder, (ids, mask), (both, both), folder / ENCODER_FILE)

    def cache(length: int) -> Any:
        shape = (2 * sizes.layers, _ROWS, sizes.heads, length, sizes.head_size)
        return torch.zeros(shape, dtype=dtype, device=device)

    def one() -> Any:
        """A new tensor each time: the same tensor twice would count as one input."""
        return torch.ones((_ROWS, 1), dtype=torch.int32, device=device)

    bias = torch.zeros((_ROWS, 1, 1, _SOURCE), device=device)
    rows, lengths = {0: free}, {1: free, 3: free}
    _export(
        decoder,
        (one(), one(), bias, cache(_PAST), cache(_SOURCE)),
        (rows, rows, {0: free, 3: free}, lengths, lengths),
        folder / DECODER_FILE,
    )


def _export(module: Any, example: tuple[Any, ...], free: tuple[Any, ...], path: Path) -> None:
    torch = need("torch")
    try:
        with torch.no_grad():
            program = torch.export.export(module, example, dynamic_shapes=free)
    except Exception as error:  # torch.export raises many kinds, some of them private
        raise not_converted("torch.export", error) from None
    for node in program.graph.nodes:  # an artifact must not name files of this machine
        node.meta.pop("stack_trace", None)
    torch.export.save(program, str(path))
