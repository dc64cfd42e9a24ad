"""`penstock serve DIR`: starts a server with one model and prints one way to call it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli import options, settings
from penstock.cli.endpoints.deploy import artifact_uri
from penstock.cli.server import up


def serve(
    artifact: Annotated[str, typer.Argument(help="Folder, model.tar.gz, s3:// or https:// URI.")],
    name: Annotated[str, typer.Option("--name", help="Endpoint name [the folder's].")] = "",
    host: options.Host = None,
    port: options.Port = None,
    grpc_port: options.GrpcPort = None,
    state_dir: options.StateDir = None,
    auth: options.Auth = None,
    insecure: options.Insecure = None,
    tls_cert: options.TlsCert = None,
    tls_key: options.TlsKey = None,
    gateways: options.Gateways = None,
    instance_type: options.InstanceType = "ml.local.small",
    config: options.ConfigFile = None,
) -> None:
    """Start the server with one model deployed, and print how to call it."""
    flags = options.listening(host, port, grpc_port, auth, insecure, tls_cert, tls_key, gateways)
    flags["state_dir"] = state_dir
    resolved = settings.resolve(file=config, environ=os.environ, flags=flags)
    uri = artifact_uri(artifact)
    up.run(resolved.config, {name or name_from(uri): uri}, instance_type=instance_type)


def name_from(uri: str) -> str:
    """An endpoint's name from the last meaningful part of a URI."""
    parts = [part for part in uri.partition("://")[2].split("/") if part]
    while len(parts) > 1 and parts[-1] in {"artifact", "model", "model.tar.gz"}:
        parts.pop()
    stem = Path(parts[-1]).name.removesuffix(".tar.gz").removesuffix(".zip") if parts else "model"
    return re.sub(r"[^a-zA-Z0-9]+", "-", stem).strip("-")[:63] or "model"
