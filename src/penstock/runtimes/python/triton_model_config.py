"""`pb_utils.ModelConfig`: the configuration that a model's `auto_complete_config` completes.

Names, rules and messages follow Triton's Python backend: what config.pbtxt says is kept, and code
that contradicts it fails the load. Imports the standard library alone.
"""

from __future__ import annotations

import json
from typing import Any, Final

Config = dict[str, Any]

_TENSOR_KEYS: Final = ("name", "data_type", "dims", "optional")
_SCHEDULERS: Final = ("sequence_batching", "ensemble_scheduling")


class ModelConfig:
    """Made of the JSON of a configuration."""

    def __init__(self, model_config: str) -> None:
        self._config: Config = json.loads(model_config)

    def as_dict(self) -> Config:
        return self._config

    def set_max_batch_size(self, max_batch_size: int) -> None:
        """Raises ValueError if the configuration has a larger one."""
        given = self._config.get("max_batch_size", 0)
        if given > max_batch_size:
            raise ValueError(
                f"configuration specified max_batch_size {given}, but in auto-complete-config "
                f"function for model '{self._name}' specified max_batch_size {max_batch_size}"
            )
        self._config["max_batch_size"] = max_batch_size

    def set_dynamic_batching(self) -> None:
        """Has no effect where the configuration names another scheduler."""
        if not any(name in self._config for name in _SCHEDULERS):
            self._config.setdefault("dynamic_batching", {})

    def add_input(self, input: Config) -> None:
        self._add("input", input)

    def add_output(self, output: Config) -> None:
        self._add("output", output)

    def set_model_transaction_policy(self, transaction_policy_dict: Config) -> None:
        """Raises ValueError if the configuration has another one."""
        unknown = set(transaction_policy_dict) - {"decoupled"}
        if unknown:
            raise ValueError(
                f"model transaction property in auto-complete-config function for model "
                f"'{self._name}' contains property other than 'decoupled'"
            )
        given = self._config.get("model_transaction_policy", {}).get("decoupled", False)
        wanted = bool(transaction_policy_dict.get("decoupled", False))
        if given and not wanted:
            raise ValueError(
                f"trying to change decoupled property in auto-complete-config for model "
                f"'{self._name}', which is already set to '{given}'"
            )
        self._config["model_transaction_policy"] = {"decoupled": wanted}

    @property
    def _name(self) -> str:
        return str(self._config.get("name", ""))

    def _add(self, side: str, tensor: Config) -> None:
        what = f"{side} '{tensor.get('name', '')}' in auto-complete-config function for model "
        what += f"'{self._name}'"
        keys = _TENSOR_KEYS if side == "input" else _TENSOR_KEYS[:-1]
        if set(tensor) - set(keys):
            raise ValueError(f"{what} contains property other than {', '.join(keys)}")
        for key in _TENSOR_KEYS[:-1]:
            if key not in tensor:
                raise ValueError(f"{what} is missing '{key}' property")
        known = self._config.setdefault(side, [])
        given = next((each for each in known if each["name"] == tensor["name"]), None)
        if given is None:
            known.append({**tensor, "dims": list(tensor["dims"])})
            return
        for key in ("data_type", "dims", "optional"):
            if key in tensor and given.get(key) and given[key] != tensor[key]:
                raise ValueError(
                    f"unable to load model '{self._name}', configuration expects {key} "
                    f"{given[key]} for {side} '{tensor['name']}', model provides {tensor[key]}"
                )


def completed_by(model: Any, config: Config) -> Config:
    """The configuration with what the class `model` adds in `auto_complete_config`."""
    complete = getattr(model, "auto_complete_config", None)
    if complete is None:
        return config
    made = complete(ModelConfig(json.dumps(config)))
    if not isinstance(made, ModelConfig):
        raise ValueError("auto_complete_config must return its argument, a pb_utils.ModelConfig")
    return made.as_dict()
