"""What the Open Inference Protocol tells about models, for its HTTP and its gRPC form alike.

An endpoint's name is its model name. What is known of a model is what its first loaded copy
reported (`VariantRoutes.model`); what has been counted comes from the metrics. Answers are plain
values with the protocol's field names.
"""

from __future__ import annotations

from typing import Any

from penstock import __version__
from penstock.errors import CallerError
from penstock.gateway.dispatcher import Dispatcher
from penstock.metrics.registry import MetricRegistry

SERVER_NAME = "penstock"
EXTENSIONS = ("binary_tensor_data", "model_configuration", "model_repository", "statistics")
_NS_PER_S = 1_000_000_000
_FAILED = ("caller-error", "model-error", "internal-error")


class OipModels:
    """Reads the gateway's endpoints as models."""

    def __init__(self, dispatcher: Dispatcher, registry: MetricRegistry | None = None) -> None:
        self._dispatcher = dispatcher
        self._registry = registry

    def server_ready(self) -> bool:
        return self._dispatcher.accepting

    def server_metadata(self) -> dict[str, Any]:
        return {"name": SERVER_NAME, "version": __version__, "extensions": list(EXTENSIONS)}

    def check(self, name: str, version: str) -> dict[str, Any]:
        """The model's description. Raises CallerError (404) for an unknown name or version."""
        routes = self._dispatcher.routes(name)
        if routes is None:
            raise CallerError(
                "model-not-found",
                f"Request for unknown model: '{name[:256]}' is not found",
                hint="POST /v2/repository/index names the models.",
                status=404,
            )
        described = (variant.model for variant in routes.variants if variant.model)
        model = dict(next(described, {}))
        versions = _versions(model)
        if version and version not in versions:
            raise CallerError(
                "model-version-not-found",
                f"Request for unknown model: '{name[:256]}' has no version {version[:64]}; "
                f"it has {', '.join(versions)}",
                status=404,
            )
        return model

    def model_ready(self, name: str, version: str) -> bool:
        self.check(name, version)
        return self._dispatcher.is_ready(name)

    def metadata(self, name: str, version: str) -> dict[str, Any]:
        model = self.check(name, version)
        return {
            "name": name,
            "versions": _versions(model),
            "platform": str(model.get("platform", "")),
            "inputs": _tensors(model, "inputs"),
            "outputs": _tensors(model, "outputs"),
        }

    def config(self, name: str, version: str) -> dict[str, Any]:
        """Triton's model configuration, the fields that clients read."""
        model = self.check(name, version)
        rows_max = model.get("rows_max", 0)
        batched = isinstance(rows_max, int) and rows_max > 0
        config: dict[str, Any] = {
            "name": name,
            "platform": str(model.get("platform", "")),
            "backend": str(model.get("runtime", "")),
            "max_batch_size": rows_max if batched else 0,
            "input": _config_tensors(model, "inputs", batched),
            "output": _config_tensors(model, "outputs", batched),
        }
        batching = model.get("batching")
        if batched and isinstance(batching, dict):
            config["dynamic_batching"] = {
                "preferred_batch_size": list(batching.get("rows_preferred") or ()),
                "max_queue_delay_microseconds": int(float(batching.get("wait_s_max") or 0) * 1e6),
            }
        return config

    def statistics(self, name: str, version: str) -> list[dict[str, Any]]:
        """Counts and durations since the start; of all models if `name` is empty.

        `success.ns` covers all requests that ended, the failed ones included. Executions are
        counted as if each request had one row, which is what is known outside of the instance.
        """
        names = [name] if name else self._dispatcher.endpoint_names()
        return [self._statistics(each, version) for each in names]

    def index(self, *, ready_only: bool = False) -> list[dict[str, Any]]:
        rows = []
        for name in self._dispatcher.endpoint_names():
            ready = self._dispatcher.is_ready(name)
            if ready or not ready_only:
                versions = _versions(self.check(name, ""))
                state = "READY" if ready else "UNAVAILABLE"
                reason = "" if ready else "no copy of it is ready"
                rows.append(
                    {"name": name, "version": versions[-1], "state": state, "reason": reason}
                )
        return rows

    def _statistics(self, name: str, version: str) -> dict[str, Any]:
        model = self.check(name, version)
        routes = self._dispatcher.routes(name)
        succeeded = failed = ran = executions = 0.0
        total_s = queue_s = run_s = 0.0
        for variant in routes.variants if routes is not None else ():
            totals = self._registry.totals.get((name, variant.name)) if self._registry else None
            if totals is None:
                continue
            for (_, outcome), count in totals.requests.items():
                succeeded += count if outcome == "ok" else 0
                failed += count if outcome in _FAILED else 0
            total_s += totals.total_s.total
            queue_s += totals.queue_s.total
            run_s += totals.run_s.total
            ran += totals.run_s.count
            executions += sum(count / rows for rows, count in totals.batch_rows.items())
        return {
            "name": name,
            "version": version or _versions(model)[-1],
            "inference_count": int(ran),
            "execution_count": round(executions),
            "inference_stats": {
                "success": {"count": int(succeeded), "ns": int(total_s * _NS_PER_S)},
                "fail": {"count": int(failed), "ns": 0},
                "queue": {"count": int(ran), "ns": int(queue_s * _NS_PER_S)},
                "compute_infer": {"count": int(ran), "ns": int(run_s * _NS_PER_S)},
            },
        }


def _versions(model: dict[str, Any]) -> list[str]:
    versions = model.get("versions")
    return [str(version) for version in versions] if versions else ["1"]


def _tensors(model: dict[str, Any], side: str) -> list[dict[str, Any]]:
    return [
        {"name": each["name"], "datatype": each["datatype"], "shape": list(each["shape"])}
        for each in model.get(side) or ()
    ]


def _config_tensors(model: dict[str, Any], side: str, batched: bool) -> list[dict[str, Any]]:
    return [
        {
            "name": each["name"],
            "data_type": "TYPE_" + ("STRING" if each["datatype"] == "BYTES" else each["datatype"]),
            "dims": each["shape"][1:] if batched else each["shape"],
        }
        for each in _tensors(model, side)
    ]
