"""Merges settings from all sources, in this one place: defaults < TOML < environment < flags.

The tree is `config.ServerConfig`. A key's path (`listen.port`) is its place in the TOML file; its
environment variable is the path in capitals after `PENSTOCK_` (`PENSTOCK_LISTEN_PORT`). A wrong
value or an unknown key is an error that names the path, the value and what is allowed.

Paths become absolute when they are read, because processes that are started later have other
working directories. In a file they are relative to the file, which may be named from anywhere;
elsewhere they are relative to the command's working directory.
"""

from __future__ import annotations

import dataclasses
import os
import tomllib
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

import typer

from penstock.cli import options
from penstock.cli.output import print_json, print_table
from penstock.config import FLEET_LOCAL, RegistryConfig, ServerConfig
from penstock.core.machine.containers import READ_ONLY
from penstock.core.machine.images import is_place, registry_of
from penstock.core.request.host_gate import ANY, is_host, normal_origin
from penstock.errors import CallerError
from penstock.file_schema import Reader

PREFIX = "PENSTOCK_"

#: Variables with our prefix for the command line's client, which are no settings of the server.
CLIENT_VARIABLES = frozenset({"PENSTOCK_URL", "PENSTOCK_KEY", "PENSTOCK_CONFIG"})

#: OpenTelemetry's own variables for settings of ours; our own variables take precedence.
STANDARD_VARIABLES = {
    "OTEL_EXPORTER_OTLP_ENDPOINT": "telemetry.otlp_endpoint",
    "OTEL_SERVICE_NAME": "telemetry.service_name",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Resolved:
    """The configuration, and the source of the value at each path."""

    config: ServerConfig
    origins: dict[str, str]


def default_state_dir(environ: Mapping[str, str]) -> Path:
    """The user's data directory (XDG base directories)."""
    base = environ.get("XDG_DATA_HOME") or ""
    root = Path(base) if base.startswith("/") else Path.home() / ".local" / "share"
    return root / "penstock"


def resolve(
    *,
    file: Path | None,
    environ: Mapping[str, str],
    flags: Mapping[str, object],
) -> Resolved:
    """Merges all sources. `flags` maps paths to values; None means not given.

    Raises:
        CallerError: `config-invalid`, with the path, the value and what is allowed.
    """
    values: dict[str, object] = {"state_dir": default_state_dir(environ)}
    origins: dict[str, str] = {}
    hints = dict(_hints(ServerConfig))
    for path, value, origin in _given(file, environ, flags):
        folder = file.absolute().parent if file and origin == str(file) else Path.cwd()
        values[path] = _absolute(value, hints[path], folder) if path in hints else value
        origins[path] = origin
    config = _Settings().read(ServerConfig, _nested(values))
    known = {path for path, _ in walk(config)}
    _check(config)
    return Resolved(config, {path: origins.get(path, "default") for path in sorted(known)})


def walk(config: Any, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Every leaf of the tree as (path, value)."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        path = f"{prefix}{field.name}"
        if dataclasses.is_dataclass(value):
            yield from walk(value, f"{path}.")
        else:
            yield path, value


def _given(
    file: Path | None, environ: Mapping[str, str], flags: Mapping[str, object]
) -> Iterator[tuple[str, object, str]]:
    hints = dict(_hints(ServerConfig))
    if file is not None:
        for path, value in _flatten(_read_toml(file), hints):
            _require_known(path, hints, f"in {file}")
            yield path, value, str(file)
    for name, path in STANDARD_VARIABLES.items():
        if environ.get(name):
            yield path, environ[name], name
    variables = {PREFIX + path.upper().replace(".", "_"): path for path in hints}
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name in CLIENT_VARIABLES:
            continue
        if name not in variables:
            raise _invalid(name, environ[name], "no setting has this variable", variables)
        yield variables[name], _from_text(environ[name], hints[variables[name]]), name
    for path, value in flags.items():
        if value is not None:
            yield path, value, f"--{path.rpartition('.')[2].replace('_', '-')}"


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text())
    except OSError as error:
        raise CallerError(
            "config-unreadable",
            f"the configuration file {file} can't be read: {error.strerror}",
            hint="Check the path given with --config.",
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CallerError(
            "config-invalid", f"{file} is not TOML: {error}", hint="See docs/reference/config.md."
        ) from error


def _flatten(
    table: Mapping[str, Any], hints: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        path = f"{prefix}{key}"
        if isinstance(value, dict) and path not in hints:
            yield from _flatten(value, hints, f"{path}.")
        else:
            yield path, value


def _hints(kind: type, prefix: str = "") -> Iterator[tuple[str, Any]]:
    resolved = get_type_hints(kind)
    for field in dataclasses.fields(kind):
        hint = resolved[field.name]
        if dataclasses.is_dataclass(hint):
            yield from _hints(typing.cast(type, hint), f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}", hint


def _require_known(path: str, hints: Mapping[str, Any], where: str) -> None:
    if path not in hints:
        raise CallerError(
            "config-invalid",
            f"unknown setting {path!r} {where}",
            hint=f"Known settings: {', '.join(sorted(hints))}.",
        )


def _from_text(text: str, hint: Any) -> object:
    """An environment variable's text as the TOML value that it means."""
    if hint is bool:
        return {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), text)
    for kind in (int, float):
        if hint is kind:
            try:
                return kind(text)
            except ValueError:
                return text
    if get_origin(hint) is tuple:
        return [part for part in text.split(",") if part]
    if get_origin(hint) is dict:
        try:
            return tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            return text
    return text


def _absolute(value: object, hint: Any, folder: Path) -> object:
    """A path, or a table of paths, made absolute from `folder`; any other value unchanged."""
    parts = get_args(hint)
    if isinstance(value, dict) and dataclasses.is_dataclass(hint):
        hints = get_type_hints(hint)
        return {key: _absolute(each, hints.get(key), folder) for key, each in value.items()}
    if isinstance(value, dict) and parts:
        return {key: _absolute(each, parts[-1], folder) for key, each in value.items()}
    if (hint is Path or Path in parts) and isinstance(value, str | Path):
        return folder / os.path.expanduser(value)
    return value


def _nested(values: Mapping[str, object]) -> dict[str, Any]:
    """The tree with these values at these paths."""
    tree: dict[str, Any] = {}
    for path, value in values.items():
        *sections, name = path.split(".")
        section = tree
        for each in sections:
            section = section.setdefault(each, {})
        section[name] = list(value) if isinstance(value, tuple) else value
    return tree


class _Settings(Reader):
    """Reads the settings of all sources; most texts may be empty, which means not given."""

    text_chars_min = 0

    def __init__(self) -> None:
        super().__init__(
            "settings", lambda _, cause, hint: CallerError("config-invalid", cause, hint=hint)
        )

    def wrong(self, path: str, value: object, allowed: str) -> CallerError:
        return _invalid(path, value, f"allowed: {allowed}", ())


def _check_web_url(path: str, url: str) -> None:
    if not url.startswith(("https://", "http://")) or not urlsplit(url).hostname:
        raise _invalid(path, url, "allowed: an https:// or http:// URL", ())


def _check(config: ServerConfig) -> None:
    _check_names(config)
    fleet = config.control.fleet
    if fleet != FLEET_LOCAL and not (fleet.startswith("ray:") and fleet.removeprefix("ray:")):
        raise _invalid("control.fleet", fleet, "allowed: local, ray://host:port or ray:auto", ())
    cache = config.control.node_cache_dir
    if cache and not cache.startswith(("/", "~")):
        allowed = "allowed: an absolute path, the same on every node"
        raise _invalid("control.node_cache_dir", cache, allowed, ())
    for topic, url in config.control.topics.items():
        _check_web_url(f"control.topics.{topic}", url)
    if config.control.advertise:
        _check_web_url("control.advertise", config.control.advertise)
    if config.telemetry.otlp_endpoint:
        _check_web_url("telemetry.otlp_endpoint", config.telemetry.otlp_endpoint)
    if config.limits.bodies_bytes_max < config.limits.body_bytes_max:
        allowed = "allowed: at least limits.body_bytes_max, else no such body ever fits"
        raise _invalid("limits.bodies_bytes_max", config.limits.bodies_bytes_max, allowed, ())
    if (config.listen.tls_cert is None) != (config.listen.tls_key is None):
        raise CallerError(
            "config-invalid",
            "listen.tls_cert and listen.tls_key must be given together",
            hint="Give both --tls-cert and --tls-key, or neither.",
        )


def _check_names(config: ServerConfig) -> None:
    for host in config.listen.hosts:
        if host != ANY and not is_host(host):
            allowed = 'allowed: names and addresses without port, or "*"'
            raise _invalid("listen.hosts", host, allowed, ())
    for origin in config.listen.origins:
        if origin != ANY and normal_origin(origin) is None:
            raise _invalid("listen.origins", origin, 'allowed: scheme://host[:port], or "*"', ())
    if config.limits.capture_redact:
        from penstock.jobs.capture.redaction import redaction  # noqa: PLC0415 - seldom asked for

        redaction(config.limits.capture_redact)
    for pattern in config.containers.pull:
        if not registry_of(pattern):
            allowed = "allowed: a registry and a pattern of names in it, as docker.io/library/*"
            raise _invalid("containers.pull", pattern, allowed, ())
    for place in config.containers.scratch:
        if not place.startswith("/") or set(place) & set(":,"):
            allowed = "allowed: paths as containers have them, as /var/cache/nginx"
            raise _invalid("containers.scratch", place, allowed, ())
    if config.containers.root_gib and config.containers.root == READ_ONLY:
        allowed = 'it bounds what is written to a root that is "writable" (containers.root)'
        raise _invalid("containers.root_gib", config.containers.root_gib, allowed, ())
    for host, registry in config.containers.registries.items():
        _check_registry(f"containers.registries.{host}", host, registry)


def _check_registry(path: str, host: str, registry: RegistryConfig) -> None:
    if not is_place(host) or "/" in host:
        allowed = "allowed: the registry's host with its port, as images' names begin"
        raise _invalid(path, host, allowed, ())
    if ":" in registry.user or bool(registry.user) != (registry.secret_file is not None):
        allowed = "allowed: a name without a colon, together with secret_file"
        raise _invalid(f"{path}.user", registry.user, allowed, ())
    if registry.mirror and not is_place(registry.mirror):
        allowed = "allowed: a host with its port, and maybe /names"
        raise _invalid(f"{path}.mirror", registry.mirror, allowed, ())
    if registry.mirror and registry.user:
        allowed = (
            "allowed: no user beside a mirror, which is asked in the registry's place; give user"
            " and secret_file to the entry of the mirror's own host"
        )
        raise _invalid(f"{path}.user", registry.user, allowed, ())


def _invalid(path: str, value: object, allowed: str, known: typing.Iterable[str]) -> CallerError:
    hint = f"Known: {', '.join(sorted(known))}." if known else "See docs/reference/config.md."
    return CallerError("config-invalid", f"{path} = {value!r} is not valid; {allowed}", hint=hint)


app = typer.Typer(callback=lambda: None)  # a group, of one command


@app.command("show")
def show(
    resolved: Annotated[
        bool, typer.Option("--resolved", help="Also where each value comes from.")
    ] = False,
    config: options.ConfigFile = None,
    json_: options.Json = False,
) -> None:
    """Print the settings that `penstock up` would use here."""
    found = resolve(file=config, environ=os.environ, flags={})
    rows = dict(walk(found.config))
    if json_:
        print_json(
            {
                path: {"value": _plain(value), "from": found.origins[path]}
                for path, value in rows.items()
            }
            if resolved
            else {path: _plain(value) for path, value in rows.items()}
        )
    elif resolved:
        print_table(
            "", ("setting", "value", "from"), [(k, v, found.origins[k]) for k, v in rows.items()]
        )
    else:
        print_table("", ("setting", "value"), rows.items())


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)
