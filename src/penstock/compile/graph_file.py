"""A graph file (.pt2, TorchScript, ONNX) as an artifact for one target.

Such a file only has tensors. A --description (a model.yaml: task, labels, heads, tokenizer) says
what it is for, or, for ONNX, the files that Hugging Face's exporters leave beside it. Without
either it is served as a tensor model.

Of an ONNX file, ONNX Runtime is the reference, and OpenVINO reads the graph itself: no torch is
needed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from penstock.artifacts.description import model_yaml
from penstock.artifacts.description.description import (
    Batching,
    ModelDescription,
    TensorSpec,
    Tokenizer,
)
from penstock.artifacts.detection.huggingface import text_model
from penstock.compile.contract import Compiled, Options, Say
from penstock.compile.graphs.graph import Arrays, SourceGraph
from penstock.compile.graphs.torch_graph import example_of, program_graph
from penstock.compile.libraries import first_line, need
from penstock.compile.proof.proof import Filled, batching_of, prove
from penstock.compile.proof.samples import Samples, TextSamples, tensor_samples
from penstock.compile.source.source import ONNX, Source
from penstock.compile.source.tokenizer_files import open_tokenizer, write_tokenizer
from penstock.compile.targets import CompileTarget
from penstock.errors import CallerError
from penstock.runtimes import registry
from penstock.runtimes.openvino.record import RECORD as OPENVINO
from penstock.runtimes.record import Interface

_TEXT_INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def compile_graph_file(
    source: Source, staging: Path, options: Options, target: CompileTarget, say: Say
) -> Compiled:
    """Compiles it. Raises the CallerErrors of loading and lowering, `tokenizer-missing`,
    `inputs-mismatch`, `task-unsupported`."""
    assert source.file is not None
    described = _described(options)
    say(f"loading {source.path.name}")
    example: Arrays
    if source.kind == ONNX:
        graph: SourceGraph = OnnxGraph(source.file)
        if described is None:
            described = text_model(source.root, OPENVINO.name, source.file.name)
        example = example_of(graph.inputs)
    else:
        torch_graph = program_graph(source, described, options)
        graph, example = torch_graph, torch_graph.example
    description = _description(graph, described, options)
    samples: Samples
    filled: Filled | None = None
    if description.tokenizer is not None:
        description, texts = _with_tokenizer(description, graph, source, staging, options)
        samples, filled = texts.make(options), texts.filled
    else:
        samples = tensor_samples(graph.inputs, example, options)
    compiled = prove(graph, description, samples, staging, options, target, say, filled=filled)
    compiled.source_bytes = source.size
    return compiled


def _described(options: Options) -> ModelDescription | None:
    """The --description, for a source that does not state its task; None without one."""
    if options.description is None:
        return None
    try:
        content = options.description.read_bytes()
    except OSError as error:
        raise CallerError(
            "description-unreadable", f"{options.description}: {error.strerror or error}"
        ) from None
    return model_yaml.parse(content, where=options.description.name)


def _description(
    graph: SourceGraph, described: ModelDescription | None, options: Options
) -> ModelDescription:
    """The task comes from the --description, the tensors from the graph."""
    batched = all(spec.shape and spec.shape[0] == -1 for spec in (*graph.inputs, *graph.outputs))
    rows_max = options.rows_max if batched else 0
    if described is None:
        if options.task not in ("", "tensor"):
            raise CallerError(
                "task-unsupported",
                f"nothing says how this file is a model for {options.task!r}",
                hint="Give --description with a model.yaml (task, labels, tokenizer), and "
                "--tokenizer.",
            )
        return ModelDescription(
            runtime=OPENVINO.name,
            inputs=graph.inputs,
            outputs=graph.outputs,
            batching=Batching(rows_max=rows_max, wait_s_max=0.0),
        )
    if not registry.record(described.runtime).has(Interface.TENSORS):
        raise CallerError(
            "task-unsupported",
            f"the description is of a model for {described.runtime}",
            hint=f"Describe a model of tensors or texts: runtime {OPENVINO.name}.",
        )
    batching = described.batching
    if batching == Batching() or not batching.buckets:
        tokens_max = described.tokenizer.tokens_max if described.tokenizer else 0
        batching = batching_of(tokens_max, rows_max)
    return dataclasses.replace(
        described, inputs=graph.inputs, outputs=graph.outputs, batching=batching
    )


def _with_tokenizer(
    description: ModelDescription,
    graph: SourceGraph,
    source: Source,
    staging: Path,
    options: Options,
) -> tuple[ModelDescription, TextSamples]:
    given = description.tokenizer
    assert given is not None
    home = source.root
    if options.tokenizer is not None:
        home = options.tokenizer.parent
        if not options.tokenizer.is_file() or options.tokenizer.name != "tokenizer.json":
            raise CallerError(
                "tokenizer-missing",
                f"{options.tokenizer} is not a tokenizer.json",
                hint="Give Hugging Face's tokenizer.json.",
            )
    tokens_max = options.tokens_max or given.tokens_max
    written = write_tokenizer(
        home, staging, tokens_max=tokens_max, vocabulary=0, pad_id=given.pad_id
    )
    tokenizer = Tokenizer(file=written.file, tokens_max=tokens_max, pad_id=given.pad_id)
    _check_inputs(graph.inputs)
    texts = TextSamples(
        open_tokenizer(staging / written.file),
        graph.inputs,
        tokens_max=tokens_max,
        pad_id=given.pad_id,
        pairs=_takes_pairs(description, graph),
    )
    return dataclasses.replace(description, tokenizer=tokenizer), texts


def _takes_pairs(description: ModelDescription, graph: SourceGraph) -> bool:
    """Whether it takes pairs of texts. Exporters give every BERT segment ids, so these are no
    proof, and several heads have them only where texts are compared."""
    if description.task == "multi-head":
        return any(spec.name == "token_type_ids" for spec in graph.inputs)
    return description.task == "pair-classification"


def _check_inputs(specs: tuple[TensorSpec, ...]) -> None:
    names = [spec.name for spec in specs]
    if "input_ids" not in names or not set(names) <= set(_TEXT_INPUTS):
        raise CallerError(
            "inputs-mismatch",
            f"the file takes {', '.join(names)}; a text model takes input_ids and, if it needs "
            "them, attention_mask and token_type_ids",
            hint="Name the inputs in the --description (in the file's order), or serve it as "
            "task: tensor.",
        )


_OF_ORT = {
    "tensor(bool)": "BOOL", "tensor(int8)": "INT8", "tensor(int16)": "INT16",
    "tensor(int32)": "INT32", "tensor(int64)": "INT64", "tensor(uint8)": "UINT8",
    "tensor(float16)": "FP16", "tensor(float)": "FP32", "tensor(double)": "FP64",
    "tensor(string)": "BYTES",
}  # fmt: skip


class OnnxGraph:
    """An ONNX file. Raises CallerError: `source-damaged`, `target-unsupported` (string tensors)."""

    framework = "ONNX Runtime FP32"

    def __init__(self, path: Path) -> None:
        self._path = path
        self._threads = 0
        self._session = self._open()
        self.inputs = _specs(self._session.get_inputs())
        self.outputs = _specs(self._session.get_outputs())
        for spec in (*self.inputs, *self.outputs):
            if spec.dtype == "BYTES":
                raise CallerError(
                    "target-unsupported",
                    f"{path.name}: {spec.name!r} is a string tensor",
                    hint="Serve the ONNX file as it is: ONNX Runtime takes strings.",
                )

    def run(self, inputs: Arrays) -> dict[str, np.ndarray]:
        names = [spec.name for spec in self.outputs]
        feed = {spec.name: inputs[spec.name] for spec in self.inputs}
        return dict(zip(names, self._session.run(names, feed), strict=True))

    def to_openvino(self) -> Any:
        openvino = need("openvino")
        try:
            return openvino.Core().read_model(str(self._path))
        except Exception as error:  # OpenVINO raises RuntimeError and its own kinds alike
            raise _unreadable(self._path, "OpenVINO", error) from None

    def to_exported(self, dtype: str, device: str) -> Any:
        raise CallerError(
            "target-unsupported",
            f"an ONNX file can't be compiled for {device} in {dtype}",
            hint="Export the model with torch.export and compile the .pt2 file, or use cpu-....",
        )

    def set_threads(self, threads: int) -> None:
        self._threads = threads
        self._session = self._open()

    def _open(self) -> Any:
        runtime = need("onnxruntime")
        options = runtime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = self._threads
        try:
            return runtime.InferenceSession(
                str(self._path), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # ONNX Runtime has exceptions of its own without a base
            raise _unreadable(self._path, "ONNX Runtime", error) from None


def _specs(ports: Sequence[Any]) -> tuple[TensorSpec, ...]:
    return tuple(
        TensorSpec(
            name=port.name,
            dtype=_OF_ORT.get(port.type, "BYTES"),
            shape=tuple(size if type(size) is int else -1 for size in port.shape),
        )
        for port in ports
    )


def _unreadable(path: Path, reader: str, error: Exception) -> CallerError:
    return CallerError(
        "source-damaged",
        f"{path.name}: {reader} can't load it: {first_line(error)[:300]}",
        hint="Export the model to ONNX again.",
    )
