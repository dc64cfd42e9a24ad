"""Facts about models for the Open Inference Protocol, over HTTP and gRPC alike.

An endpoint's name is its model name, `endpoint:component` that of an inference component, and
`endpoint:target` that of a target model, whose hosts know it (`targets.py`). An endpoint may be
served under more names, and each answer has the name that was asked. Facts of any other
model come from the report of its first loaded copy (`VariantRoutes.model`), and counts come from
the metrics. Answers are plain values with the protocol's field names.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from penstock import __version__
from penstock.api.model_names import ModelName
from penstock.api.oip.server_settings import ServerSettings
from penstock.api.oip.shared_memory import SharedMemoryDoor, SharedMemoryTable
from penstock.api.oip.statistics import statistics_of, target_statistics
from penstock.api.oip.targets import Targets
from penstock.core.deployment.served_names import MODELS, listed
from penstock.errors import CallerError, PenstockError
from penstock.gateway.dispatch import refusals
from penstock.gateway.dispatch.dispatcher import Dispatcher
from penstock.metrics.counts.inference_counts import inference_counts
from penstock.metrics.counts.registry import MetricRegistry
from penstock.metrics.models.model_delta import ModelDelta

SERVER_NAME = "penstock"
#: The parameter of an unload: models of an ensemble's steps go as well.
_DEPENDENTS = "unload_dependents"
EXTENSIONS = (
    *("binary_tensor_data", "model_configuration", "model_repository", "statistics"),
    *("trace", "logging"),
)


class OipModels:
    """Shows the gateway's endpoints as models."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        registry: MetricRegistry | None = None,
        targets: Targets | None = None,
        regions: SharedMemoryTable | None = None,
        settings: ServerSettings | None = None,
    ) -> None:
        """
        Args:
            targets: None where no control plane can reach the hosts.
            regions: of shared memory; None where callers may have none.
            settings: of log and traces; None: no requests are traced.
        """
        self.settings = settings or ServerSettings()
        self.shared = SharedMemoryDoor(regions)
        self._dispatcher = dispatcher
        self._registry = registry
        self._targets = targets

    def server_ready(self) -> bool:
        return self._dispatcher.accepting

    def server_metadata(self) -> dict[str, Any]:
        extensions = [*EXTENSIONS, *(["system_shared_memory"] if self.shared.on else [])]
        return {"name": SERVER_NAME, "version": __version__, "extensions": extensions}

    def check(self, name: ModelName, version: str) -> dict[str, Any]:
        """The description of an endpoint's model, or of a component. Raises CallerError (404) for
        an unknown name or version."""
        routes = self._dispatcher.routes(name.endpoint)
        component = self._component(name)
        pools = routes.variants if routes is not None else ()
        if component is not None:
            pools = tuple(one for one in pools if one.component == component)
        if routes is None or (component is not None and not pools):
            raise CallerError(
                "model-not-found",
                f"Request for unknown model: '{str(name)[:256]}' is not found",
                hint="POST /v2/repository/index names the models.",
                status=404,
            )
        model = dict(next((one.model for one in pools if one.model), {}))
        if routes.takes_components and component is None:
            model = {}  # it has as many models as components
        _check_version(model, str(name), version)
        return model

    def version_of(self, endpoint: str, component: str = "") -> str | None:
        """The version that a request without one gets; None: no such model is published."""
        try:
            return _versions(self.check(ModelName(endpoint, component or None), ""))[-1]
        except CallerError:
            return None

    def check_version(self, name: ModelName, version: str) -> None:
        """As `check`. The hosts of a target model know and check its versions."""
        if not self._is_target(name):
            self.check(name, version)

    def model_ready(self, name: ModelName, version: str) -> bool:
        """A target model is ready once it is loaded; a call loads it."""
        if self._is_target(name):
            return self._of(name).is_ready(name)
        self.check(name, version)
        return self._dispatcher.is_ready(name.endpoint, self._component(name))

    async def metadata(self, name: ModelName, version: str) -> dict[str, Any]:
        model = await self._described(name, version)
        return {
            "name": str(name),
            "versions": _versions(model),
            "platform": str(model.get("platform", "")),
            "inputs": _tensors(model, "inputs"),
            "outputs": _tensors(model, "outputs"),
        }

    async def config(self, name: ModelName, version: str) -> dict[str, Any]:
        """Triton's model configuration: all of it for a model of a Triton repository, else the
        fields that clients read."""
        model = await self._described(name, version)
        whole = model.get("config")
        if whole:
            return {**whole, "name": str(name)}
        rows_max = model.get("rows_max", 0)
        batched = isinstance(rows_max, int) and rows_max > 0
        config: dict[str, Any] = {
            "name": str(name),
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
        reason = str(model.get("runtime_reason") or "")
        if reason:
            config["parameters"] = {"runtime_reason": {"string_value": reason}}
        return config

    async def statistics(self, name: ModelName | None, version: str) -> list[dict[str, Any]]:
        """Counts and durations since the start; of all endpoints if `name` is None.

        Counts are of all versions of a model together.
        """
        if name is not None and self._is_target(name):
            row = await self._of(name).statistics(name)
            return [target_statistics(row, self._delta_of(name))]
        names = self._endpoints_and_components() if name is None else [name]
        return [self._statistics(each, version) for each in names]

    async def index(self, *, ready_only: bool = False) -> list[dict[str, Any]]:
        """Endpoints, each followed by its other names and its target models; of a repository whose
        models have names of their own, these alone."""
        rows: list[dict[str, Any]] = []
        for known in self._endpoints_and_components(served=True):
            if known.served and known.target and known.served in {row["name"] for row in rows}:
                continue  # the name of a target model, which has its row
            entry = self._entry(known, ready_only)
            rows += entry
            name = known.endpoint
            if known.served:
                continue
            if self._targets is not None and self._dispatcher.is_multi_model(name):
                try:
                    targets = await self._targets.index(name, ready_only=ready_only)
                    own = self._own_names(name, [row["name"] for row in targets])
                    if own is not None:
                        del rows[len(rows) - len(entry) :]  # it has no model of its own
                        targets = [own(row) for row in targets]
                    rows += targets
                except PenstockError as error:  # a fault of one endpoint does not hide the others
                    rows[-1:] = [{**row, "reason": error.message} for row in rows[-1:]]
        return rows

    def _own_names(
        self, endpoint: str, rows: Collection[str]
    ) -> Callable[[dict[str, Any]], dict[str, Any]] | None:
        """Gives a row of a target model the model's own name, unless that is somebody else's; None
        where an endpoint's target models are not all served under names of their own. `rows`: the
        names of their rows."""
        routes = self._dispatcher.routes(endpoint)
        names = routes.served_names if routes is not None else {}
        own_names = {f"{endpoint}:{target}": name for name, target in names.items() if target}
        if MODELS not in names and not (rows and own_names.keys() >= set(rows)):
            return None
        find = self._dispatcher.served.find

        def own(row: dict[str, Any]) -> dict[str, Any]:
            target = row["name"].removeprefix(f"{endpoint}:")
            name = target if MODELS in names else own_names[row["name"]]
            return {**row, "name": name} if find(name) == (endpoint, target) else row

        return own

    async def load(self, name: ModelName, *, overrides: bool = False) -> dict[str, Any]:
        """Returns when it is ready. Raises its error, or CallerError (`not-served`) for a model
        that can't be loaded this way."""
        targets = self._changeable(name)
        if overrides:
            raise CallerError(
                "load-parameters-unsupported",
                f"Model {name} is loaded as it lies below its prefix: a configuration or files"
                " in the request are not taken.",
                hint="Leave parameters out, and change the artifact instead.",
            )
        await targets.load(name)
        return {}

    async def unload(
        self, name: ModelName, parameters: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Returns when it is unloaded. Raises as `load`, also for parameters that there are not."""
        targets = self._changeable(name)
        given = dict(parameters or {})
        dependents = given.pop(_DEPENDENTS, False)
        if given or not isinstance(dependents, bool):
            raise CallerError(
                "load-parameters-unsupported",
                f"Model {name}: an unload takes {_DEPENDENTS}, true or false, and no other"
                " parameter.",
            )
        await targets.unload(name, dependents=dependents)
        return {}

    def _changeable(self, name: ModelName) -> Targets:
        if self._is_target(name):
            return self._of(name)
        self.check(name, "")
        raise CallerError(
            "not-served",
            "Models are loaded and unloaded through endpoints, not through the repository; target"
            " models of a multi-model endpoint are named ENDPOINT:TARGET_MODEL.",
            hint="Use CreateEndpoint and DeleteEndpoint, or penstock deploy and delete.",
        )

    def _of(self, name: ModelName) -> Targets:
        self.check(ModelName(name.endpoint), "")
        if self._targets is None or not self._dispatcher.is_multi_model(name.endpoint):
            raise refusals.target_model_not_allowed(name.endpoint)
        return self._targets

    async def _described(self, name: ModelName, version: str) -> dict[str, Any]:
        """The model's description. Raises CallerError (404) for an unknown name or version."""
        if not self._is_target(name):
            return self.check(name, version)
        model = await self._of(name).described(name)
        _check_version(model, str(name), version)
        return model

    def _is_target(self, name: ModelName) -> bool:
        """Whether it names a target model, which only its hosts know."""
        return name.target is not None and self._component(name) is None

    def _component(self, name: ModelName) -> str | None:
        """The inference component of a name; None where it names none."""
        takes_components = name.target is not None and self._dispatcher.takes_components(
            name.endpoint
        )
        return name.target if takes_components else None

    def _endpoints_and_components(self, *, served: bool = False) -> list[ModelName]:
        """Each endpoint, followed by its components; with `served`, by its other names, too."""
        names = []
        for endpoint in self._dispatcher.endpoint_names():
            names.append(ModelName(endpoint))
            routes = self._dispatcher.routes(endpoint)
            if routes is not None and routes.takes_components:
                names += [ModelName(endpoint, one.component) for one in routes.variants]
            if served and routes is not None:
                names += [
                    ModelName(endpoint, target or None, name)
                    for name, target in listed(routes.served_names).items()
                    if name != endpoint
                ]
        return names

    def _entry(self, name: ModelName, ready_only: bool) -> list[dict[str, Any]]:
        try:
            ready = self.model_ready(name, "")
            versions = ["1"] if self._is_target(name) else _versions(self.check(name, ""))
            reason = "" if ready else "no copy of it is ready"
        except CallerError as error:  # a served name of a model that is not there
            ready, versions, reason = False, ["1"], error.message
        if ready_only and not ready:
            return []
        state = "READY" if ready else "UNAVAILABLE"
        return [
            {"name": str(name), "version": version, "state": state, "reason": reason}
            for version in versions
        ]

    def _statistics(self, name: ModelName, version: str) -> dict[str, Any]:
        model = self.check(name, version)
        component = self._component(name)
        variants = self._registry.of(name.endpoint, component) if self._registry else ()
        cache = self._registry.cache_counts(name.endpoint, component) if self._registry else None
        return statistics_of(
            str(name), version or _versions(model)[-1], inference_counts(variants), cache
        )

    def _delta_of(self, name: ModelName) -> ModelDelta:
        """What hosts have reported of a target model."""
        total = ModelDelta()
        known = self._registry.models.variants if self._registry else {}
        for (endpoint, _), models in known.items():
            delta = models.shown.get(name.target or "") if endpoint == name.endpoint else None
            if delta is not None:
                total.add(delta)
        return total


def _check_version(model: dict[str, Any], name: str, version: str) -> None:
    versions = _versions(model)
    if version and version not in versions:
        raise CallerError(
            "model-version-not-found",
            f"Request for unknown model: '{name[:256]}' has no version {version[:64]}; "
            f"it has {', '.join(versions)}",
            status=404,
        )


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
