"""OpenVINO GenAI's continuous batching as a `GenerationEngine`: paged attention on CPUs.

Token ids go in and come out; no text of a request passes through the library, which has been seen
to corrupt the heap on string tensors. The number of cache blocks is fixed at the start: a request
that could never fit is refused here, because the library would drop it without an error. Adapters
are part of the graph (`adapters`), so another set of them needs another engine.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.distribution import install_command
from penstock.errors import CallerError, ModelError
from penstock.runtimes.generation.adapter_files import AdapterFiles, read_adapter
from penstock.runtimes.generation.base import (
    AT_START,
    LENGTH,
    LOGPROBS_MAX,
    STOP,
    EngineRequest,
    GenerationEngine,
    StepOutput,
    ToolText,
)
from penstock.runtimes.generation.prompts import Prompts, model_prompts
from penstock.runtimes.generation.tool_formats import ToolFormats
from penstock.runtimes.openvino.runtime import ROUNDED_GROUP, arithmetic
from penstock.runtimes.openvino.shapes import weights_bytes
from penstock.runtimes.openvino_genai.adapters import (
    ADAPTERS_MAX,
    HEAD_SIZE,
    graph_with_adapters,
)
from penstock.runtimes.openvino_genai.scores import PromptScores, needs_scores
from penstock.runtimes.openvino_genai.structured import (
    GrammarCheck,
    constraint_of,
    genai_tokenizer,
    structured,
    token_bytes,
)
from penstock.runtimes.statistics import EngineStatistics
from penstock.runtimes.workers.memory import own_bytes

#: Tokens per block of the CPU's paged attention.
BLOCK_TOKENS = 32
#: For lower temperatures the division overflows, and only the likeliest token is left anyway.
_TEMPERATURE_MIN = 1e-5
_RESERVE_BYTES = 256 << 20  #: for activations, and for the process of the instance
_CONTEXT_TOKENS = 4096  #: where neither the settings nor the model's configuration name one
MODEL_FILE = "openvino_model.xml"


def load(model_dir: Path, settings: dict[str, Any]) -> tuple[OpenVinoGenAiEngine, Prompts]:
    """For `engine_process`. Raises PenstockError."""
    settings, prompts = model_prompts(model_dir, settings)
    return OpenVinoGenAiEngine(model_dir, settings, prompts), prompts


class OpenVinoGenAiEngine(GenerationEngine):
    """See `GenerationEngine`. `settings`: `EngineOptions` as a dict, with "threads",
    "precision", "eos_ids", "positions_max" and "adapters", folders by their keys."""

    name = "openvino_genai"
    logprobs_max = LOGPROBS_MAX
    scores_prompts = True
    has_grammars = True
    adapters = AT_START

    def __init__(self, model_dir: Path, settings: dict[str, Any], prompts: Prompts) -> None:
        library = _library()
        self._library = library
        self._eos_ids: list[int] = settings["eos_ids"]
        sequences_max = int(settings["sequences_max"])
        context = settings["context_tokens_max"] or settings["positions_max"] or _CONTEXT_TOKENS
        described = json.loads((model_dir / "config.json").read_bytes())
        properties = _properties(settings)
        will_take = own_bytes(os.getpid()) + weights_bytes(model_dir / MODEL_FILE)
        settings = settings | {"cache_bytes": cache_bytes(settings, will_take)}
        blocks = cache_blocks(described, settings, context, sequences_max, properties)
        # One block is reserved: the library ends a sequence one token before the last block is
        # full.
        self.context_tokens_max = min(context, (blocks - 1) * BLOCK_TOKENS)
        scheduling = library.SchedulerConfig()
        scheduling.num_kv_blocks = blocks
        scheduling.cache_size = 0
        # What is computed with others, or in other parts, is rounded otherwise. Keys in 8 bits add
        # to that: their scales hold for a block of the tokens that came in one step.
        alone = bool(settings["repeatable"])
        chunked = bool(settings["chunked_prefill"]) and not alone
        caching = bool(settings["prefix_caching"]) and not alone
        scheduling.max_num_seqs = 1 if alone else sequences_max
        scheduling.dynamic_split_fuse = chunked
        scheduling.enable_prefix_caching = caching
        self.cache_tokens = blocks * BLOCK_TOKENS if caching else 0
        batched = int(settings["tokens_batched_max"])
        if not chunked:
            # A prompt is processed whole or not at all
            batched = max(batched, self.context_tokens_max)
        scheduling.max_num_batched_tokens = batched
        eos_id = self._eos_ids[0] if self._eos_ids else 0
        vocabulary = _vocabulary(described, prompts)
        tokenizer = genai_tokenizer(library, token_bytes(prompts.tokenizer, vocabulary), eos_id)
        adapters: dict[str, str] = settings.get("adapters") or {}
        self._numbers = {key: at for at, key in enumerate(adapters, start=1)}
        self._stride = vocabulary
        self._default_penalty = prompts.sampling.get("repetition_penalty")
        self._scratch = tempfile.TemporaryDirectory()  # the graph may be read again, for scores
        if adapters:
            base, model_dir = model_dir, Path(self._scratch.name)
            graph_with_adapters(
                base, _adapters(adapters), model_dir, graph=MODEL_FILE, stride=vocabulary
            )
        self._pipeline = _pipeline(library, model_dir, tokenizer, scheduling, properties)
        check_room(
            own_bytes(os.getpid()),
            blocks * _block_bytes(described, _cache_precision(properties), bool(adapters)),
            settings.get("memory_bytes_max", 0),
        )
        self._scores = PromptScores(
            model_dir / MODEL_FILE, properties, told=None if self.cache_tokens else 0
        )
        self._grammars = GrammarCheck(library)
        self._tools = ToolFormats(prompts.template, prompts.special_texts())
        self._handles: dict[int, Any] = {}
        self._running = 0
        self._cache_use = 0.0
        self._cache_bytes = 0

    @property
    def has_work(self) -> bool:
        return bool(self._handles) or self._scores.has_work

    def add(self, request: EngineRequest) -> None:
        penalty = request.sampling.repetition_penalty
        if request.adapter and penalty == self._default_penalty:
            # It is not known whether the request named it; nobody is refused for the default.
            request.sampling = replace(request.sampling, repetition_penalty=1.0)
        ids = self._marked(request)
        if request.tokens_new_max:
            self._generate(request, ids)
        if needs_scores(request):
            self._scores.add(request, ids)

    def _generate(self, request: EngineRequest, ids: list[int]) -> None:
        config = self._config(request)
        prompt = _tensor(ids)
        try:
            self._handles[request.ident] = self._pipeline.add_request(request.ident, prompt, config)
        except RuntimeError as error:
            raise CallerError("invalid-parameter", _words(error)) from None

    def _marked(self, request: EngineRequest) -> list[int]:
        """The prompt; the id of its first token also encodes the adapter."""
        if not request.adapter:
            return request.prompt
        number = self._numbers.get(request.adapter)
        if number is None:
            raise ModelError("adapter-unknown", "the adapter is not loaded in this engine")
        if request.sampling.repetition_penalty != 1.0:
            raise CallerError(
                "parameter-unsupported",
                "repetition_penalty is not supported with an adapter on the engine openvino_genai",
                hint="Use frequency_penalty or presence_penalty.",
                param="repetition_penalty",
            )
        return [request.prompt[0] + number * self._stride, *request.prompt[1:]]

    def check_constraint(self, request: EngineRequest) -> None:
        constraint = constraint_of(request)
        if constraint is not None:
            self._grammars.check(constraint)

    def tool_text(self, chat: dict[str, Any], json_schema: str | None) -> ToolText:
        return self._tools.reader(chat, json_schema)

    def cancel(self, ident: int) -> None:
        self._scores.drop(ident)
        handle = self._handles.pop(ident, None)
        if handle is not None:
            handle.cancel()
            if not self._handles:
                # The library frees a cancelled sequence's blocks in its next step.
                self._pipeline.step()
                self._running = 0

    def step(self) -> Sequence[StepOutput]:
        made = self._stepped() if self._handles else []
        outputs = [each for each in made if not self._scores.knows(each.ident)]
        for each in made:
            if self._scores.knows(each.ident):
                self._scores.follow(each)
        return outputs + self._scores.take(wait=not self._handles)

    def _stepped(self) -> list[StepOutput]:
        self._pipeline.step()
        metrics = self._pipeline.get_metrics()
        self._running = metrics.scheduled_requests
        self._cache_use = metrics.cache_usage / 100.0
        self._cache_bytes = metrics.cache_size_in_bytes
        outputs = []
        for ident, handle in list(self._handles.items()):
            output = self._read(ident, handle)
            if output is not None:
                outputs.append(output)
                if output.finish is not None:
                    del self._handles[ident]
        return outputs

    def _read(self, ident: int, handle: Any) -> StepOutput | None:
        ids: list[int] = []
        logprobs: list[float] = []
        reason: Any = None
        while handle.can_read():
            for part in handle.read().values():
                ids += part.generated_ids
                logprobs += part.generated_log_probs
                reason = part.finish_reason
        status = handle.get_status()
        running = status == self._library.GenerationStatus.RUNNING
        if running and not ids:
            return None
        finish = None
        if not running:
            stopped = reason == self._library.GenerationFinishReason.STOP
            finish = STOP if stopped else LENGTH
        # The library reports no request's hits in the prefix cache.
        cached = None if self.cache_tokens else 0
        return StepOutput(ident, ids, logprobs, finish=finish, tokens_cached=cached)

    def _config(self, request: EngineRequest) -> Any:
        sampling = request.sampling
        config = self._library.GenerationConfig()
        config.max_new_tokens = request.tokens_new_max
        config.min_new_tokens = sampling.tokens_new_min
        ends = [*([] if sampling.ignore_eos else self._eos_ids), *sampling.stop_token_ids]
        config.ignore_eos = not ends
        config.eos_token_id = (ends or self._eos_ids or [0])[0]
        config.stop_token_ids = set(ends or self._eos_ids)
        config.repetition_penalty = sampling.repetition_penalty
        config.presence_penalty = sampling.presence_penalty
        config.frequency_penalty = sampling.frequency_penalty
        config.logprobs = 0 if sampling.logprobs is None else 1
        constraint = constraint_of(request)
        if constraint is not None:
            config.structured_output_config = structured(self._library, constraint)
        if sampling.temperature >= _TEMPERATURE_MIN:
            config.do_sample = True
            config.temperature = sampling.temperature
            config.top_p = sampling.top_p
            config.min_p = sampling.min_p
            config.rng_seed = request.seed % 2**64
            if sampling.top_k:
                config.top_k = sampling.top_k
        return config

    def statistics(self) -> EngineStatistics:
        running = min(self._running, len(self._handles))
        return EngineStatistics(
            running, len(self._handles) - running, self._cache_use, self._cache_bytes
        )


def _adapters(folders: dict[str, str]) -> list[AdapterFiles]:
    if len(folders) > ADAPTERS_MAX:
        raise CallerError(
            "adapters-too-many",
            f"{len(folders)} adapters are wanted on one base, at most {ADAPTERS_MAX} have room",
            hint="Delete some, or put the rest on another component of the same model.",
        )
    return [read_adapter(Path(folder)) for folder in folders.values()]


def _library() -> Any:
    try:
        return importlib.import_module("openvino_genai.py_openvino_genai")
    except ImportError as error:
        raise ModelError(
            "engine-missing",
            f"the model needs the package openvino-genai: {error}",
            hint=install_command("generate"),
        ) from None


def _pipeline(
    library: Any, model_dir: Path, tokenizer: Any, scheduling: Any, properties: dict[str, Any]
) -> Any:
    try:
        return library.ContinuousBatchingPipeline(
            str(model_dir), tokenizer, scheduling, "CPU", **properties
        )
    except Exception as error:  # RuntimeError, and pybind's own kinds
        cache = properties.get("KV_CACHE_PRECISION")
        if cache is not None and "kvcache type" in str(error):
            raise ModelError(
                "engine-options",
                f"KV_CACHE_PRECISION {cache} does not go with this processor's arithmetic for the "
                f"model: {_words(error)}",
                hint="Leave KV_CACHE_PRECISION out, or give the same to it and to precision in "
                "model.yaml.",
            ) from None
        raise ModelError(
            "model-failed",
            f"{MODEL_FILE}: the engine can't load it: {_words(error)}",
            hint="It must be a stateful causal language model, as `penstock compile` makes them.",
        ) from None


def _vocabulary(config: dict[str, Any], prompts: Prompts) -> int:
    """Rows of the logits: some models have more than their tokenizer has ids."""
    return max(int(config.get("vocab_size") or 0), prompts.vocabulary)


def _properties(settings: dict[str, Any]) -> dict[str, Any]:
    properties: dict[str, Any] = {
        "PERFORMANCE_HINT": "LATENCY",
        # Copies and processes share the cores; a pinned thread waits for the one that it has.
        "ENABLE_CPU_PINNING": False,
    }
    properties.update(arithmetic(settings["precision"], rounded_group=ROUNDED_GROUP))
    if settings["threads"]:
        properties["INFERENCE_NUM_THREADS"] = int(settings["threads"])
    properties.update(settings["options"])
    return properties


def cache_bytes(settings: dict[str, Any], will_take: int) -> int:
    """For keys and values: what model.yaml asks for, else the default, but no more of it than its
    instance has left beside `will_take`, bytes of the process once it has its weights."""
    most = settings.get("memory_bytes_max", 0)
    if settings.get("cache_asked") or not most:
        return int(settings["cache_bytes"])
    return min(int(settings["cache_bytes"]), max(int(most) - will_take - _RESERVE_BYTES, 0))


def cache_blocks(
    config: dict[str, Any],
    settings: dict[str, Any],
    context: int,
    sequences_max: int,
    properties: dict[str, Any],
) -> int:
    """As many blocks as the cache's bytes hold, but no more than all sequences at full length need.

    Where they hold all of that in BF16, and that is what the model is computed in, `properties` get
    it as the format of keys and values: 8 bits would be converted in each step, which takes 3 to 7
    % of it (docs/performance.md). Else 8 bits hold twice as many tokens.
    """
    needed = sequences_max * (math.ceil(context / BLOCK_TOKENS) + 1)
    cache = int(settings["cache_bytes"])

    adapters = bool(settings.get("adapters"))
    in_bf16 = properties.get("INFERENCE_PRECISION_HINT") == "bf16"
    if in_bf16 and needed * _block_bytes(config, "bf16", adapters) <= cache:
        properties.setdefault("KV_CACHE_PRECISION", "bf16")
    size = _block_bytes(config, _cache_precision(properties), adapters)
    blocks = cache // size
    if blocks < 2:
        raise ModelError(
            "cache-too-small",
            f"the cache's {cache} bytes hold {blocks} blocks of {size} bytes, two are needed",
            hint="Raise engine.cache_mb in model.yaml, or take an instance type with more memory.",
        )
    return min(needed, blocks)


def check_room(taken: int, cache: int, most: int) -> None:
    """Whether a cache that grows to `cache` bytes has room beside what a loaded model has `taken`.

    Without this the instance is ended when the cache has grown, and answers break off.

    Args:
        most: the instance's bytes; 0 = no limit.
    """
    if not 0 < most < taken + cache:
        return
    room = max(most - taken, 0) >> 20
    raise ModelError(
        "cache-too-large",
        f"the cache may grow to {cache >> 20} MiB, and the loaded model leaves {room} of its "
        f"instance's {most >> 20} MiB",
        hint="Choose an instance type with more memory, or set engine.cache_mb in model.yaml to "
        f"{room} or less."
        if room
        else "Choose an instance type with more memory.",
    )


def _cache_precision(properties: dict[str, Any]) -> str:
    return str(properties.get("KV_CACHE_PRECISION", "u8"))


def _block_bytes(config: dict[str, Any], precision: str, adapters: bool) -> int:
    """Bytes of the keys and values of a block's tokens in all layers, in the CPU's format."""
    heads = int(config["num_attention_heads"])
    kv_heads = int(config.get("num_key_value_heads") or heads)
    head_size = int(config.get("head_dim") or int(config["hidden_size"]) // heads)
    width = {"f32": 4, "f16": 2, "bf16": 2}.get(precision, 1)
    # With 8 bits each head of a token has a scale and a zero point, 4 bytes each.
    scales = 8 if width == 1 else 0
    layers = int(config["num_hidden_layers"]) * kv_heads * (head_size * width + scales)
    if adapters:  # the head that carries their numbers
        layers += HEAD_SIZE * width + scales
    return layers * 2 * BLOCK_TOKENS


def _tensor(ids: list[int]) -> Any:
    import numpy as np
    import openvino as ov

    return ov.Tensor(np.array([ids], dtype=np.int64))


def _words(error: BaseException) -> str:
    """The library's errors begin with their place in the source; the last line says what is
    wrong."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:300]
