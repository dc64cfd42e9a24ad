"""An encoder-decoder directory as an artifact: translates the command's options for `seq2seq`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from penstock.artifacts.description import model_yaml
from penstock.artifacts.description.description import ModelDescription
from penstock.compile.contract import Compiled, Options, Say, Timing
from penstock.compile.graphs.graph import Arrays
from penstock.compile.libraries import need
from penstock.compile.proof.proof import cores, measured
from penstock.compile.seq2seq import seq2seq, torch_seq2seq
from penstock.compile.seq2seq.seq2seq_parity import generate, parity_record
from penstock.compile.source.source import Source
from penstock.compile.source.text_lines import text_lines
from penstock.compile.targets import CompileTarget
from penstock.errors import CallerError
from penstock.runtimes.base import LoadContext
from penstock.runtimes.loader import load_seq2seq_model
from penstock.runtimes.seq2seq.request import GenerationRequest

_PRECISIONS = {"cpu-fp32": "f32", "cpu-bf16": "bf16", "cpu-int8": "int8"}
_PROGRAMS = {"cuda-fp32": "f32", "cuda-fp16": "f16", "cuda-bf16": "bf16"}
_ROWS_MAX = 16  #: rows of a decode step; `seq2seq` was tuned for this
#: Lengths of a misspelt query and its correction, in tokens; measured alone and as a batch.
_TOKENS_IN, _TOKENS_OUT = 9, 11
_ROWS_MEASURED = (1, 8)


def compile_encoder_decoder(
    source: Source, staging: Path, options: Options, target: CompileTarget, say: Say
) -> Compiled:
    """Compiles it. Raises the errors of `seq2seq.compile_seq2seq`, `target-unsupported`,
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
    wanted = seq2seq.Seq2SeqSpec(
        precision=precision,
        tokens_max=options.tokens_max or 512,
        rows_max=min(options.rows_max, _ROWS_MAX),
        samples=text_lines(options.samples) if options.samples is not None else None,
        difference_max=options.tolerance,
        log=say,
    )
    choices = {}
    if target.name in _PROGRAMS:
        choices = {"torch_device": target.device}
        found = torch_seq2seq.compile_programs(source.root, staging, wanted, device=target.device)
    else:
        found = seq2seq.compile_seq2seq(source.root, staging, wanted)
    if precision == "int8":
        choices = {"int8": "weights"}
    notes = []
    if found.format is not None:
        notes.append(
            f"in {precision.upper()} the source itself differs by "
            f"{found.format.difference_mean:.2g} spreads on average and writes "
            f"{found.format.agreement:.1%} of its tokens"
        )
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
        parity=parity_record(found),
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
    model = seq2seq.load_source(root)
    torch.set_num_threads(threads)
    request = GenerationRequest(max_new_tokens=_TOKENS_OUT, min_new_tokens=_TOKENS_OUT)
    context = LoadContext(
        model_dir=staging,
        description=description,
        endpoint_name="compile",
        variant_name="compile",
        cores=threads,
        memory_bytes_max=0,
    )

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

    compiled = load_seq2seq_model(context)
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
