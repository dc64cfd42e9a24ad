"""`penstock describe`: one endpoint and the models that it serves, with a request to try."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from penstock.cli import options
from penstock.cli.client import Client
from penstock.cli.endpoints import deploy, listing
from penstock.cli.endpoints.sample import sample_of
from penstock.cli.output import print_json, print_table, seconds

_HIDDEN = "***"
#: Parts of variables' names whose values are not shown.
_SECRET = ("KEY", "SECRET", "TOKEN", "PASSWORD", "CREDENTIAL")


def describe(
    name: options.EndpointName,
    server: options.ReportOptions = options.REPORT,
) -> None:
    """Show an endpoint's models: schema, runtime, settings, files, and a request to try."""
    client = server.client()
    endpoint = deploy.describe(client, name)
    served = client.admin(f"/endpoints/{quote(name, safe='')}/models-served")
    models = _models(client, endpoint)
    if server.json_:
        samples = [_sample(one["model"]) for one in served["models"]]
        found = {"endpoint": endpoint, "models": models, "served": served["models"]}
        more = {"names": served["names"], "logs": served["logs"]}
        print_json(found | {"samples": samples} | more)
        return
    rows = _endpoint_rows(endpoint, served["names"], served["logs"])
    print_table(f"endpoint {name}", ("what", "value"), rows)
    for model in models:
        print()
        print_table(f"model {model['ModelName']}", ("what", "value"), _model_rows(model))
    for one in served["models"]:
        print()
        what = f"component {one['component']}" if one["component"] else f"variant {one['variant']}"
        print_table(f"{what}, as it is served", ("what", "value"), _served_rows(one["model"]))
    containers = (one for model in models for one in listing.containers_of(model))
    multi_model = any(one.get("Mode") == "MultiModel" for one in containers)
    if served["models"]:
        print(f"\n{deploy.how_to_call(client, name, multi_model=multi_model)}")
    else:
        print("\nNothing is loaded yet: the schema is known once a copy is ready.")


def _models(client: Client, endpoint: dict[str, Any]) -> list[dict[str, Any]]:
    names = [{"ModelName": name} for name in dict.fromkeys(listing.served_by(client, endpoint))]
    return listing.described(client, "DescribeModel", "ModelName", names)


def _sample(model: Mapping[str, Any]) -> dict[str, str]:
    sample = sample_of(model)
    return {"content_type": sample.content_type, "body": sample.body, "note": sample.note}


def _endpoint_rows(
    endpoint: Mapping[str, Any], names: Mapping[str, str], logs: list[str]
) -> Iterator[tuple[str, object]]:
    yield "status", endpoint["EndpointStatus"]
    for served, target in names.items():
        yield "served as", f"{served}={target}" if target else served
    if endpoint.get("FailureReason"):
        yield "reason", endpoint["FailureReason"]
    yield "configuration", deploy.heading(endpoint) if "EndpointConfigName" in endpoint else ""
    yield "created", seconds(endpoint.get("CreationTime"))
    yield "changed", seconds(endpoint.get("LastModifiedTime"))
    for variant in endpoint.get("ProductionVariants", ()):
        count = f"{variant.get('CurrentInstanceCount', 0)}/{variant.get('DesiredInstanceCount', 0)}"
        yield f"variant {variant['VariantName']}", f"{count} instances"
    for log in logs:
        yield "log", log


def _model_rows(model: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    containers = listing.containers_of(model)
    yield "created", seconds(model.get("CreationTime"))
    if len(containers) > 1:
        mode = (model.get("InferenceExecutionConfig") or {}).get("Mode") or "Serial"
        yield "containers", f"{len(containers)}, {mode}"
    for number, container in enumerate(containers, 1):
        named = container.get("ContainerHostname") or f"container-{number}"
        before = f"{named}: " if len(containers) > 1 else ""
        for what, value in _container_rows(container):
            yield f"{before}{what}", value


def _container_rows(container: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    source = (container.get("ModelDataSource") or {}).get("S3DataSource") or {}
    yield "artifact", container.get("ModelDataUrl") or source.get("S3Uri")
    if container.get("Image"):
        yield "image", container["Image"]
    for name, value in sorted((container.get("Environment") or {}).items()):
        secret = any(part in name.upper() for part in _SECRET)
        yield f"variable {name}", _HIDDEN if secret else value


def _served_rows(model: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    for one in model.get("containers") or ():
        yield f"container {one['hostname']}", f"{one['runtime']}: {one.get('why', '')}"
    why = f": {model['why']}" if model.get("why") else ""
    yield "runtime", f"{model.get('runtime', '')}{why}"
    yield "task", model.get("task")
    for kind in ("inputs", "outputs"):
        for tensor in model.get(kind) or ():
            shape = ", ".join("?" if size < 0 else str(size) for size in tensor["shape"])
            yield f"{kind[:-1]} {tensor['name']}", f"{tensor['datatype']} [{shape}]"
    if model.get("labels"):
        yield "labels", ", ".join(map(str, model["labels"]))
    yield "lanes", model.get("lanes")
    for name, value in sorted((model.get("batching") or {}).items()):
        if value not in (None, [], ()):
            yield f"batching {name}", json.dumps(value)
    if model.get("folder"):
        yield "files", model["folder"]
    yield "python", model.get("interpreter") or "the server's own"
