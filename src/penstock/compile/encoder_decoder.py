"""An encoder-decoder directory as an artifact: what the command line asks, in `seq2seq`'s terms."""

from __future__ import annotations

from pathlib import Path

from penstock.artifacts import model_yaml
from penstock.compile import seq2seq
from penstock.compile.contract import Compiled, Options, Parity, Say, Tolerance
from penstock.compile.source import Source
from penstock.compile.targets import Target
from penstock.errors import CallerError

_PRECISIONS = {"cpu-fp32": "f32", "cpu-bf16": "bf16", "cpu-int8": "int8"}
_ROWS_MAX = 16  #: rows of a decode step: where `seq2seq` was tuned


def compile_encoder_decoder(
    source: Source, staging: Path, options: Options, target: Target, say: Say
) -> Compiled:
    """Raises the errors of `seq2seq.compile_seq2seq`, `target-unsupported`, `task-unsupported`."""
    precision = _PRECISIONS.get(target.name)
    if precision is None:
        raise CallerError(
            "target-unsupported",
            f"encoder-decoder models are not compiled for {target.name}",
            hint=f"Use one of: {', '.join(_PRECISIONS)}.",
        )
    if options.task not in ("", "text2text-generation"):
        raise CallerError(
            "task-unsupported",
            f"an encoder-decoder model can't be served as {options.task!r}",
            hint="Leave --task out: it is text2text-generation.",
        )
    found = seq2seq.compile_seq2seq(
        source.root,
        staging,
        precision=precision,
        tokens_max=options.tokens_max or 512,
        rows_max=min(options.rows_max, _ROWS_MAX),
        samples=_texts(options.samples),
        difference_max=options.tolerance,
        log=say,
    )
    allowed = options.tolerance
    if allowed is None:
        allowed = seq2seq.DIFFERENCE_MAX[precision]
    notes = []
    if options.calibration is not None:
        notes.append("--calibration was not used: encoder-decoder INT8 is weight-only")
    return Compiled(
        description=model_yaml.load(staging),
        parity=Parity(
            unit="part of the logits' range",
            samples=found.answers,
            difference_max=found.difference,
            difference_mean=found.difference_mean,
            agreement=found.agreement,
            tolerance=Tolerance(
                difference_max=allowed,
                difference_mean=allowed,
                agreement_min=seq2seq.AGREEMENT_MIN[precision],
            ),
        ),
        framework="PyTorch FP32",
        source_bytes=source.size,
        notes=notes,
        choices={"int8": "weights"} if precision == "int8" else {},
    )


def _texts(path: Path | None) -> list[str] | None:
    if path is None:
        return None
    try:
        return [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise CallerError("samples-invalid", f"{path}: {error}") from None
