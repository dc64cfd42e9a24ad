"""What Penstock knows of a runtime: one record, in the runtime's own folder.

Whoever asks something of "the runtime of this model" reads it off the record (`registry` finds it
by name): detection and the rules of model.yaml, Triton's words, the estimate of memory, lanes, and
what loads a model. A runtime's name is compared nowhere.

A record is imported long before its runtime is, so it imports no library of models. What does the
work is named as "module:function" and imported when the first model needs it.
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
    """What a runtime's models are to an instance: who calls them, and with what.

    A runtime gives one loader for each interface that it has. Called with a `LoadContext`:
    """

    #: -> `base.TensorRuntime`, in lane threads. Blocks.
    TENSORS = "tensors"
    #: -> `seq2seq.model.Seq2SeqModel`, in a thread. Blocks.
    SEQ2SEQ = "seq2seq"
    #: (model's folder, settings) -> (`GenerationEngine`, `Prompts`), in a process of its own.
    ENGINE = "engine"
    #: (context, listener) -> `base.PayloadRuntime`, with processes of its own. A coroutine.
    PAYLOAD = "payload"
    #: (context, listener) -> `pipeline.runtime.PipelineRuntime`. A coroutine.
    PIPELINE = "pipeline"


#: The task of a model of which nothing else is said, by its runtime's first interface.
_TASKS = {
    Interface.TENSORS: "tensor",
    Interface.SEQ2SEQ: "text2text-generation",
    Interface.ENGINE: "text-generation",
    Interface.PAYLOAD: "payload",
    Interface.PIPELINE: "payload",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRules:
    """What is asked of an engine that writes text. With neither graph nor weights it needs no
    model."""

    graph: str = ""  #: the file of a compiled model that it loads; such a model is found by it
    weights: str = ""  #: pattern of the weights that it reads, uncompiled; only where it is asked
    asked_as: str = ""  #: by rolling_batch of serving.properties
    passes_options: bool = False  #: settings that are not Penstock's are options of its own
    cache_at_start: bool = False  #: takes all memory of keys and values when it starts
    without_adapters: str = "it has none"  #: why it has no adapters, where it says so

    @property
    def variables(self) -> str:
        """How AWS's variables for it begin; "" = there are none."""
        return f"SM_{self.asked_as.upper()}_" if self.asked_as else ""

    @property
    def needs_model(self) -> bool:
        return bool(self.graph or self.weights)

    def has_model(self, root: Path) -> bool:
        """Whether the files of a language model's folder are what it loads."""
        if self.graph:
            return (root / self.graph).is_file()
        return bool(self.weights) and next(root.glob(self.weights), None) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeRecord:
    """One runtime. Only `name`, `title`, `loaders` and `memory` have to be given."""

    name: str  #: in model.yaml and behind local://
    title: str  #: what it serves, for the reference: "ONNX and OpenVINO IR, by OpenVINO"
    loaders: Mapping[Interface, str]  #: "module:function" of each interface; the usual one first
    memory: MemoryRule
    memory_of: Mapping[str, MemoryRule] = field(
        default_factory=dict
    )  #: of model files with this ending, where it is another
    #: Patterns below the artifact's root of the files that are held in memory; None: the model file
    #: and what lies beside it.
    weight_files: tuple[str, ...] | None = None
    process_per_lane: bool = False  #: each lane is a process that holds the model
    on_accelerators: bool = False  #: with accelerators the weights are in their memory

    library: str = ""  #: the module that computes, where it is one of Python's; "" = none
    extra: str = ""  #: of Penstock, that installs the library; "" = it is always there
    first_import: str = ""  #: "module:function" that makes the library ready, where that takes long
    #: "module:function" of a path: reads the file in a process that may die of it. "" = not needed.
    trial: str = ""

    # How a model of it is recognised.
    understood: str = ""  #: what it takes for a model, in the words of errors
    suffixes: tuple[str, ...] = ()  #: of model files that it loads, the preferred first
    #: Whether a file with such a suffix is a model at all. Looks, never loads.
    recognises: Callable[[Path], bool] = lambda path: True
    #: (root, file, trusted): raises CallerError for a file that is damaged, or that could run code
    #: and is not trusted. None: any file will do.
    check: Callable[[Path, str, bool], FileFacts] | None = None
    beside_tokenizers: bool = False  #: Hugging Face's exporters write its files: texts, perhaps
    default_file: str = ""  #: where model.yaml names none; "" = found by its suffix
    #: (root, environment): the model of an artifact with a layout of its own; None: it is none.
    layout: Callable[[Path, Mapping[str, str]], ModelDescription | None] | None = None
    triton: Mapping[str, str] = field(
        default_factory=dict
    )  #: backend or platform of config.pbtxt -> the file that Triton takes when none is named
    platform: str = ""  #: as gateways tell it; "" = the name

    # What its models may be given.
    #: Keys of model.yaml that not every runtime takes: command, engine.pace, precision,
    #: triton_python.
    options: frozenset[str] = frozenset()
    takes_strings: bool = True  #: tensors of dtype BYTES
    engine: EngineRules = field(default_factory=EngineRules)  #: with `Interface.ENGINE`

    # How it runs.
    lane_per_core: bool = False  #: a job's copy is fastest with a lane of one thread for each core
    compiled_for_cpus: bool = False  #: by `penstock compile`: proved on one processor, asked here
    #: What target models of one host have in common: worker processes, one server, or nothing.
    shared: Literal["", "workers", "server"] = ""
    over_network: bool = False  #: spoken to over the network, which can't be taken from it

    @property
    def task(self) -> str:
        """Where model.yaml says none."""
        return _TASKS[next(iter(self.loaders))]

    def reads(self, path: Path) -> bool:
        """Whether it is a model file that it loads, by name and content."""
        return path.name.endswith(self.suffixes) and self.recognises(path)

    def has(self, *interfaces: Interface) -> bool:
        """Any of them."""
        return any(interface in self.loaders for interface in interfaces)

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
    """What "module:function" names. Blocks for as long as the library takes to import."""
    module, _, name = place.partition(":")
    return attrgetter(name)(importlib.import_module(module))
