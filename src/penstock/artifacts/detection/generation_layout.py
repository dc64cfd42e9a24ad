"""Language models as artifacts: a folder with a compiled graph, or with weights.

A folder is a language model where config.json names an architecture that ends in ForCausalLM. A
compiled graph is served by the engine that loads it. Weights go to an engine that reads them,
where one is requested, and are compiled otherwise. An engine that needs no model has a model.yaml
and nothing else. Files are read, nothing is loaded.

Settings of engines under other servers' names become `EngineOptions`: DJL's serving.properties
(`option.*`) and, in this order, `OPTION_*`, AWS's vLLM images' `SM_VLLM_*`, and the variables of
Text Generation Inference. A variable beats the file, and a later list beats an earlier one. A
setting that no table has goes to vLLM under its own name. An engine without such options does not
get it (its own options are in model.yaml).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from penstock.artifacts.description.description import EngineOptions, ModelDescription, PaceSpec
from penstock.artifacts.detection.huggingface import read_json
from penstock.artifacts.files.model_files import check_whole, inside
from penstock.errors import CallerError
from penstock.runtimes import registry
from penstock.runtimes.record import EngineRules

PROPERTIES: Final = "serving.properties"
_FILE_BYTES_MAX = 65_536
_COUNT_MAX = 2**40
_COUNT_DIGITS_MAX = len(str(_COUNT_MAX))

#: vLLM's names, which DJL and SM_VLLM_ use too -> ours
_VLLM: Final = {
    "max_model_len": "context_tokens_max",
    "max_num_seqs": "sequences_max",
    "max_num_batched_tokens": "tokens_batched_max",
    "enable_chunked_prefill": "chunked_prefill",
    "enable_prefix_caching": "prefix_caching",
    "chat_template": "chat_template",
}
#: DJL's own names -> ours
_DJL: Final = _VLLM | {
    "max_rolling_batch_size": "sequences_max",
    "max_rolling_batch_prefill_tokens": "tokens_batched_max",
}
#: DJL's names of vLLM's options -> vLLM's
_RENAMED: Final = {
    "tensor_parallel_degree": "tensor_parallel_size",
    "pipeline_parallel_degree": "pipeline_parallel_size",
    "quantize": "quantization",
}
_TGI: Final = {
    "MAX_TOTAL_TOKENS": "context_tokens_max",
    "MAX_CONCURRENT_REQUESTS": "sequences_max",
    "MAX_BATCH_PREFILL_TOKENS": "tokens_batched_max",
    "PREFIX_CACHING": "prefix_caching",
}
_TGI_OPTIONS: Final = {"NUM_SHARD": "tensor_parallel_size", "QUANTIZE": "quantization"}
#: Known settings that Penstock decides elsewhere: where the model lies, ports, workers.
_ELSEWHERE: Final = frozenset(
    {
        "model", "model_id", "tokenizer", "engine", "rolling_batch", "entrypoint", "host", "port",
        "served_model_name", "task", "trust_remote_code", "mpi_mode", "output_formatter",
        "model_loading_timeout", "disable_log_requests", "disable_log_stats", "max_input_len",
        "load_format", "async_mode", "hf_model_id",
    }
)  # fmt: skip
_FLAGS: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_KINDS: Final[dict[str, type]] = {
    each.name: type(each.default) for each in dataclasses.fields(EngineOptions)
}


def options_of(
    engine: EngineOptions, properties: Path, environment: Mapping[str, str], *, runtime: str
) -> EngineOptions:
    """`engine` with the settings of the file and the environment. Raises CallerError."""
    values: dict[str, Any] = {}
    passed: dict[str, str] = dict(engine.options)
    for source, name, text in _settings(properties, environment):
        field = _DJL.get(name)
        if field is not None:
            values[field] = _value(source, field, text)
        elif name not in _ELSEWHERE:
            passed[_RENAMED.get(name, name)] = text
    for variable, option in _TGI_OPTIONS.items():
        if environment.get(variable):
            passed[option] = environment[variable]
    for variable, field in _TGI.items():
        if environment.get(variable):
            values[field] = _value(variable, field, environment[variable])
    options = passed if registry.record(runtime).engine.passes_options else engine.options
    return dataclasses.replace(engine, **values, options=options)


def runtime_of(properties: Path, environment: Mapping[str, str]) -> str:
    """The runtime of the engine that the settings name; "" where they name none."""
    asked = [
        text.lower()
        for _, name, text in _settings(properties, environment)
        if name == "rolling_batch"
    ]
    for record in registry.records():
        word, prefix = record.engine.asked_as, record.engine.variables
        if word and (word in asked or any(name.startswith(prefix) for name in environment)):
            return record.name
    return ""


def _settings(properties: Path, environment: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """(where it stands, name in lower case, value); a later entry beats an earlier one."""
    found = []
    if properties.is_file():
        if properties.stat().st_size > _FILE_BYTES_MAX:
            raise CallerError("options-invalid", f"{PROPERTIES} is larger than {_FILE_BYTES_MAX} B")
        for line in properties.read_text(encoding="utf-8", errors="replace").splitlines():
            name, equals, value = line.strip().partition("=")
            name = name.strip()
            if equals and name.startswith("option."):
                found.append((f"{PROPERTIES}: {name}", name[len("option.") :], value.strip()))
    for prefix in ("OPTION_", *(one.engine.variables for one in registry.records())):
        for variable in sorted(environment):
            if prefix and variable.startswith(prefix):
                name = variable[len(prefix) :].lower()
                found.append((variable, name, environment[variable].strip()))
    return found


def _value(source: str, field: str, text: str) -> Any:
    kind = _KINDS[field]
    if kind is bool:
        if text.lower() not in _FLAGS:
            raise _wrong(source, text, "true or false")
        return _FLAGS[text.lower()]
    if kind is str:
        return text
    digits = text.isascii() and text.isdigit() and len(text) <= _COUNT_DIGITS_MAX
    if not (digits and 1 <= int(text) <= _COUNT_MAX):
        raise _wrong(source, text, "an integer from 1 up")
    return int(text)


def _wrong(source: str, text: str, allowed: str) -> CallerError:
    return CallerError(
        "options-invalid", f"{source} is {text[:100]!r}", hint=f"It must be {allowed}."
    )


TASK = "text-generation"
_NEEDED = ("config.json", "tokenizer.json")


def is_language_model(root: Path) -> bool:
    path = root / "config.json"
    if not path.is_file():
        return False
    architectures = read_json(path).get("architectures")
    return isinstance(architectures, list) and any(
        str(name).endswith("ForCausalLM") for name in architectures
    )


def served_as_weights(root: Path, runtime: str, environment: Mapping[str, str]) -> bool:
    """Whether an engine reads `root`'s weights itself, so that they are not compiled."""
    return bool(_rules(runtime or runtime_of(root / PROPERTIES, environment)).weights)


def language_model(
    root: Path, environment: Mapping[str, str], wanted: str
) -> ModelDescription | None:
    """The description of a language model; None where `root` holds none.

    Raises CallerError (`artifact-incomplete`, and those of the options).
    """
    if not is_language_model(root):
        return None
    runtime = wanted or runtime_of(root / PROPERTIES, environment) or _by_graph(root)
    if not _rules(runtime).has_model(root):
        return None
    description = ModelDescription(runtime=runtime, task=TASK, engine=EngineOptions())
    return completed(description, root, environment)


def _by_graph(root: Path) -> str:
    """The runtime whose compiled model lies in `root`; no setting needs to name it."""
    loaded = (one for one in registry.records() if one.engine.graph and one.engine.has_model(root))
    return next((one.name for one in loaded), "")


def _rules(runtime: str) -> EngineRules:
    """The rules of the engine `runtime`; where it is no engine, rules that require nothing."""
    record = registry.find(runtime)
    return EngineRules() if record is None else record.engine


def completed(
    description: ModelDescription, root: Path, environment: Mapping[str, str]
) -> ModelDescription:
    """Checks the files, and adds the settings of serving.properties and of the environment."""
    rules = _rules(description.runtime)
    if not rules.needs_model:
        return _without_model(description, root, environment)
    for name in _NEEDED:
        inside(root, name, key=f"runtime {description.runtime}")
    given = description.engine or EngineOptions()
    engine = options_of(given, root / PROPERTIES, environment, runtime=description.runtime)
    if engine.chat_template:
        inside(root, engine.chat_template, key="chat_template")
    file = ""
    if rules.graph:
        file = description.file or rules.graph
        if file != rules.graph:
            raise CallerError(
                "model-yaml-invalid",
                f"model.yaml: file is {file!r}",
                hint=f"The engine looks for {rules.graph}: leave `file` out.",
            )
        inside(root, file, key=f"runtime {description.runtime}")
        check_whole(root, file)
    elif not rules.has_model(root):
        raise CallerError(
            "artifact-incomplete",
            f"runtime {description.runtime} reads {rules.weights.removeprefix('*.')} weights, and "
            "the artifact has none",
            hint="Pack the whole Hugging Face directory.",
        )
    return dataclasses.replace(description, file=file, engine=engine)


def _without_model(
    description: ModelDescription, root: Path, environment: Mapping[str, str]
) -> ModelDescription:
    """A description without files; settings of the model that it stands for apply if present."""
    if description.file:
        raise CallerError(
            "model-yaml-invalid",
            f"model.yaml: file is {description.file!r}",
            hint=f"A {description.runtime} engine has no model: leave `file` out.",
        )
    given = description.engine or EngineOptions()
    found = options_of(given, root / PROPERTIES, environment, runtime=description.runtime)
    engine = dataclasses.replace(found, chat_template="", pace=given.pace or PaceSpec())
    return dataclasses.replace(description, engine=engine)
