"""An adapter's two files: what is understood, and that nothing hostile in them is believed."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.adapter_files import pairs, write_adapter, write_safetensors
from tests.kit.generation_models import CONFIG, write_weights

from penstock.errors import CallerError
from penstock.runtimes.generation.adapter_base import check_against_weights
from penstock.runtimes.generation.adapter_files import CONFIG as CONFIG_NAME
from penstock.runtimes.generation.adapter_files import RANK_MAX, WEIGHTS, read_adapter

GIVEN = pairs(1, ("q_proj", "down_proj"), rank=4)
LAYER = "base_model.model.model.layers.0.self_attn.q_proj"


def refused(folder: Path) -> CallerError:
    with pytest.raises(CallerError) as caught:
        read_adapter(folder)
    assert caught.value.hint
    return caught.value


def configured(folder: Path, **changed: Any) -> Path:
    return write_adapter(folder, GIVEN, **changed)


def test_layers_ranks_and_scales_are_read(tmp_path: Path) -> None:
    found = read_adapter(write_adapter(tmp_path, GIVEN, alpha=8))
    assert [layer.module for layer in found.layers] == sorted(GIVEN)
    first = found.layers[0]
    assert first.module == "model.layers.0.mlp.down_proj"
    assert (first.down.rows, first.down.columns) == (4, CONFIG["intermediate_size"])
    assert (first.up.rows, first.up.columns) == (CONFIG["hidden_size"], 4)
    assert {layer.scale for layer in found.layers} == {2.0}
    assert (found.rank_max, found.base_model) == (4, "tiny")


def test_the_scale_of_a_rank_stabilised_adapter_is_over_the_root(tmp_path: Path) -> None:
    found = read_adapter(configured(tmp_path, alpha=8, use_rslora=True))
    assert {layer.scale for layer in found.layers} == {4.0}


def test_single_layers_may_have_a_scale_of_their_own(tmp_path: Path) -> None:
    patterns = {"q_proj": 16, "model.layers.1.mlp.down_proj": 2}
    found = read_adapter(configured(tmp_path, alpha=8, alpha_pattern=patterns))
    scales = {layer.module: layer.scale for layer in found.layers}
    assert scales == {
        "model.layers.0.mlp.down_proj": 2.0,
        "model.layers.0.self_attn.q_proj": 4.0,
        "model.layers.1.mlp.down_proj": 0.5,
        "model.layers.1.self_attn.q_proj": 4.0,
    }


@pytest.mark.parametrize(
    "number", ["1" + "0" * 400, "-1" + "0" * 400, "1" * 4400, "1e999", "NaN", "-Infinity", "1e300"]
)
@pytest.mark.parametrize("key", ["lora_alpha", "alpha_pattern", "r"])
def test_no_number_of_its_configuration_is_a_failure_of_ours(
    tmp_path: Path, key: str, number: str
) -> None:
    """Some are integers that no float can be, or have more digits than Python reads."""
    folder = configured(tmp_path, alpha=8)
    config = json.loads((folder / CONFIG_NAME).read_text())
    config[key] = {"q_proj": "MARK"} if key == "alpha_pattern" else "MARK"
    (folder / CONFIG_NAME).write_text(json.dumps(config).replace('"MARK"', number))
    if key == "r" and len(number) < 4000:  # the rank is what the matrices have
        read_adapter(folder)
    else:
        assert refused(folder).code == "adapter-damaged"


def test_a_pattern_that_is_a_program_is_not_run(tmp_path: Path) -> None:
    """An expression of a stranger's could take for ever on a name of ours."""
    error = refused(configured(tmp_path, alpha_pattern={"(a+)+$": 3}))
    assert (error.code, "not a name of modules" in error.message) == ("adapter-unsupported", True)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"peft_type": "IA3"}, "peft_type is 'IA3', not LORA"),
        ({"peft_type": None}, "peft_type is 'None'"),
        ({"use_dora": True}, "DoRA"),
        ({"modules_to_save": ["lm_head"]}, "replaces whole modules"),
        ({"fan_in_fan_out": True}, "transposed"),
        ({"bias": "all"}, "replaces biases"),
        ({"lora_bias": True}, "biases of its own"),
        ({"trainable_token_indices": [1]}, "embeddings of tokens"),
    ],
)
def test_what_is_not_plain_lora_is_refused_by_its_name(
    tmp_path: Path, changed: dict[str, Any], told: str
) -> None:
    error = refused(configured(tmp_path, **changed))
    assert error.code == "adapter-unsupported"
    assert told in error.message


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"lora_alpha": "8"}, "is '8', not a number"),
        ({"lora_alpha": True}, "not a number"),
        ({"lora_alpha": None}, "not a number"),
        ({"lora_alpha": 1e300}, "gives a scale of"),
        ({"lora_alpha": float("nan")}, "gives a scale of nan"),
        ({"alpha_pattern": [1]}, "alpha_pattern is no object"),
    ],
)
def test_a_scale_that_is_no_number_is_refused(
    tmp_path: Path, changed: dict[str, Any], told: str
) -> None:
    error = refused(configured(tmp_path, **changed))
    assert (error.code, told in error.message) == ("adapter-damaged", True), error.message


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "not JSON"),
        (b"[]", "not a JSON object"),
        (b"[" * 100_000, "not JSON"),
        (b'{"peft_type": "\xff"}', "not JSON"),
        (b" " * (2 << 20), "has more than"),
    ],
)
def test_a_configuration_that_is_none_is_refused(tmp_path: Path, content: bytes, told: str) -> None:
    write_adapter(tmp_path, GIVEN)
    (tmp_path / CONFIG_NAME).write_bytes(content)
    error = refused(tmp_path)
    assert (error.code, told in error.message) == ("adapter-damaged", True), error.message


def test_what_is_missing_is_named_and_a_pickle_is_never_opened(tmp_path: Path) -> None:
    assert refused(tmp_path).code == "adapter-incomplete"
    write_adapter(tmp_path, GIVEN)
    (tmp_path / WEIGHTS).rename(tmp_path / "adapter_model.bin")
    error = refused(tmp_path)
    assert (error.code, "can run any program" in error.message) == ("artifact-untrusted", True)
    (tmp_path / "adapter_model.bin").unlink()
    assert refused(tmp_path).code == "adapter-incomplete"


def tensors(**changed: np.ndarray) -> dict[str, np.ndarray]:
    plain = {
        f"{LAYER}.lora_A.weight": np.ones((4, 48), np.float32),
        f"{LAYER}.lora_B.weight": np.ones((48, 4), np.float32),
    }
    return plain | changed


@pytest.mark.parametrize(
    ("made", "code", "told"),
    [
        ({f"{LAYER}.lora_A.weight": np.ones((4, 48), np.float32)}, "adapter-damaged",
         "lora_A alone"),
        (tensors(**{f"{LAYER}.lora_B.weight": np.ones((48, 5), np.float32)}), "adapter-damaged",
         "lora_A has rank 4, lora_B 5"),
        (tensors(**{f"{LAYER}.lora_A.weight": np.ones((4, 48, 1), np.float32)}),
         "adapter-unsupported", "3 dimensions"),
        (tensors(**{f"{LAYER}.lora_A.weight": np.ones((4, 48), np.float64)}),
         "adapter-unsupported", "of type F64"),
        (tensors(**{f"{LAYER}.lora_magnitude_vector": np.ones((4, 4), np.float32)}),
         "adapter-unsupported", "neither lora_A nor lora_B"),
        (tensors(**{f"{LAYER}.lora_A.default.weight": np.ones((4, 48), np.float32)}),
         "adapter-damaged", "is there twice"),
        ({f"{LAYER}.lora_A.weight": np.ones((RANK_MAX + 1, 1), np.float32),
          f"{LAYER}.lora_B.weight": np.ones((1, RANK_MAX + 1), np.float32)},
         "adapter-unsupported", f"at most {RANK_MAX} are taken"),
        ({}, "adapter-damaged", "adapts no layer"),
    ],
)  # fmt: skip
def test_matrices_that_are_no_lora_are_refused(
    tmp_path: Path, made: dict[str, np.ndarray], code: str, told: str
) -> None:
    write_adapter(tmp_path, GIVEN)
    write_safetensors(tmp_path / WEIGHTS, made)
    error = refused(tmp_path)
    assert (error.code, told in error.message) == (code, True), error.message


BIG = 1 << 62


@pytest.mark.parametrize(
    "entry",
    [
        {"data_offsets": [0, BIG]},
        {"data_offsets": [-768, 0]},
        {"data_offsets": [768, 1536]},
        {"data_offsets": [0, 767]},
        {"data_offsets": [0]},
        {"data_offsets": [0.0, 768.0]},
        {"shape": [BIG, BIG]},
        {"shape": [-4, -48]},
        {"shape": [0, 48], "data_offsets": [0, 0]},
        {"shape": None},
        {"shape": ["4", "48"]},
        {"dtype": "F16"},
        {"dtype": ["F32"]},
    ],
)
def test_a_header_that_leads_out_of_the_file_or_into_another_tensor_is_refused(
    tmp_path: Path, entry: dict[str, Any]
) -> None:
    write_adapter(tmp_path, GIVEN)
    name = f"{LAYER}.lora_A.weight"
    told = {"dtype": "F32", "shape": [4, 48], "data_offsets": [0, 768]} | entry
    write_safetensors(tmp_path / WEIGHTS, tensors(), **{name: told})
    assert refused(tmp_path).code in {"adapter-damaged", "adapter-unsupported"}


@pytest.mark.parametrize("told", [None, 3, "F32", [], {}, [{"dtype": "F32"}]])
def test_an_entry_that_is_no_tensor_is_refused(tmp_path: Path, told: Any) -> None:
    write_adapter(tmp_path, GIVEN)
    write_safetensors(tmp_path / WEIGHTS, tensors(), **{f"{LAYER}.lora_A.weight": told})
    assert refused(tmp_path).code == "adapter-damaged"


@settings(max_examples=60, deadline=None)
@given(cut=st.integers(0, 4000), noise=st.binary(min_size=1, max_size=40), at=st.integers(0, 4000))
def test_a_file_that_was_cut_or_overwritten_is_an_error_or_an_adapter(
    cut: int, noise: bytes, at: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Never an exception of another kind, and no matrix lies outside of the file."""
    folder = tmp_path_factory.mktemp("noise")
    whole = write_adapter(folder, GIVEN) / WEIGHTS
    data = bytearray(whole.read_bytes())
    data[at : at + len(noise)] = noise
    whole.write_bytes(bytes(data[: len(data) - cut]))
    size, layers = whole.stat().st_size, ()
    with contextlib.suppress(CallerError):
        layers = read_adapter(folder).layers
    for matrix in (each for layer in layers for each in (layer.down, layer.up)):
        assert 0 < matrix.begin < matrix.end <= size
    shutil.rmtree(folder)


def test_a_header_of_too_many_bytes_is_not_read(tmp_path: Path) -> None:
    write_adapter(tmp_path, GIVEN)
    for length in (1 << 62, 1 << 30):
        (tmp_path / WEIGHTS).write_bytes(length.to_bytes(8, "little") + b"{}")
        assert "can't hold a header" in refused(tmp_path).message
    (tmp_path / WEIGHTS).write_bytes(b"12")
    assert "can't hold a header" in refused(tmp_path).message


def test_weights_of_the_base_say_whether_an_adapter_fits(tmp_path: Path) -> None:
    """Where an engine reads the weights itself, it must not find out in a step."""
    base = write_weights(tmp_path / "base")
    check_against_weights(read_adapter(write_adapter(tmp_path / "fits", GIVEN)), base)
    one = np.ones((2, 40), np.float32), np.ones((48, 2), np.float32)
    other = write_adapter(tmp_path / "other", {"model.layers.0.self_attn.q_proj": one})
    with pytest.raises(CallerError, match="maps 48 to 48 numbers in the base, and 40 to 48"):
        check_against_weights(read_adapter(other), base)
    deep = write_adapter(tmp_path / "deep", {"model.layers.9.self_attn.q_proj": one})
    with pytest.raises(CallerError, match=r"no linear layer 'model\.layers\.9"):
        check_against_weights(read_adapter(deep), base)
    check_against_weights(read_adapter(other), tmp_path)  # no weights to look at


def test_quantised_layers_of_a_base_are_left_to_its_engine(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    packed = {"model.layers.0.self_attn.q_proj.qweight": np.ones((6, 48), np.float32)}
    write_safetensors(base / "model.safetensors", packed)
    one = np.ones((2, 40), np.float32), np.ones((48, 2), np.float32)
    adapter = write_adapter(tmp_path / "a", {"model.layers.0.self_attn.q_proj": one})
    check_against_weights(read_adapter(adapter), base)


def test_names_in_errors_are_short_and_readable(tmp_path: Path) -> None:
    write_adapter(tmp_path, GIVEN)
    (tmp_path / CONFIG_NAME).write_text(json.dumps({"peft_type": "\ud800" + "x" * 100_000}))
    error = refused(tmp_path)
    assert len(error.message) < 500
    error.message.encode()
