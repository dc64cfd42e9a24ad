"""From a graph to the model file of a target: OpenVINO IR for CPUs, an exported program for GPUs.

There are two kinds of INT8. Weight-only keeps one scale per output channel and loses very little.
With a calibration set, activations are quantised too, by ranges that are fixed here, so that an
answer can't depend on the other rows of its batch. They are symmetric, and attention's own products
are left alone: with zero points OpenVINO takes several times as long to make the kernels for a new
shape (measured). The processor decides how many bits the weights then have
(`core.instruction_sets`).
"""

from __future__ import annotations

import contextlib
import logging
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.compile.graphs.graph import Arrays, SourceGraph
from penstock.compile.graphs.torch_graph import not_converted
from penstock.compile.libraries import need
from penstock.compile.targets import CompileTarget, cpu_has_bf16
from penstock.core.models.instruction_sets import Int8Recipe, int8_recipe
from penstock.errors import CallerError
from penstock.runtimes.openvino.record import RECORD as OPENVINO
from penstock.runtimes.processor import instruction_set_here
from penstock.runtimes.pytorch.record import RECORD as PYTORCH


@dataclass(frozen=True, slots=True, kw_only=True)
class Lowered:
    """The files that were written into the staging folder."""

    runtime: str
    file: str
    precision: str  #: `precision` of model.yaml
    notes: tuple[str, ...] = ()
    choices: dict[str, Any] = field(default_factory=dict)


def lower(
    graph: SourceGraph, target: CompileTarget, staging: Path, calibration: Sequence[Arrays]
) -> Lowered:
    """Writes the model file. Raises CallerError (`conversion-failed`, `target-unsupported`)."""
    if target.device == "cuda":
        return lower_exported(graph, target, staging, device="cuda")
    return _lower_openvino(graph, target, staging, calibration)


def lower_exported(
    graph: SourceGraph, target: CompileTarget, staging: Path, *, device: str
) -> Lowered:
    """Writes an exported program with its weights on `device` in the target's format."""
    torch = need("torch")
    program = graph.to_exported(target.precision, device)
    for node in program.graph.nodes:  # an artifact must not name files of this machine
        node.meta.pop("stack_trace", None)
    with _quiet():
        torch.export.save(program, str(staging / "model.pt2"))
    return Lowered(
        runtime=PYTORCH.name,
        file="model.pt2",
        precision=target.precision,
        choices={"torch_device": device},
    )


def _lower_openvino(
    graph: SourceGraph, target: CompileTarget, staging: Path, calibration: Sequence[Arrays]
) -> Lowered:
    openvino = need("openvino")
    notes: list[str] = []
    choices: dict[str, Any] = {}
    precision = target.precision or ("bf16" if cpu_has_bf16() else "f32")
    with _quiet():
        model = _converted(graph)
        here = instruction_set_here()
        recipe = int8_recipe(here, calibrated=bool(calibration))
        if target.weights == "i8" and recipe.activations:
            model = _quantised(model, calibration, recipe)
            choices["int8"] = "weights and activations"
            choices["calibration_rows"] = len(calibration)
            choices["weight_bits"] = recipe.weight_bits
            if recipe.weight_bits < 8:
                notes.append(
                    f"weights have {recipe.weight_bits} bits: {here.name} has no VNNI, and sums of "
                    "products of 8 bits would be cut off"
                )
        elif target.weights == "i8":
            model = _weights_only(model)
            choices["int8"] = "weights"
            notes.append(
                "INT8 weights only: no calibration set was given (--calibration FILE quantises "
                "activations as well)"
            )
        openvino.save_model(
            model, str(staging / "model.xml"), compress_to_fp16=target.weights != "f32"
        )
    if precision == "bf16" and not cpu_has_bf16():
        notes.append("this CPU has no BF16 instructions: the artifact computes in FP32 here")
    return Lowered(
        runtime=OPENVINO.name,
        file="model.xml",
        precision=precision,
        notes=tuple(notes),
        choices=choices,
    )


def _converted(graph: SourceGraph) -> Any:
    try:
        return graph.to_openvino()
    except CallerError:
        raise
    except Exception as error:  # the converter raises RuntimeError and kinds of its own
        raise not_converted("OpenVINO", error) from None


def _weights_only(model: Any) -> Any:
    nncf = need("nncf")
    return nncf.compress_weights(model, mode=nncf.CompressWeightsMode.INT8_SYM)


def _quantised(model: Any, calibration: Sequence[Arrays], recipe: Int8Recipe) -> Any:
    nncf = need("nncf")
    halved = nncf.OverflowFix.ENABLE if recipe.weight_bits < 8 else nncf.OverflowFix.DISABLE
    try:
        return nncf.quantize(
            model,
            nncf.Dataset(list(calibration), dict),
            model_type=nncf.ModelType.TRANSFORMER,
            preset=nncf.QuantizationPreset.PERFORMANCE,
            ignored_scope=nncf.IgnoredScope(types=["ScaledDotProductAttention"], validate=False),
            subset_size=len(calibration),
            advanced_parameters=nncf.AdvancedQuantizationParameters(overflow_fix=halved),
        )
    except Exception as error:  # NNCF and the running graph raise many kinds
        raise not_converted("INT8 quantisation", error) from None


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silences NNCF and torch: they print tables and progress on standard output, which belongs to
    the report, and tracing warns of every branch on a shape, which the parity check covers."""
    logger = logging.getLogger("nncf")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
