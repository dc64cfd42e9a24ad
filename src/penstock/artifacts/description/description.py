"""What a model is: the description that an artifact carries or that detection derives.

`model.yaml` is the explicit form; every other layout (a bare ONNX file, OpenVINO IR, a Triton
repository, `code/inference.py`) is turned into the same `ModelDescription` by
`artifacts/detection/detect.py`.
Runtimes and the instance read nothing but this. Tensor names, dtypes and shapes are those of the
Open Inference Protocol; -1 is a free dimension; the first dimension is the batch when
`batching.rows_max` is above 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field

#: Dtypes of the Open Inference Protocol that a tensor may have.
DTYPES = (
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64",
    "FP16", "FP32", "FP64", "BF16", "BYTES",
)  # fmt: skip

RUNTIMES = (
    "openvino", "onnxruntime", "torch", "seq2seq", "openvino_genai", "vllm", "paced", "python",
    "process", "pipeline",
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """One named tensor. `shape` includes the batch dimension when the model batches."""

    name: str
    dtype: str  #: one of DTYPES
    shape: tuple[int, ...]  #: -1 = any


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    """How requests to one copy may be joined. All times in s, all sizes in rows."""

    rows_max: int = (
        1  #: rows in a batch; 1 = the model batches, one row at a time; 0 = no batch dimension
    )
    wait_s_max: float = 0.0  #: longest time the oldest item waits for company
    rows_preferred: tuple[
        int, ...
    ] = ()  #: sizes to leave at without waiting longer (Triton's preferred_batch_size)
    queue_rows_max: int = 2048  #: rows waiting in one copy before it refuses
    queue_wait_s_max: float | None = (
        None  #: an item older than this is refused; None = its deadline alone
    )
    buckets: tuple[int, ...] = ()  #: padded lengths, ascending; () = no length buckets
    priorities: int = 1  #: number of priority levels; 0 is served first
    latency_s_p99_max: float | None = None  #: service level: delay and size follow from it


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokenizer:
    """The Hugging Face `tokenizers` file inside the artifact, and the inputs it feeds."""

    file: str = "tokenizer.json"  #: path below the artifact's root
    tokens_max: int = 512  #: longer texts are cut here
    pad_id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedding:
    """How token vectors become one vector per text."""

    pooling: str = "mean"  #: mean | cls
    normalize: bool = True  #: L2 norm 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """One of several heads over a shared backbone; all heads run in one forward pass."""

    name: str  #: how requests and answers call it
    task: str  #: one of HEAD_TASKS
    output: str  #: the model's output tensor that holds it
    labels: tuple[str, ...] = ()  #: classification: class names, in the order of the logits


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """How an encoder-decoder model writes its answer."""

    encoder_file: str = "encoder.xml"
    decoder_file: str = "decoder.xml"
    eos_ids: tuple[int, ...] = (1,)
    decoder_start_id: int = 0
    tokens_new_max: int = 64  #: upper bound of what a request may ask for
    beams_max: int = 4  #: likewise; 1 = greedy only


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceSpec:
    """How long a paced engine's steps take (`core/batching/generation_steps.py`), and what it
    answers.
    """

    step_s: float = 0.011  #: of each step; as the next three, those of a 135M Llama on two cores
    sequence_s: float = 0.0015  #: more for each sequence in the step
    prefill_token_s: float = 0.0005  #: more for each token of a prompt that is read in the step
    prefixes_cached_max: int = 0  #: beginnings of prompts that are not read again
    sigma: float = 0.0  #: of the logarithm of the noise on a step's time; its mean is 1
    seed: int = 0  #: of the noise; 0 = each start draws its own, so that copies differ
    prefix_tokens: int = 0  #: the beginning that longer prompts may share; 0 = they share none
    answer_tokens: int = 0  #: an answer ends by itself after so many; 0 = where it is cut
    load_s: float = 0.0  #: until it is ready


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """How a generation engine runs a model. 0 = derived from model and machine."""

    context_tokens_max: int = 0  #: prompt and answer of a request; 0 = the model's positions
    sequences_max: int = 64  #: answered at once; more wait
    tokens_batched_max: int = 2048  #: prompt and answer tokens of one step
    chunked_prefill: bool = True  #: long prompts are taken in parts, between others' tokens
    prefix_caching: bool = True  #: prompts that begin alike share their cache blocks
    cache_bytes: int = 0  #: of keys and values
    chat_template: str = ""  #: a Jinja file of the artifact that replaces the tokenizer's template
    python: str = ""  #: interpreter of the engine's process; "" = the server's own
    options: dict[str, str] = field(default_factory=dict)  #: the engine's own, passed through
    pace: PaceSpec | None = None  #: `paced`: its table of times


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUpTensor:
    """One input of a warm-up request."""

    name: str
    dtype: str  #: one of DTYPES
    shape: tuple[int, ...]  #: whole: no size is free
    fill: str = "zeros"  #: one of FILLS, where `file` does not say more
    file: str = (
        ""  #: its raw bytes in the Open Inference Protocol's form, below the artifact's root
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUp:
    """A request that a model answers before it is given others: a body, a file, or tensors."""

    name: str = ""  #: how errors call it
    body: str = ""
    file: str = ""  #: holds the body; below the artifact's root
    content_type: str = ""  #: "" = by the file's ending, else JSON
    accept: str = ""
    tensors: tuple[WarmUpTensor, ...] = ()
    times: int = 1  #: in each lane


@dataclass(frozen=True, slots=True, kw_only=True)
class EnsembleStep:
    """One step of a Triton ensemble: which model it calls, and where its tensors come from and go.

    A tensor of the ensemble is one of its inputs or what a step makes; it has one maker.
    """

    model: str  #: by its folder's name
    version: int = -1  #: -1 = whichever is served
    inputs: dict[str, str] = field(default_factory=dict)  #: the model's -> the ensemble's tensor
    outputs: dict[str, str] = field(default_factory=dict)  #: likewise; what is not named is left


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInside:
    """Another model of the same artifact, which this one may call."""

    name: str
    folder: str  #: relative to the folder of the model that calls it, such as "../encoder"
    description: ModelDescription


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDescription:
    """Everything the instance needs to load and serve a copy.

    `task` says who understands the body: `tensor` (the tensor codecs), the text tasks (tokenizer
    in; labels, numbers, vectors or text out), `payload` (the model's own code: runtimes `python`
    and `process`, bytes pass through).
    """

    runtime: str  #: one of RUNTIMES
    task: str = "tensor"  #: one of TASKS
    name: str = ""  #: the model's own name; the endpoint's name is used where it is empty
    file: str = ""  #: model file (or code file) below the artifact's root
    version: str = "1"
    inputs: tuple[TensorSpec, ...] = ()  #: empty: read from the model file when it is loaded
    outputs: tuple[TensorSpec, ...] = ()
    labels: tuple[str, ...] = ()  #: class (regression: value) names, in the order of the logits
    tokenizer: Tokenizer | None = None
    embedding: Embedding | None = None
    heads: tuple[Head, ...] = ()  #: `multi-head`
    generation: Generation | None = None  #: `text2text-generation`
    engine: EngineOptions | None = None  #: `text-generation`
    batching: Batching = field(default_factory=Batching)
    lanes: int = 1  #: batches of one copy that may run at once
    threads_per_lane: int = 0  #: intra-op threads; 0 = what the instance's cores leave per lane
    pinned: bool = False  #: each lane has cores of its own, if so many are free
    command: tuple[str, ...] = ()  #: `process`: argv; "{port}" and "{model_dir}" are filled in
    triton_python: bool = False  #: `python`: the file defines TritonPythonModel, not model_fn
    calls_models: bool = False  #: `python`: its code may call other models of the artifact
    parameters: dict[str, str] = field(
        default_factory=dict
    )  #: config.pbtxt / model.yaml parameters, for the model's code
    environment: dict[str, str] = field(default_factory=dict)  #: for worker processes
    warmup: tuple[WarmUp, ...] = ()  #: answered before the model is given other requests
    ensemble: tuple[EnsembleStep, ...] = ()  #: `pipeline`: the steps of a Triton ensemble
    models: tuple[ModelInside, ...] = ()  #: of the artifact, that this one calls or may call
    precision: str = ""  #: what to compute in: "" (the runtime's choice), "f32", "bf16", "f16"
    trusted: bool = (
        False  #: pickle formats may be loaded: set by the operator, never by the artifact
    )
