"""What Penstock knows of a runtime: one record, in the runtime's own folder.

Code that needs a fact about "the runtime of this model" reads it from the record (`registry` finds
it by name): detection and the rules of model.yaml, Triton's names, the estimate of memory, lanes,
and the function that loads a model. No code compares a runtime's name.

A record is imported long before its runtime, so it imports no library of models. Functions are
named as "module:function" and imported when the first model needs them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

from penstock.artifacts.description.description import ModelDescription
from penstock.artifacts.files.model_files import FileFacts
from penstock.core.models.memory_need import MemoryRule


class Interface(StrEnum):
    """How an instance calls a runtime's models.

    A runtime has one loader for each of its interfaces. A loader's arguments and its result:
    """

    #: (context) -> `base.TensorRuntime`, in lane threads. Blocks.
    TENSORS = "tensors"
    #: (context) -> `seq2seq.model.Seq2SeqModel`, in a thread. Blocks.
    SEQ2SEQ = "seq2seq"
    #: (model's folder, settings) -> (`GenerationEngine`, `Prompts`), in a process of its own.
    ENGINE = "engine"
    #: (context, listener) -> `base.PayloadRuntime`, with processes of its own. A coroutine.
    PAYLOAD = "payload"
    #: (context, listener) -> `pipeline.runtime.PipelineRuntime`. A coroutine.
    PIPELINE = "pipeline"


#: The task of a model that names none, by its runtime's first interface.
_TASKS = {
    Interface.TENSORS: "tensor",
    Interface.SEQ2SEQ: "text2text-generation",
    Interface.ENGINE: "text-generation",
    Interface.PAYLOAD: "payload",
    Interface.PIPELINE: "payload",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRules:
    """Facts about an engine that generates text. An engine with neither `graph` nor `weights` needs
    no model."""

    #: The file of a compiled model that it loads; models with this file are detected as its own
    graph: str = ""
    #: Pattern of the uncompiled weights that it reads; used only if the engine is named
    weights: str = ""
    asked_as: str = ""  #: its name in rolling_batch of serving.properties
    #: Settings that Penstock does not know are passed to the engine as its own options
    passes_options: bool = False
    cache_at_start: bool = False  #: takes all memory for keys and values when it starts
    without_adapters: str = "it has none"  #: why it has no adapters, for errors

    @property
    def variables(self) -> str:
        """Prefix of AWS's variables for it; "" = there are none."""
        return f"SM_{self.asked_as.upper()}_" if self.asked_as else ""

    @property
    def needs_model(self) -> bool:
        return bool(self.graph or self.weights)

    def has_model(self, root: Path) -> bool:
        """Whether a language model's folder has the files that it loads."""
        if self.graph:
            return (root / self.graph).is_file()
        return bool(self.weights) and next(root.glob(self.weights), None) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeRecord:
    """One runtime. Only `name`, `title`, `loaders` and `memory` are required."""

    name: str  #: its name in model.yaml and after local://
    title: str  #: what it serves, for the reference: "ONNX and OpenVINO IR, by OpenVINO"
    loaders: Mapping[Interface, str]  #: "module:function" for each interface; the usual one first
    memory: MemoryRule
    memory_of: Mapping[str, MemoryRule] = field(
        default_factory=dict
    )  #: suffix of a model file -> its own memory rule, where that differs
    #: Patterns, below the artifact's root, of files that are held in memory; None: the model file
    #: and its data files.
    weight_files: tuple[str, ...] | None = None
    process_per_lane: bool = False  #: each lane is a process that holds the model
    on_accelerators: bool = False  #: with accelerators, the weights are in their memory

    library: str = ""  #: the Python module of its library; "" = none
    extra: str = ""  #: Penstock's extra that installs the library; "" = it is always installed
    first_import: str = ""  #: "module:function" that prepares the library, where that takes long
    #: "module:function", called with a path: reads the file in a process that may crash. "" = not
    #: needed.
    trial: str = ""

    # How its models are detected.
    understood: str = ""  #: what it accepts as a model, for errors
    #: Suffixes of model files that it loads, the preferred one first
    suffixes: tuple[str, ...] = ()
    #: Suffixes of files that may run code when they are loaded, looked for after all others
    pickles: tuple[str, ...] = ()
    #: Whether a file with such a suffix is really a model. Reads the file, but never loads it.
    recognises: Callable[[Path], bool] = lambda path: True
    #: (root, file, trusted): raises CallerError for a file that is damaged, or that could run code
    #: and is not trusted. None: any file is accepted.
    check: Callable[[Path, str, bool], FileFacts] | None = None
    #: Hugging Face's exporters write its files, so with a tokenizer it may be a text model
    beside_tokenizers: bool = False
    #: Module of ours that loads its files in a worker process and answers for them there
    #: (`ModelDescription.handler`); "" = it has no such files
    handler: str = ""
    #: The handler gives a predictor (`python.predictor_contract`): rows in, tensors out. Else it
    #: has the functions of SageMaker's contract.
    predicts: bool = False
    #: Requirements of the library that the handler needs, where a file does not say its version
    framework: tuple[str, ...] = ()
    #: (root, image, trusted): the model of an artifact beside one of AWS's images that serves such
    #: files in its own way; None: the image is another one.
    image_layout: Callable[[Path, str, bool], ModelDescription | None] | None = None
    default_file: str = ""  #: the model file if model.yaml names none; "" = found by its suffix
    #: (root, environment): the model of an artifact with its own layout; None: it is none.
    layout: Callable[[Path, Mapping[str, str]], ModelDescription | None] | None = None
    #: SageMaker's toolkit, by the word in the image's name -> the module of ours with its default
    #: functions, in place of `handler`
    handlers: Mapping[str, str] = field(default_factory=dict)
    #: Lanes that the model's environment asks for. Raises CallerError for a variable that can't be
    #: honoured.
    lanes_asked: Callable[[Mapping[str, str]], int] = lambda environment: 1
    #: As `layout`, for what is asked last: the artifact has no other layout, and is no file of
    #: another runtime. Raises CallerError where the model is known and can't be served as it is.
    lone: Callable[[Path, Mapping[str, str]], ModelDescription | None] | None = None
    triton: Mapping[str, str] = field(
        default_factory=dict
    )  #: backend or platform of config.pbtxt -> the file that Triton takes when none is named
    platform: str = ""  #: the platform's name for gateways; "" = `name`

    # Settings that its models may have.
    #: Keys of model.yaml that only some runtimes accept: command, engine.pace, health, precision,
    #: predict, requirements (with python), triton_python.
    options: frozenset[str] = frozenset()
    takes_strings: bool = True  #: accepts tensors of dtype BYTES
    #: For runtimes with `Interface.ENGINE`
    engine: EngineRules = field(default_factory=EngineRules)

    # How it runs.
    #: In jobs, a copy is fastest with one lane of one thread for each core
    lane_per_core: bool = False
    #: `penstock compile` makes its models: tested on one processor, and again on this one
    compiled_for_cpus: bool = False
    #: What target models of one host share: worker processes, one server, or nothing.
    shared: Literal["", "workers", "server"] = ""
    #: "module:class" of the `foreign.server.ForeignServer` that serves its models; "" = none
    server: str = ""
    runs_images: bool = False  #: its models are images that a container engine has
    #: It is called over the network, so its models can't be cut off from it
    over_network: bool = False

    @property
    def task(self) -> str:
        """The task, where model.yaml has none."""
        return "tensor" if self.predicts else _TASKS[next(iter(self.loaders))]

    def reads(self, path: Path) -> bool:
        """Whether it loads this model file, by name and content."""
        return path.name.endswith(self.endings) and self.recognises(path)

    @property
    def endings(self) -> tuple[str, ...]:
        """All suffixes of its files."""
        return (*self.suffixes, *self.pickles)

    @property
    def reads_files(self) -> bool:
        """Whether a file alone is a model of it, without code or configuration beside it."""
        return self.has(Interface.TENSORS) or bool(self.handler)

    def has(self, *interfaces: Interface) -> bool:
        """Whether it has any of these interfaces."""
        return not self.loaders.keys().isdisjoint(interfaces)

    @property
    def in_threads(self) -> bool:
        """Lanes are threads of the instance, which may be pinned to cores."""
        return self.has(Interface.TENSORS, Interface.SEQ2SEQ)

    @property
    def in_processes(self) -> bool:
        return self.has(Interface.ENGINE, Interface.PAYLOAD, Interface.PIPELINE)

    def checked(self, root: Path, file: str, *, trusted: bool) -> FileFacts:
        """Raises CallerError (`model-file-invalid`, `artifact-incomplete`, ...)."""
        return FileFacts() if self.check is None else self.check(root, file, trusted)


def imported(place: str) -> Any:
    """Imports what "module:function" names. Blocks for as long as the import takes."""
    module, _, name = place.partition(":")
    return attrgetter(name)(importlib.import_module(module))
