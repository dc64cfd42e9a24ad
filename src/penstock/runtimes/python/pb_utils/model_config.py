"""Triton's configuration of a model: as a model reads it, and as `auto_complete_config` fills it
in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

Properties = dict[str, Any]


class ModelConfig:
    """The configuration in `auto_complete_config`. Values that config.pbtxt gives are not replaced:
    a model that says otherwise is refused by the ValueError that its call raises."""

    def __init__(self, model_config: str) -> None:
        self._model_config: Properties = json.loads(model_config)

    def as_dict(self) -> Properties:
        return self._model_config

    @property
    def _name(self) -> str:
        return str(self._model_config.get("name", ""))

    def set_max_batch_size(self, max_batch_size: int) -> None:
        configured = self._model_config.get("max_batch_size", 0)
        if configured > max_batch_size:
            raise ValueError(
                f"config.pbtxt of {self._name!r} has max_batch_size {configured}, and its "
                f"auto_complete_config sets the smaller {max_batch_size}"
            )
        self._model_config["max_batch_size"] = max_batch_size

    def set_dynamic_batching(self) -> None:
        for scheduler in ("sequence_batching", "ensemble_scheduling"):
            if scheduler in self._model_config:
                raise ValueError(
                    f"config.pbtxt of {self._name!r} has {scheduler}, and its auto_complete_config "
                    "sets dynamic_batching: a model has one of them"
                )
        self._model_config.setdefault("dynamic_batching", {})

    def add_input(self, input: Properties) -> None:  # Triton's name
        self._add("input", input, ("optional",))

    def add_output(self, output: Properties) -> None:
        self._add("output", output, ())

    def _add(self, kind: str, tensor: Properties, more: tuple[str, ...]) -> None:
        required = ("name", "data_type", "dims")
        where = f"{kind} {tensor.get('name')!r} in auto_complete_config of {self._name!r}"
        for key in required:
            if key not in tensor:
                raise ValueError(f"{where} is missing {key!r}")
        for key in tensor:
            if key not in (*required, *more):
                raise ValueError(
                    f"{where} has {key!r}; it may have {', '.join((*required, *more))}"
                )
        tensors: list[Properties] = self._model_config.setdefault(kind, [])
        known = next((each for each in tensors if each["name"] == tensor["name"]), None)
        if known is None:
            tensors.append(tensor)
            return
        for key in tensor:
            # A config.pbtxt says of each of its inputs whether it is optional, if only by default.
            value = known.get(key)
            if value not in (None, [], "TYPE_INVALID") and value != tensor[key]:
                raise ValueError(
                    f"configuration expects {key} {value} for {kind} {tensor['name']!r}, model "
                    f"provides {tensor[key]} in auto_complete_config of {self._name!r}"
                )
        known.update(tensor)

    def set_model_transaction_policy(self, transaction_policy_dict: Properties) -> None:
        for key in transaction_policy_dict:
            if key != "decoupled":
                raise ValueError(
                    f"the transaction policy in auto_complete_config of {self._name!r} has "
                    f"{key!r}; it may have 'decoupled'"
                )
        policy = self._model_config.setdefault("model_transaction_policy", {})
        for key, value in transaction_policy_dict.items():
            if policy.get(key, value) != value:
                raise ValueError(
                    f"auto_complete_config of {self._name!r} sets {key} {value}, and config.pbtxt "
                    f"has {policy[key]}"
                )
            policy[key] = value


def completed_by(model: Any, config: Properties) -> Properties:
    """The configuration with what the class `model` adds in `auto_complete_config`."""
    complete = getattr(model, "auto_complete_config", None)
    if complete is None:
        return config
    made = complete(ModelConfig(json.dumps(config)))
    if not isinstance(made, ModelConfig):
        raise ValueError("auto_complete_config must return its argument, a pb_utils.ModelConfig")
    return made.as_dict()


def get_input_config_by_name(model_config: Mapping[str, Any], name: str) -> Properties | None:
    return next((each for each in model_config.get("input", ()) if each["name"] == name), None)


def get_output_config_by_name(model_config: Mapping[str, Any], name: str) -> Properties | None:
    return next((each for each in model_config.get("output", ()) if each["name"] == name), None)


def using_decoupled_model_transaction_policy(model_config: Mapping[str, Any]) -> bool:
    return bool(model_config.get("model_transaction_policy", {}).get("decoupled"))
