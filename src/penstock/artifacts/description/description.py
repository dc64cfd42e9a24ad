"""What a model is: the description that an artifact carries or that detection derives.

`model.yaml` is the explicit form; every other layout (a bare ONNX file, OpenVINO IR, a Triton
repository, `code/inference.py`) is turned into the same `ModelDescription` by
`artifacts/detection/detect.py`.

Runtimes and instances read nothing else. Tensor names, dtypes and shapes are those of the
Open Inference Protocol; -1 is a free dimension; the first dimension is the batch when
`batching.rows_max` is above 0.

The types of the fields also declare what a file may hold (`file_schema.py`). Values that are
derived inside the server have no bounds, and a default may be a value that a file can't give.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Annotated, Final

from msgspec import Meta

from penstock.artifacts.description.sequences import SequenceBatching
from penstock.artifacts.description.triton_facts import TritonFacts
from penstock.artifacts.files.paths import ArtifactPath
from penstock.core.batching.spec import LevelPolicy
from penstock.file_schema import matching, one_of

#: Dtypes of the Open Inference Protocol that a tensor may have.
DTYPES = (
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64",
    "FP16", "FP32", "FP64", "BF16", "BYTES",
)  # fmt: skip

TASKS = (
    "tensor",
    "text-classification",
    "pair-classification",
    "text-regression",
    "feature-extraction",
    "multi-head",
    "text2text-generation",
    "text-generation",
    "payload",
)
FILLS = ("zeros", "random")
HEAD_TASKS = ("classification", "regression", "embedding")
_POOLINGS = ("mean", "cls")
_PRECISIONS = ("", "f32", "bf16", "f16")
#: A head's name is part of a tensor name of the Open Inference Protocol, before a full stop.
_HEAD_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
#: A path of a foreign server, with or without a query.
_PATH: Final = re.compile(r"(/[A-Za-z0-9._~!$&'()*+,;=:@%/?-]{0,500})?")
_PATH_ALLOWED: Final = "a path that begins with /, such as /health"
#: A model that needs more warm-up requests should warm itself up in its own code.
WARM_UPS_MAX: Final = 100
WARM_UP_TIMES_MAX: Final = 1000
#: Elements of all tensors of one warm-up request: a shape in a file can claim any size.
WARM_UP_ELEMENTS_MAX: Final = 1 << 26
_SIZE_MAX = 2**40  #: largest size of one dimension
_TOKENS_MAX = 10_000_000
_EACH_S_MAX = 10.0

_TokenId = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_Seconds = Annotated[float, Meta(ge=0.0, le=_EACH_S_MAX)]
_Tokens = Annotated[int, Meta(ge=0, le=_TOKENS_MAX)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """One named tensor. `shape` includes the batch dimension when the model batches."""

    name: str  #: as the model's file names it
    dtype: Annotated[str, one_of(DTYPES)]  #: type of its elements
    shape: tuple[Annotated[int, Meta(ge=-1, le=_SIZE_MAX)], ...]  #: -1 = any size


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    """How requests to one copy may be joined. All times in s, all sizes in rows."""

    rows_max: int = (
        1  #: rows in a batch; 1 = the model batches, one row at a time; 0 = no batch dimension
    )
    wait_s_max: float = 0.0  #: longest time the oldest item waits for others to join
    rows_preferred: tuple[
        int, ...
    ] = ()  #: sizes to leave at without waiting longer (Triton's preferred_batch_size)
    queue_rows_max: int = 2048  #: rows waiting in one copy before it refuses
    queue_wait_s_max: float | None = (
        None  #: an item older than this is refused; None = its deadline alone
    )
    timeout_override: bool = False  #: a caller's own timeout may make that wait shorter
    preserves_order: bool = False  #: a copy answers in the order in which requests came
    buckets: tuple[int, ...] = ()  #: padded lengths, ascending; () = no length buckets
    priorities: int = 1  #: number of priority levels; 0 is served first
    priority_default: int = 0  #: level of a request that names none
    #: how each level waits; () = by queue_rows_max and queue_wait_s_max alone
    levels: tuple[LevelPolicy, ...] = ()
    latency_s_p99_max: float | None = None  #: service level; delay and batch size follow from it


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokenizer:
    """The Hugging Face `tokenizers` file inside the artifact, and the inputs it feeds."""

    file: ArtifactPath = "tokenizer.json"  #: path below the artifact's root
    tokens_max: Annotated[int, Meta(ge=1, le=1_000_000)] = 512  #: longer texts are cut here
    pad_id: _TokenId = 0  #: token that fills shorter texts of a batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedding:
    """How token vectors become one vector per text."""

    pooling: Annotated[str, one_of(_POOLINGS)] = "mean"  #: mean of all tokens, or the first one
    normalize: bool = True  #: scale each vector to an L2 norm of 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """One of several heads over a shared backbone; all heads run in one forward pass."""

    #: name of the head in requests and answers
    name: Annotated[str, matching(_HEAD_NAME, "up to 64 letters, digits, hyphens, underscores")]
    task: Annotated[str, one_of(HEAD_TASKS)]  #: what the output is made into
    output: str  #: name of the model's output tensor for this head
    labels: tuple[str, ...] = ()  #: classification: class names, in the order of the logits


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """How an encoder-decoder model writes its answer."""

    encoder_file: ArtifactPath = "encoder.xml"  #: path below the artifact's root
    decoder_file: ArtifactPath = "decoder.xml"  #: path below the artifact's root
    eos_ids: tuple[_TokenId, ...] = (1,)  #: token ids; any of them ends an answer
    decoder_start_id: _TokenId = 0  #: token id that an answer begins with
    #: most new tokens that a request may ask for
    tokens_new_max: Annotated[int, Meta(ge=1, le=1_000_000)] = 64
    #: most beams that a request may ask for; 1 = greedy search only
    beams_max: Annotated[int, Meta(ge=1, le=64)] = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceSpec:
    """How long the steps of a paced engine take (`core/batching/generation_steps.py`), and what it
    answers.

    The first five keys have the names of a scenario's `[generation]`, so a table fits both.
    """

    # A step of a few microseconds would be a busy loop; one of more than ten minutes looks dead.
    #: s per step; this default and the next two are measured on a 135M Llama on two cores
    step_s: Annotated[float, Meta(ge=1e-4, le=600.0)] = 0.011
    sequence_s: _Seconds = 0.0015  #: s more for each sequence in the step
    prefill_token_s: _Seconds = 0.0005  #: s more for each prompt token that is read in the step
    #: number of prompt beginnings (prefixes) that stay cached and are not read again
    prefixes_cached_max: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    #: standard deviation of the logarithm of the noise on a step's time; the noise has mean 1
    sigma: Annotated[float, Meta(ge=0.0, le=2.0)] = 0.0
    #: seed of the noise; 0 = each start draws its own, so that copies differ
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    #: tokens of the beginning that longer prompts may share; 0 = prompts share no beginning
    prefix_tokens: _Tokens = 0
    #: tokens after which an answer ends by itself; 0 = it ends where the request cuts it
    answer_tokens: _Tokens = 0
    load_s: Annotated[float, Meta(ge=0.0, le=3600.0)] = 0.0  #: s until the model is ready


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineKeys:
    """How a generation engine runs a model: the keys that files give in the server's units."""

    #: most tokens of a request's prompt and answer together; 0 = the model's positions
    context_tokens_max: Annotated[int, Meta(ge=1, le=100_000_000)] = 0
    sequences_max: Annotated[int, Meta(ge=1, le=4096)] = 64  #: requests answered at once; more wait
    #: prompt and answer tokens that one step computes
    tokens_batched_max: Annotated[int, Meta(ge=1, le=_TOKENS_MAX)] = 2048
    chunked_prefill: bool = True  #: long prompts are read in parts, between other requests' tokens
    prefix_caching: bool = True  #: prompts that begin alike share their cache blocks
    #: at temperature 0 the same prompt gives the same answer to the bit: prompts are read whole,
    #: without a prefix cache, and requests are computed one by one (`openvino_genai` only)
    repeatable: bool = False
    #: what a request of OpenAI's APIs gets where it names no temperature, top_p, top_k, min_p or
    #: repetition_penalty: `model` = those of generation_config.json, `openai` = OpenAI's
    sampling_defaults: Annotated[str, one_of(("model", "openai"))] = "model"
    #: path of a Jinja file in the artifact that replaces the tokenizer's template
    chat_template: ArtifactPath = ""
    python: str = ""  #: interpreter for the engine's process; "" = the server's own
    #: options of the engine itself, passed on unchanged
    options: dict[str, str] = field(default_factory=dict)
    pace: PaceSpec | None = None  #: `paced` only: its table of times


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions(EngineKeys):
    """How a generation engine runs a model. 0 = derived from model and machine."""

    cache_bytes: int = 0  #: memory for keys and values; 0 = derived


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUpTensor:
    """One input of a warm-up request."""

    name: str  #: name of the model's input
    dtype: Annotated[str, one_of(DTYPES)]  #: type of its elements
    #: every size is given, none is free
    shape: tuple[Annotated[int, Meta(ge=0, le=_SIZE_MAX)], ...]
    fill: Annotated[str, one_of(FILLS)] = "zeros"  #: the values, unless `file` holds them
    #: file with the raw bytes in the Open Inference Protocol's form, below the artifact's root
    file: ArtifactPath = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUp:
    """A request that a model answers before it gets any others: a body, a file, or tensors."""

    name: str = ""  #: name of the request in errors
    body: str = ""  #: the body as it is; instead of `file` and `tensors`
    file: ArtifactPath = ""  #: file that holds the body, below the artifact's root
    content_type: str = ""  #: "" = by the file's suffix, else JSON
    accept: str = ""  #: content type of the answer; "" = the model's choice
    tensors: tuple[WarmUpTensor, ...] = ()  #: inputs by name; instead of `body` and `file`
    times: Annotated[int, Meta(ge=1, le=WARM_UP_TIMES_MAX)] = 1  #: how often, in each lane


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelKeys:
    """What a model.yaml says in the server's own units.

    `task` says who understands the body: `tensor` (the tensor codecs), the text tasks (tokenizer
    in; labels, numbers, vectors or text out), `payload` (the model's own code; bytes pass through).
    """

    runtime: str  #: a name of `runtimes.registry`
    task: Annotated[str, one_of(TASKS)] = "tensor"
    name: str = ""  #: the model's own name; empty = the endpoint's name
    file: ArtifactPath = ""  #: model file (or code file) below the artifact's root
    version: str = "1"  #: version that the Open Inference Protocol shows
    inputs: tuple[TensorSpec, ...] = ()  #: empty = read from the model file when it is loaded
    outputs: tuple[TensorSpec, ...] = ()  #: as `inputs`
    labels: tuple[str, ...] = ()  #: class (regression: value) names, in the order of the logits
    tokenizer: Tokenizer | None = None  #: text tasks only
    embedding: Embedding | None = None  #: tasks `feature-extraction` and `multi-head` only
    heads: tuple[Head, ...] = ()  #: task `multi-head` only
    generation: Generation | None = None  #: task `text2text-generation` only
    lanes: Annotated[int, Meta(ge=1, le=1024)] = 1  #: batches of one copy that may run at once
    #: intra-op threads of each lane; 0 = its share of the instance's cores
    threads_per_lane: Annotated[int, Meta(ge=0, le=1024)] = 0
    pinned: bool = False  #: each lane gets cores of its own, if enough are free
    #: runtime `process`: argv; "{port}", "{model_dir}" are filled in, and a first `python` is that
    #: of the model's environment
    command: tuple[str, ...] = ()
    #: runtime `process`: path that answers 200 once the program is ready; "" = /ping
    health: Annotated[str, matching(_PATH, _PATH_ALLOWED)] = ""
    #: runtime `process`: path that requests are sent to; "" = /invocations
    predict: Annotated[str, matching(_PATH, _PATH_ALLOWED)] = ""
    #: runtime `python`: the file defines TritonPythonModel, not model_fn
    triton_python: bool = False
    #: parameters of config.pbtxt or model.yaml, for the model's code
    parameters: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)  #: variables of worker processes
    #: packages that the model's own code needs, beside those of its requirements.txt, such as
    #: "scikit-learn==1.2.2"; its processes run in an environment that has them
    requirements: tuple[str, ...] = ()
    #: archive in the artifact with a whole environment, as conda-pack or venv-pack make it
    packed_environment: ArtifactPath = ""
    #: version of Python for the model's own code, such as "3.12"; "" = the server's own
    python: str = ""
    #: number format of the computation: "" (the runtime's choice), "f32", "bf16", "f16"
    precision: Annotated[str, one_of(_PRECISIONS)] = ""
    warmup: tuple[WarmUp, ...] = ()  #: answered before the model gets other requests


@dataclass(frozen=True, slots=True, kw_only=True)
class EnsembleStep:
    """One step of a Triton ensemble: which model it calls, and where its tensors come from and go.

    A tensor of the ensemble is one of its inputs or an output of exactly one step.
    """

    model: str  #: name of the called model's folder
    version: int = -1  #: -1 = whichever version is served
    #: name of the called model's input -> name of the ensemble's tensor
    inputs: dict[str, str] = field(default_factory=dict)
    #: output of the called model -> tensor of the ensemble; others are dropped
    outputs: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInside:
    """Another model of the same artifact, which this one may call."""

    name: str
    folder: str  #: relative to the folder of the model that calls it, such as "../encoder"
    description: ModelDescription


#: The precision of graphs of numbers that say nothing of it: who made one expects its own answers.
#: `precision: bf16` in model.yaml is faster on processors that have it.
PRECISION_AS_MADE: Final = "f32"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDescription(ModelKeys):
    """Everything the instance needs to load and serve a copy."""

    engine: EngineOptions | None = None  #: task `text-generation` only
    batching: Batching = field(default_factory=Batching)
    decoupled: bool = False  #: runtime `python`: a request to it has any number of responses
    sequences: SequenceBatching | None = (
        None  #: requests of a sequence share state; None: they do not
    )
    calls_models: bool = False  #: runtime `python`: its code may call other models of the artifact
    ensemble: tuple[EnsembleStep, ...] = ()  #: runtime `pipeline`: the steps of a Triton ensemble
    #: other versions that are served -> their files; `version` is the default, the highest
    other_versions: dict[str, str] = field(default_factory=dict)
    triton: TritonFacts | None = None  #: None: the model is none of a Triton repository
    models: tuple[ModelInside, ...] = ()  #: models of the artifact that this one calls or may call
    #: runtimes with Python workers: requirements of the libraries that the model was made with, as
    #: detection or the image's name tells them, such as "scikit-learn==1.2.*"
    framework: tuple[str, ...] = ()
    #: runtimes with Python workers: the module of ours whose functions stand in for those that the
    #: model's code does not define; "" = `sagemaker_contract`'s own defaults
    handler: str = ""
    #: another runtime that reads the model file, which loads it where `runtime` does not take it;
    #: "" = there is none, or the runtime was named by the model's owner
    runtime_fallback: str = ""
    runtime_reason: str = ""  #: why it is not the usual runtime for such files; "" = it is
    #: runtime `process`: the command is the operator's, who says by himself where it runs
    mapped_command: bool = False
    image: str = ""  #: runtime `container`: id of the image in the engine
    image_resolved: str = ""  #: runtime `container`: what names the image for good
    engine_program: str = ""  #: runtime `container`: path of the engine's program
    #: pickle formats may be loaded; said by the operator or who made the model, never by the
    #: artifact
    trusted: bool = False
    #: its processes have no sandbox (`confinement`); said by the operator alone
    unconfined: bool = False
