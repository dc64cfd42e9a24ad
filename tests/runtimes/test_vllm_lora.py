"""What a base of vLLM's is given where its arithmetic knows no request without an adapter.

The engine itself is asked in `tests/instance/test_generation_vllm.py`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.kit.adapter_files import write_safetensors
from tests.kit.generation_models import write_weights

from penstock.errors import ModelError
from penstock.runtimes.generation.adapter_base import check_against_weights
from penstock.runtimes.generation.adapter_files import WEIGHTS, read_adapter
from penstock.runtimes.vllm.lora import _zeros


def test_an_adapter_of_zeros_fits_its_base_and_adds_nothing(tmp_path: Path) -> None:
    base = write_weights(tmp_path / "base")
    found = read_adapter(_zeros(base, tmp_path / "scratch"))
    check_against_weights(found, base)
    ((layer),) = found.layers
    data = (found.root / WEIGHTS).read_bytes()
    assert not any(data[layer.down.begin : layer.up.end])
    assert found.rank_max == 1


def test_a_base_without_a_layer_that_is_known_says_so(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "model.safetensors", {"odd.weight": np.ones((2, 2), np.float32)})
    with pytest.raises(ModelError, match="no layer of the base is known"):
        _zeros(tmp_path, tmp_path / "scratch")
