"""`penstock deploy`: one model as an endpoint, by three calls of the SageMaker API.

`penstock delete`: an endpoint with its configuration and model.
"""

from __future__ import annotations

import sys
import time
import webbrowser
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote, unquote, urlsplit

import typer

from penstock.cli import options
from penstock.cli.client import Client, SageMaker, if_there
from penstock.cli.endpoints.endpoint_tags import endpoint_for, serve_as, tag_list
from penstock.cli.endpoints.repository import in_repository
from penstock.cli.endpoints.sample import call_text
from penstock.cli.output import note, print_json
from penstock.cli.waiting import ShownWait
from penstock.core.apply.plan import ENDPOINT_NAME, is_version_of, versioned_name
from penstock.core.request.grants import TRUST_VARIABLE
from penstock.errors import CallerError, ModelError, NotNowError, PenstockError

#: s: SageMaker's own limit for starting a container.
WAIT_S_MAX = 3600.0
_TARGETS_MAX = 100  #: target models among which one is looked for that is loaded
_LOOKS_MAX, _LOOK_EVERY_S = 20, 0.25


def deploy(
    name: Annotated[
        str, typer.Argument(help="Name of the endpoint, or any name of a model that it serves.")
    ],
    artifact: Annotated[
        str,
        typer.Argument(
            help="Folder, model.tar.gz, s3:// or https:// URI; none for an image with its model."
        ),
    ] = "",
    instance_type: options.InstanceType = "ml.local.small",
    count: options.Count = 1,
    image: Annotated[str, typer.Option("--image", help="Image, or local://RUNTIME.")] = "",
    env: Annotated[
        list[str] | None, typer.Option("--env", help="NAME=VALUE for the model's code.")
    ] = None,
    multi_model: Annotated[
        bool,
        typer.Option("--multi-model", help="It is a folder of models: each is loaded when called."),
    ] = False,
    model_cache: Annotated[
        bool, typer.Option(help="With --multi-model: keep models loaded that are idle.")
    ] = True,
    trust: Annotated[
        bool,
        typer.Option("--trust", help="Its pickle files are your own: load them, in a sandbox."),
    ] = False,
    served_name: Annotated[
        list[str] | None,
        typer.Option(
            "--served-name", help="Another name of the model: NAME, NAME=TARGET or @models."
        ),
    ] = None,
    wait: Annotated[bool, typer.Option(help="Wait until it is in service.")] = True,
    open_: Annotated[
        bool, typer.Option("--open", help="Open the model's description in a browser.")
    ] = False,
    server: options.WaitOptions = options.WAIT,
) -> None:
    """Deploy a model, or update the endpoint of that name to it; print how to call it."""
    if not artifact and not image:
        raise CallerError(
            "usage",
            "deploy takes a model, or an image that brings its own",
            hint="Give a folder, a model.tar.gz or a URI after the name, or --image IMAGE.",
        )
    client, uri = server.client(), artifact_uri(artifact) if artifact else ""
    name, served = endpoint_for(client, name, served_name or ())
    environment = dict(pair(item) for item in env or ())
    environment |= {TRUST_VARIABLE: "true"} if trust else {}
    config_name, served, multi_model = in_repository(
        partial(
            create_or_update,
            client,
            name,
            uri,
            instance_type=instance_type,
            count=count,
            image=image,
            model_cache=model_cache,
        ),
        name, uri, environment, served=served, multi_model=multi_model,
    )  # fmt: skip
    if wait:
        with server.waiting(client, at_once=True) as waiting:
            described = wait_in_service(client, name, config_name, waiting=waiting)
    else:
        described = describe(client, name)
    if server.json_:
        print_json(described)
        return
    named = f", served as {', '.join(served)}" if served else ""
    note(f"endpoint {name} is {described['EndpointStatus']} at {client.url}{named}")
    if wait and not server.quiet:
        print(how_to_call(client, name, multi_model=multi_model))
    page = f"{client.url}/v2/models/{name}"
    if open_ and not webbrowser.open(page):
        note(f"no browser could be opened; the page is {page}")


def how_to_call(client: Client, name: str, *, multi_model: bool = False) -> str:
    """Commands with a request that the endpoint's model takes."""
    target = ""
    model: dict[str, Any] = {}
    if multi_model:
        target, model = _target_of(client, name)
    elif served := client.admin(f"/endpoints/{quote(name, safe='')}/models-served")["models"]:
        model = served[0]["model"]
    told = call_text(client.url, name, model, auth=client.has_key, target=target)
    return f"Call it:\n\n{told}\n"


def _target_of(client: Client, name: str) -> tuple[str, dict[str, Any]]:
    """A target model to call, a loaded one where there is any, and what is known of it. What is
    being loaded is waited for, for a moment: only then it is known."""
    where = f"/endpoints/{quote(name, safe='')}/models"
    for _ in range(_LOOKS_MAX):
        rows = client.admin(f"{where}?after=&limit={_TARGETS_MAX}")["models"]
        states = {row["state"] for row in rows}
        if "loaded" in states or "loading" not in states:
            break
        time.sleep(_LOOK_EVERY_S)
    if not rows:
        return "MODEL", {}
    target = min(rows, key=lambda row: row["state"] != "loaded")["model"]
    return target, client.admin(f"{where}/{quote(target)}")["described"]


def artifact_uri(text: str) -> str:
    """A URI unchanged; a path as a file:// URI of a folder or archive that exists."""
    if "://" in text:
        return text
    path = Path(text).expanduser().resolve()
    if not path.exists():
        raise CallerError(
            "artifact-not-found",
            f"there is no file or folder {text!r}",
            hint="Give a folder with a model, a model.tar.gz, or an s3:// or https:// URI.",
        )
    return path.as_uri()


def create_or_update(
    client: SageMaker,
    name: str,
    uri: str,
    *,
    instance_type: str = "ml.local.small",
    count: int = 1,
    image: str = "",
    environment: dict[str, str] | None = None,
    multi_model: bool = False,
    model_cache: bool = True,
    served: Sequence[str] = (),
) -> str:
    """Creates model, configuration and endpoint, or updates the endpoint that exists.

    Model and configuration are named after their content, so deploying the same thing twice changes
    nothing. New models in the folder of a multi-model endpoint are no new content. `served`: names
    to serve it under from now on, besides. Returns the configuration's name.
    """
    # Checked here because the resources that are created first have longer names.
    if not ENDPOINT_NAME.fullmatch(name):
        raise CallerError(
            "endpoint-name-invalid",
            f"{name!r} can't be an endpoint's name",
            hint="Use 1 to 63 letters and digits, with hyphens between them.",
        )
    container: dict[str, Any] = {"ModelDataUrl": uri} if uri else {}
    if image:
        container["Image"] = image
    if environment:
        container["Environment"] = environment
    if multi_model:
        container["Mode"] = "MultiModel"
        setting = "Enabled" if model_cache else "Disabled"
        container["MultiModelConfig"] = {"ModelCacheSetting": setting}
    variant = {
        "VariantName": "AllTraffic",
        "InstanceType": instance_type,
        "InitialInstanceCount": count,
    }
    files = [] if multi_model else files_of(uri)
    content = repr((sorted(container.items(), key=str), sorted(variant.items()), files))
    versioned = versioned_name(name, content)
    create_unless_there(client, "CreateModel", ModelName=versioned, PrimaryContainer=container)
    create_unless_there(
        client,
        "CreateEndpointConfig",
        EndpointConfigName=versioned,
        ProductionVariants=[variant | {"ModelName": versioned}],
    )
    tags = serve_as(client, name, served) if served else None
    point_endpoint(client, name, versioned, tags=tags)
    return versioned


def point_endpoint(
    client: SageMaker, name: str, config_name: str, *, tags: Mapping[str, str] | None = None
) -> None:
    """Creates the endpoint with `tags`, or updates the existing one to this configuration.

    A failed endpoint is deleted and created again. If it serves this configuration, nothing is
    done.
    """
    members: dict[str, Any] = {"EndpointName": name, "EndpointConfigName": config_name}
    created = members | ({"Tags": tag_list(tags)} if tags else {})
    existing = describe(client, name, missing_ok=True)
    if not existing:
        create_unless_there(client, "CreateEndpoint", **created)
    elif existing["EndpointStatus"] == "Failed":
        client.sagemaker("DeleteEndpoint", EndpointName=name)
        wait_gone(client, name)
        client.sagemaker("CreateEndpoint", **created)
    elif heading(existing) != config_name:
        client.sagemaker("UpdateEndpoint", **members)


def heading(described: Mapping[str, Any]) -> str:
    """The configuration that a described endpoint serves, or is being updated to."""
    pending = described.get("PendingDeploymentSummary") or {}
    return str(pending.get("EndpointConfigName") or described["EndpointConfigName"])


def describe(client: SageMaker, name: str, *, missing_ok: bool = False) -> dict[str, Any]:
    """DescribeEndpoint; with `missing_ok`, {} when there is none."""
    if missing_ok:
        return if_there(client, "DescribeEndpoint", EndpointName=name) or {}
    return client.sagemaker("DescribeEndpoint", EndpointName=name)


def wait_in_service(
    client: SageMaker, name: str, config_name: str, *, waiting: ShownWait | None = None
) -> dict[str, Any]:
    """Waits until the endpoint serves this configuration; `waiting` shows how far it is.

    Raises ModelError with the FailureReason when it fails, or when an update fails and the old
    copies go on serving.
    """
    deadline = time.monotonic() + WAIT_S_MAX
    while True:
        described = describe(client, name)
        status, reason = described["EndpointStatus"], described.get("FailureReason", "")
        if status == "InService" and described["EndpointConfigName"] == config_name:
            return described
        if status == "InService":
            raise ModelError(
                "update-failed",
                f"endpoint {name} was not updated: {reason}",
                hint=f"See 'penstock logs {name}'.",
            )
        if status == "Failed":
            raise ModelError(
                "endpoint-failed",
                f"endpoint {name} failed: {reason}",
                hint=f"See 'penstock logs {name}'.",
            )
        if waiting is not None:
            waiting.look(name, doing=status.lower())
        pause(deadline, f"endpoint {name} is still {described['EndpointStatus']}")


def wait_gone(client: SageMaker, name: str, *, waiting: ShownWait | None = None) -> None:
    """Waits until a deleted endpoint can no longer be described."""
    deadline = time.monotonic() + WAIT_S_MAX
    while describe(client, name, missing_ok=True):
        if waiting is not None:
            waiting.look(name, doing="deleting")
        pause(deadline, f"endpoint {name} is still being deleted")


def pause(deadline: float, message: str) -> None:
    """Waits a moment. Raises NotNowError `timed-out` after the deadline."""
    if time.monotonic() > deadline:
        raise NotNowError("timed-out", message, hint="Ask again with 'penstock status'.")
    time.sleep(0.1)


def create_unless_there(client: SageMaker, operation: str, **members: Any) -> None:
    """A Create call that may have been made before: equal names mean equal content."""
    try:
        client.sagemaker(operation, **members)
    except PenstockError as error:
        if "Cannot create already existing" not in error.message:
            raise


def files_of(uri: str) -> list[tuple[str, int, int]]:
    """(name, size, time) of a local artifact's files, so that a changed file is a new
    deployment."""
    root = Path(unquote(urlsplit(uri).path))
    if not uri.startswith("file://") or not root.exists():
        return []
    files = sorted(path for path in root.rglob("*") if path.is_file()) if root.is_dir() else [root]
    stats = [(str(path.relative_to(root)), path.stat()) for path in files]
    return [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]


def pair(item: str) -> tuple[str, str]:
    """NAME=VALUE. Raises CallerError `env-invalid`."""
    name, equals, value = item.partition("=")
    if not equals or not name:
        raise CallerError("env-invalid", f"--env {item!r} has no name", hint="Write NAME=VALUE.")
    return name, value


def delete(
    name: Annotated[
        str,
        typer.Argument(
            help="Name of the endpoint; none with --failed.", autocompletion=options.endpoint_names
        ),
    ] = "",
    failed: Annotated[
        bool, typer.Option("--failed", help="All endpoints that have failed, instead of one.")
    ] = False,
    wait: Annotated[bool, typer.Option(help="Wait until it is gone.")] = True,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    server: options.WaitOptions = options.WAIT,
) -> None:
    """Delete an endpoint, and the configuration and models that only it used.

    It says what that is; on a terminal it asks first.
    """
    client = server.client()
    if bool(name) == failed:
        raise CallerError(
            "usage", "delete takes the name of an endpoint, or --failed", hint="Give one of them."
        )
    names = [name] if name else failed_endpoints(client)
    if not names:
        note("no endpoint has failed")
    for each in names:
        _delete_one(client, each, wait=wait, yes=yes, server=server)


def failed_endpoints(client: SageMaker) -> list[str]:
    """Their names, oldest first."""
    found = client.sagemaker(
        "ListEndpoints", StatusEquals="Failed", MaxResults=100, SortOrder="Ascending"
    )
    return [str(one["EndpointName"]) for one in found["Endpoints"]]


def _delete_one(
    client: Client, name: str, *, wait: bool, yes: bool, server: options.WaitOptions
) -> None:
    found = describe_or_damaged(client, name)
    config_name = str(found.get("EndpointConfigName", ""))
    models = _models_only_used_by(client, name, config_name)
    if not server.json_:
        note(_what_goes(found, config_name, models))
    if not (yes or server.json_) and sys.stdin.isatty() and sys.stdout.isatty():
        typer.confirm(f"Delete endpoint {name}?", abort=True)
    client.sagemaker("DeleteEndpoint", EndpointName=name)
    if wait:
        with server.waiting(client) as waiting:
            wait_gone(client, name, waiting=waiting)
    removed = _delete_unused(client, config_name, models)
    if server.json_:
        print_json({"EndpointName": name, "Deleted": [name, *removed]})
    else:
        note(f"endpoint {name} is {'deleted' if wait else 'being deleted'}")


def _what_goes(found: Mapping[str, Any], config_name: str, models: list[str] | None) -> str:
    """What a deletion removes, and what it leaves."""
    count = sum(
        int(variant.get("CurrentInstanceCount") or 0)
        for variant in found.get("ProductionVariants", ())
    )
    instances = f"{count} instance{'' if count == 1 else 's'}"
    what = f"deleting endpoint {found['EndpointName']} ({found['EndpointStatus']}, {instances})"
    if models is None:
        kept = f"its configuration {config_name} and models stay" if config_name else ""
        return f"{what}; {kept}" if kept else what
    told = ", ".join([f"configuration {config_name}", *(f"model {model}" for model in models)])
    return f"{what}, {told}; artifacts stay"


def describe_or_damaged(client: Client, name: str) -> dict[str, Any]:
    """An endpoint with a damaged record can be deleted, and the deletion reports any other
    error."""
    try:
        return describe(client, name)
    except CallerError:
        return {"EndpointName": name, "EndpointStatus": "can't be described"}


def _models_only_used_by(client: Client, name: str, config_name: str) -> list[str] | None:
    """Only what `penstock deploy` and `apply` made is deleted with an endpoint: it is named after
    the endpoint and its content. None: the configuration is somebody else's, or gone."""
    if not is_version_of(config_name, name):
        return None
    config = if_there(client, "DescribeEndpointConfig", EndpointConfigName=config_name)
    if config is None:
        return None
    models = {str(variant["ModelName"]) for variant in config["ProductionVariants"]}
    return sorted(each for each in models if is_version_of(each, name))


def _delete_unused(client: Client, config_name: str, models: list[str] | None) -> list[str]:
    if models is None:
        return []
    if_there(client, "DeleteEndpointConfig", EndpointConfigName=config_name)
    for model in models:
        if_there(client, "DeleteModel", ModelName=model)
    return [f"endpoint-config/{config_name}", *(f"model/{model}" for model in models)]
