"""Language models as artifacts: which folders are one, and other servers' names for settings."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.artifacts.description import model_yaml
from penstock.artifacts.description.description import EngineOptions
from penstock.artifacts.detection.detect import detect
from penstock.artifacts.detection.generation_layout import (
    is_language_model,
    language_model,
    options_of,
    served_as_weights,
)
from penstock.errors import CallerError

LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
IR = '<net name="m" version="11"><layers></layers></net>'


def folder(root: Path, **files: str) -> Path:
    for name, content in files.items():
        (root / name.replace("__", ".")).write_text(content)
    return root


def with_graph(root: Path, **more: str) -> Path:
    files = {"openvino_model__xml": IR, "openvino_model__bin": "", "tokenizer__json": "{}"}
    return folder(root, **(files | {"config__json": json.dumps(LLAMA)} | more))


def with_weights(root: Path, **more: str) -> Path:
    files = {"model__safetensors": "x", "tokenizer__json": "{}"}
    return folder(root, config__json=json.dumps(LLAMA), **(files | more))


def test_a_graph_beside_a_causal_lm_configuration_is_a_language_model(tmp_path: Path) -> None:
    description = detect(with_graph(tmp_path)).description
    assert (description.runtime, description.task) == ("openvino_genai", "text-generation")
    assert description.engine == EngineOptions()


def test_a_graph_of_another_architecture_is_none(tmp_path: Path) -> None:
    other = json.dumps({"architectures": ["BertModel"]})
    description = detect(with_graph(tmp_path, config__json=other)).description
    assert (description.runtime, description.task) == ("openvino", "tensor")


def test_a_described_language_model_is_completed_by_its_files(tmp_path: Path) -> None:
    with_graph(tmp_path, model__yaml="schema: 1\nruntime: openvino_genai\n")
    description = detect(tmp_path).description
    assert (description.runtime, description.file) == ("openvino_genai", "openvino_model.xml")
    folder(tmp_path, model__yaml="schema: 1\nruntime: openvino_genai\nfile: other.xml\n")
    with pytest.raises(CallerError, match="other"):
        detect(tmp_path)


def test_weights_are_for_vllm_where_that_is_asked_for(tmp_path: Path) -> None:
    with_weights(tmp_path)
    assert detect(tmp_path, runtime="vllm").description.runtime == "vllm"
    environment = {"SM_VLLM_MAX_MODEL_LEN": "2048"}
    description = detect(tmp_path, environment=environment).description
    assert description.runtime == "vllm"
    assert description.engine == EngineOptions(context_tokens_max=2048)
    assert served_as_weights(tmp_path, "", environment)
    assert not served_as_weights(tmp_path, "", {})
    folder(tmp_path, serving__properties="engine=Python\noption.rolling_batch=vllm\n")
    assert served_as_weights(tmp_path, "", {})


def test_a_tokenizer_that_is_missing_is_named(tmp_path: Path) -> None:
    with_graph(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(CallerError) as caught:
        detect(tmp_path)
    assert caught.value.code == "artifact-incomplete"
    assert "tokenizer.json" in caught.value.message


def test_model_yaml_holds_all_settings_and_is_written_as_it_is_read() -> None:
    text = """
schema: 1
runtime: openvino_genai
precision: bf16
engine: {context_tokens_max: 512, sequences_max: 8, tokens_batched_max: 128,
  chunked_prefill: false, prefix_caching: false, cache_mb: 1.5, chat_template: t.jinja,
  python: /opt/python, options: {KV_CACHE_PRECISION: u8}}
"""
    description = model_yaml.parse(text)
    assert description.task == "text-generation"
    assert description.engine == EngineOptions(
        context_tokens_max=512, sequences_max=8, tokens_batched_max=128, chunked_prefill=False,
        prefix_caching=False, cache_bytes=1_572_864, chat_template="t.jinja",
        python="/opt/python", options={"KV_CACHE_PRECISION": "u8"},
    )  # fmt: skip
    assert model_yaml.parse(model_yaml.dump(description)) == description


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("schema: 1\nruntime: openvino\nengine: {}", "engine is 'a section'"),
        ("schema: 1\nruntime: vllm\ntask: tensor", "task is 'tensor'"),
        ("schema: 1\nruntime: openvino\ntask: text-generation", "task is 'text-generation'"),
        ("schema: 1\nruntime: vllm\nengine: {sequences_max: 0}", "engine.sequences_max is 0"),
        ("schema: 1\nruntime: vllm\nengine: {cache: 1}", "unknown key engine.cache"),
    ],
)
def test_settings_that_do_not_fit_are_named(text: str, message: str) -> None:
    with pytest.raises(CallerError) as caught:
        model_yaml.parse(text)
    assert message in caught.value.message


def test_the_names_of_other_servers(tmp_path: Path) -> None:
    """serving.properties, then OPTION_*, then SM_VLLM_*, then TGI's: the later counts."""
    properties = tmp_path / "serving.properties"
    properties.write_text(
        "engine=Python\n# a comment\noption.max_rolling_batch_size=8\n"
        "option.tensor_parallel_degree=1\noption.enable_prefix_caching=false\n"
        "option.model_id=/opt/ml/model\n"
    )
    environment = {
        "OPTION_MAX_ROLLING_BATCH_SIZE": "16",
        "OPTION_MAX_MODEL_LEN": "1024",
        "SM_VLLM_QUANTIZATION": "awq",
        "MAX_TOTAL_TOKENS": "2048",
        "MAX_BATCH_PREFILL_TOKENS": "512",
        "UNRELATED": "x",
    }
    found = options_of(EngineOptions(), properties, environment, runtime="vllm")
    assert found == EngineOptions(
        context_tokens_max=2048, sequences_max=16, tokens_batched_max=512, prefix_caching=False,
        options={"tensor_parallel_size": "1", "quantization": "awq"},
    )  # fmt: skip
    found = options_of(EngineOptions(), properties, environment, runtime="openvino_genai")
    assert found.options == {}  # they are vLLM's


@pytest.mark.parametrize(
    ("name", "value"),
    [("MAX_TOTAL_TOKENS", "many"), ("OPTION_MAX_NUM_SEQS", "0"), ("PREFIX_CACHING", "maybe")],
)
def test_a_setting_that_is_no_number_is_named(name: str, value: str, tmp_path: Path) -> None:
    path = tmp_path / "serving.properties"
    with pytest.raises(CallerError) as caught:
        options_of(EngineOptions(), path, {name: value}, runtime="vllm")
    assert caught.value.code == "options-invalid"
    assert name in caught.value.message


def test_a_folder_is_a_language_model_by_its_configuration(tmp_path: Path) -> None:
    assert not is_language_model(tmp_path)
    folder(tmp_path, config__json='{"architectures": ["BertModel", "LlamaForCausalLM"]}')
    assert is_language_model(tmp_path)
    for other in ('{"architectures": "LlamaForCausalLM"}', '{"architectures": ["A"]}', "{}"):
        folder(tmp_path, config__json=other)
        assert not is_language_model(tmp_path)


@pytest.mark.parametrize(
    ("make", "wanted", "runtime"),
    [
        (with_graph, "", "openvino_genai"),
        (with_graph, "openvino_genai", "openvino_genai"),
        (with_graph, "vllm", None),
        (with_weights, "", None),
        (with_weights, "openvino_genai", None),
        (with_weights, "vllm", "vllm"),
        (with_weights, "torch", None),
    ],
)
def test_an_engine_needs_the_files_that_it_reads(
    tmp_path: Path, make: Callable[[Path], Path], wanted: str, runtime: str | None
) -> None:
    found = language_model(make(tmp_path), {}, wanted)
    assert (None if found is None else found.runtime) == runtime


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("runtime: openvino_genai", "openvino_model.xml"),
        ("runtime: vllm", "safetensors"),
    ],
)
def test_a_described_engine_without_its_files_is_told_so(
    tmp_path: Path, text: str, told: str
) -> None:
    folder(tmp_path, config__json="{}", tokenizer__json="{}", model__yaml=f"schema: 1\n{text}\n")
    with pytest.raises(CallerError) as caught:
        detect(tmp_path)
    assert (caught.value.code, told in caught.value.message) == ("artifact-incomplete", True)


def test_a_chat_template_is_in_the_artifact(tmp_path: Path) -> None:
    with_weights(tmp_path)
    environment = {"SM_VLLM_CHAT_TEMPLATE": "own.jinja"}
    with pytest.raises(CallerError) as caught:
        detect(tmp_path, environment=environment)
    assert (caught.value.code, "own.jinja" in caught.value.message) == ("artifact-incomplete", True)
    folder(tmp_path, own__jinja="")
    engine = detect(tmp_path, environment=environment).description.engine
    assert engine is not None
    assert engine.chat_template == "own.jinja"
