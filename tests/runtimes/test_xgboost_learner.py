"""What a Booster was trained for, also where its XGBoost does not tell: golden bytes of 0.90."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.errors import ModelError
from penstock.runtimes.toolkits.xgboost import default_model_fn
from penstock.runtimes.xgboost.learner import Learner, learner_of
from penstock.runtimes.xgboost.predictor import booster_of


class OldBooster:
    """Of XGBoost 0.90: it has no `save_config`."""

    def __init__(self, head: str, objective: bytes) -> None:
        self._raw = bytes.fromhex(head) + bytes(124) + len(objective).to_bytes(8, "little")
        self._raw += objective + b"\x06\0\0\0\0\0\0\0gbtree\x01\0\0\0"

    def save_raw(self) -> bytearray:
        return bytearray(self._raw)


class NewBooster:
    def __init__(self, **told: Any) -> None:
        self._told = told

    def save_config(self) -> str:
        return json.dumps({"learner": self._told})


def test_versions_before_1_0_are_read_from_their_binary_form() -> None:
    binary = OldBooster("00000080 02000000 00000000", b"binary:logistic")
    assert learner_of(binary) == Learner("binary:logistic", 2, 0, 1)
    classes = OldBooster("0000003f 02000000 03000000", b"multi:softmax")
    assert learner_of(classes) == Learner("multi:softmax", 2, 3, 1)


def test_later_ones_tell() -> None:
    sizes = {"num_feature": "8", "num_class": "3", "num_target": "1", "base_score": "0.5"}
    told = NewBooster(objective={"name": "multi:softprob"}, learner_model_param=sizes)
    assert learner_of(told) == Learner("multi:softprob", 8, 3, 1)
    older = NewBooster(objective={"name": "reg:squarederror"}, learner_model_param={})
    assert learner_of(older) == Learner("reg:squarederror", 0, 0, 1)


@pytest.mark.parametrize(
    ("version", "kind"), [("0.90", bytearray), ("1.0.2", str), ("1.2.1", bytearray)]
)
def test_a_model_is_read_from_memory_where_the_version_can(
    tmp_path: Path, version: str, kind: type
) -> None:
    read: list[object] = []

    class Booster:
        def load_model(self, source: object) -> None:
            read.append(source)

    library = SimpleNamespace(
        Booster=Booster, __version__=version, core=SimpleNamespace(XGBoostError=KeyError)
    )
    file = tmp_path / "xgboost-model"
    file.write_bytes(b"trees")
    booster_of(library, file)
    assert read == [str(file) if kind is str else bytearray(b"trees")]


def test_json_is_refused_where_the_version_would_end_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = SimpleNamespace(__version__="0.90", core=SimpleNamespace(XGBoostError=KeyError))
    file = tmp_path / "xgboost-model"
    file.write_bytes(b'{"learner": {}, "version": [3, 1, 2]}')
    with pytest.raises(ModelError) as refused:
        booster_of(library, file)
    assert "XGBoost 0.90 can't read it: it is JSON, which came with XGBoost 1.0" in str(
        refused.value
    )
    assert refused.value.hint == "It was made by XGBoost 3.1: use that version."
    monkeypatch.setitem(sys.modules, "xgboost", library)
    with pytest.raises(ModelError, match=r"no model that XGBoost 0.90 saved: it is JSON"):
        default_model_fn(str(tmp_path))
