"""One compile from beginning to end: open, load, lower, compare, measure, describe, rename.

The output folder appears only if every step has succeeded. This module orders the steps; each step
is a module of its own.
"""

from __future__ import annotations

import dataclasses
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from penstock.artifacts.description import model_yaml
from penstock.artifacts.detection.generation_layout import is_language_model
from penstock.compile import report as reports
from penstock.compile.auto import compile_fastest
from penstock.compile.causal_lm.causal_lm import TASK, compile_causal_lm
from penstock.compile.contract import Compiled, Options, Say
from penstock.compile.encoder.encoder import compile_encoder
from penstock.compile.graph_file import compile_graph_file
from penstock.compile.proof.proof import cores
from penstock.compile.seq2seq.seq2seq import compile_encoder_decoder
from penstock.compile.source.source import HUGGING_FACE, SEQ2SEQ, Source, open_source
from penstock.compile.staging import check_free, staged
from penstock.compile.targets import AUTO, CompileTarget, check_present, cpu_has_bf16, target_of
from penstock.errors import CallerError


def compile_model(
    path: Path, out: Path, options: Options, *, say: Say = lambda line: None
) -> dict[str, Any]:
    """Compiles `path` into the artifact `out`. Returns the content of its report.json.

    Args:
        path: the source.
        out: a folder that does not exist, or is empty.
        options: what the caller chose.
        say: called with a description of each step.

    Raises CallerError, and then leaves nothing behind: `target-unknown`, `target-absent`,
    `output-exists`, `parity-failed`, `compile-not-installed`, and those of the steps.
    """
    started, clock = datetime.now(UTC), time.monotonic()
    target = target_of(options.target)
    limited = partial(_with_tolerance, largest=options.tolerance)
    check_free(out)
    source = open_source(path, trust=options.trust)
    check_present(target)
    measured = options.target == AUTO and not _is_generating(source, options)
    target = limited(target)

    def compile_(target: CompileTarget, wanted: Options, folder: Path) -> Compiled:
        compiled = _compiled(source, folder, wanted, target, say)
        _check_parity(compiled, target)
        return compiled

    with staged(out) as staging:
        try:
            if measured:
                compiled, target, story = compile_fastest(
                    options, staging, compile_, bf16=cpu_has_bf16(), limited=limited, say=say
                )
                compiled.auto = story
            else:
                compiled = compile_(target, options, staging)
            description = dataclasses.replace(
                compiled.description, name=options.name or compiled.description.name
            )
            (staging / model_yaml.FILE_NAME).write_text(
                model_yaml.dump(description), encoding="utf-8"
            )
            model_yaml.load(staging)  # a file that can't be read back must not leave this function
            size = sum(each.stat().st_size for each in staging.rglob("*") if each.is_file())
            threads = options.threads or cores()
            made = reports.report_of(compiled, target, artifact_bytes=size, threads=threads)
            reports.write_json(staging / reports.REPORT, made)
            provenance = reports.provenance_of(
                source,
                compiled,
                options,
                target,
                started=started,
                seconds=time.monotonic() - clock,
            )
            reports.write_json(staging / reports.PROVENANCE, provenance)
        except OSError as error:
            raise CallerError(
                "output-impossible",
                f"{out}: {error.strerror or error}",
                hint="Make room on the disk, or give another folder.",
            ) from None
    return dict(made)


def _compiled(
    source: Source, staging: Path, options: Options, target: CompileTarget, say: Say
) -> Compiled:
    if source.kind == SEQ2SEQ:
        return compile_encoder_decoder(source, staging, options, target, say)
    if _is_generating(source, options):
        return compile_causal_lm(source, staging, options, target, say)
    if source.kind == HUGGING_FACE:
        return compile_encoder(source, staging, options, target, say)
    return compile_graph_file(source, staging, options, target, say)


def _is_generating(source: Source, options: Options) -> bool:
    """Language models are not timed here, because an engine's speed is that of its batches: for
    them a rule decides what `auto` is."""
    language = source.kind == HUGGING_FACE and is_language_model(source.root)
    return language and options.task in ("", TASK)


def _check_parity(compiled: Compiled, target: CompileTarget) -> None:
    failures = compiled.parity.failures()
    if failures:
        raise CallerError(
            "parity-failed",
            f"the compiled model is not the source's equal ({compiled.parity.unit}, "
            f"{compiled.parity.samples} samples, target {target.name}): {'; '.join(failures)}",
            hint="Try a target with more precision (cpu-bf16, cpu-fp32); for cpu-int8 give a "
            "--calibration set of real texts; --tolerance states how much is acceptable to you.",
        )


def _with_tolerance(target: CompileTarget, largest: float | None) -> CompileTarget:
    """The mean keeps its proportion to the largest difference. None: the target's own tolerance."""
    if largest is None:
        return target
    if not 0.0 <= largest < float("inf"):
        raise CallerError("tolerance-invalid", f"--tolerance {largest}: give a number from 0 up")
    given = target.tolerance
    ratio = given.difference_mean / given.difference_max
    tolerance = dataclasses.replace(given, difference_max=largest, difference_mean=largest * ratio)
    return dataclasses.replace(target, tolerance=tolerance)
