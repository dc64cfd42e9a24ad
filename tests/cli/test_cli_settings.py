"""Where settings come from, and what a wrong one is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.artifacts.sources.source import ArtifactSettings
from penstock.cli import settings
from penstock.config import RegistryConfig, ServerConfig
from penstock.errors import CallerError
from penstock.runtimes.container.settings import ContainerSettings

HOME = {"XDG_DATA_HOME": "/data"}


def test_defaults_serve_on_loopback_with_state_in_the_users_data_directory() -> None:
    found = settings.resolve(file=None, environ=HOME, flags={})
    assert (found.config.listen.host, found.config.listen.port) == ("127.0.0.1", 8080)
    assert found.config.listen.grpc_port == 8081
    assert found.config.state_dir == Path("/data/penstock")
    assert set(found.origins.values()) == {"default"}


def test_a_flag_beats_the_environment_beats_the_file_beats_the_default(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text("[listen]\nport = 1\ngrpc_port = 2\nhost = '::1'\n")
    environ = HOME | {"PENSTOCK_LISTEN_PORT": "10", "PENSTOCK_LISTEN_GRPC_PORT": "20"}
    found = settings.resolve(file=file, environ=environ, flags={"listen.port": 100})
    assert found.config.listen.port == 100
    assert found.config.listen.grpc_port == 20
    assert found.config.listen.host == "::1"
    assert found.origins["listen.port"] == "--port"
    assert found.origins["listen.grpc_port"] == "PENSTOCK_LISTEN_GRPC_PORT"
    assert found.origins["listen.host"] == str(file)


def test_tables_and_lists_come_from_the_file_and_from_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text(
        "[control]\ntrusted_artifacts = ['s3://ours/']\n"
        "[control.s3_local]\nmodels = '/srv/models'\n"
        "[control.image_commands]\n'my-image' = ['serve', '--port', '{port}']\n"
    )
    control = settings.resolve(file=file, environ=HOME, flags={}).config.control
    assert control.s3_local == {"models": Path("/srv/models")}
    assert control.image_commands == {"my-image": ("serve", "--port", "{port}")}
    assert control.trusted_artifacts == ("s3://ours/",)
    environ = HOME | {
        "PENSTOCK_CONTROL_S3_LOCAL": '{ models = "/other" }',
        "PENSTOCK_CONTROL_TRUSTED_ARTIFACTS": "s3://a/,s3://b/",
    }
    control = settings.resolve(file=file, environ=environ, flags={}).config.control
    assert control.s3_local == {"models": Path("/other")}
    assert control.trusted_artifacts == ("s3://a/", "s3://b/")


def test_registries_are_tables_whose_files_are_beside_the_file(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text(
        "[containers.registries.'reg.example:5000']\nimages = ['team/*']\nuser = 'robot'\n"
        "secret_file = 'secret'\n[containers.registries.'docker.io']\n"
        "mirror = 'reg.example:5000/hub'\n"
    )
    found = settings.resolve(file=file, environ=HOME, flags={})
    assert found.config.containers.registries == {
        "reg.example:5000": RegistryConfig(
            images=("team/*",), user="robot", secret_file=tmp_path / "secret"
        ),
        "docker.io": RegistryConfig(mirror="reg.example:5000/hub"),
    }
    assert ContainerSettings.from_config(found.config).pull == (
        "reg.example:5000/team/*", "docker.io/*",
    )  # fmt: skip
    assert str(tmp_path / "secret") in ArtifactSettings.from_config(found.config).closed
    variables = {"PENSTOCK_CONTAINERS_REGISTRIES": '{ "a.b" = { images = ["c"] } }'}
    found = settings.resolve(file=None, environ=HOME | variables, flags={})
    assert found.config.containers.registries == {"a.b": RegistryConfig(images=("c",))}


def test_hosts_and_origins_are_lists_of_names_and_pages() -> None:
    environ = HOME | {
        "PENSTOCK_LISTEN_HOSTS": "models.example,[::1],192.0.2.7,::1",
        "PENSTOCK_LISTEN_ORIGINS": "https://page.example:8443,*",
    }
    listen = settings.resolve(file=None, environ=environ, flags={}).config.listen
    assert listen.hosts == ("models.example", "[::1]", "192.0.2.7", "::1")
    assert listen.origins == ("https://page.example:8443", "*")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[listen]\nport = 70000\n",
            "listen.port = 70000 is not valid; allowed: an integer from 0 to 65535",
        ),
        ("[listen]\nport = 'http'\n", "listen.port = 'http' is not valid"),
        ("[listen]\nport = true\n", "listen.port = True is not valid"),
        ("[listen]\nprt = 80\n", "unknown setting 'listen.prt'"),
        ("log_level = 'loud'\n", "log_level = 'loud' is not valid; allowed: one of 'debug'"),
        (
            "[control]\ncapacity = 'half'\n",
            "control.capacity = 'half' is not valid; allowed: one of 'measured', 'strict'",
        ),
        ("[limits]\nkeep_alive_s = -1\n", "limits.keep_alive_s = -1 is not valid"),
        ("[listen]\ntls_cert = 'a.pem'\n", "must be given together"),
        ("[listen]\nhosts = ['a:80']\n", "listen.hosts = 'a:80' is not valid; allowed: names"),
        ("[listen]\nhosts = ['http://a']\n", "listen.hosts = 'http://a' is not valid"),
        ("[listen]\norigins = ['null']\n", "listen.origins = 'null' is not valid"),
        (
            "[limits]\ncapture_redact = ['(']\n",
            "capture_redact = '(' is not valid; RE2 can't read it",
        ),
        ("[limits]\ncapture_redact = ['x*']\n", "it matches where there is nothing"),
        ("[containers]\npull = ['*']\n", "containers.pull = '*' is not valid; allowed: a registry"),
        ("[containers]\npull = ['library/*']\n", "containers.pull = 'library/*' is not valid"),
        ("[containers]\nscratch = ['cache']\n", "containers.scratch = 'cache' is not valid"),
        ("[containers]\nscratch = ['/a:exec']\n", "containers.scratch = '/a:exec' is not valid"),
        ("[containers]\nroot_gib = 2\n", "it bounds what is written to a root that is"),
        (
            "[containers.registries.library]\nimages = ['*']\n",
            "containers.registries.library = 'library' is not valid; allowed: the registry's host",
        ),
        (
            "[containers.registries.'a.b']\nuser = 'me'\n",
            "containers.registries.a.b.user = 'me' is not valid; allowed: a name without a colon",
        ),
        (
            "[containers.registries.'a.b']\nuser = 'm:e'\nsecret_file = 's'\n",
            "containers.registries.a.b.user = 'm:e' is not valid",
        ),
        (
            "[containers.registries.'a.b']\nmirror = 'here'\n",
            "containers.registries.a.b.mirror = 'here' is not valid; allowed: a host",
        ),
        (
            "[containers.registries.'a.b']\nmirror = 'c.d/e'\nuser = 'm'\nsecret_file = 's'\n",
            "no user beside a mirror",
        ),
        (
            "[containers.registries.'a.b']\npassword = 'p'\n",
            "unknown key containers.registries.a.b.password",
        ),
        ("[control]\nadvertise = 'a:80'\n", "control.advertise = 'a:80' is not valid"),
        ("[limits]\nbodies_bytes_max = 1000\n", "at least limits.body_bytes_max"),
        (
            "[control]\ninstance_limits = {'ml.a.large' = -1}\n",
            "control.instance_limits.ml.a.large = -1 is not valid; allowed: an integer, 0 or more",
        ),
        (
            "[control]\ninstance_limits = {'ml.a.large' = 'few'}\n",
            "control.instance_limits.ml.a.large = 'few' is not valid; allowed: an integer",
        ),
        ("[listen\n", "is not TOML"),
    ],
)
def test_a_wrong_value_or_key_is_an_error_that_names_it(
    tmp_path: Path, text: str, said: str
) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text(text)
    with pytest.raises(CallerError) as caught:
        settings.resolve(file=file, environ=HOME, flags={})
    assert caught.value.code == "config-invalid"
    assert said in caught.value.message


def test_a_variable_with_our_prefix_that_no_setting_has_is_an_error() -> None:
    with pytest.raises(CallerError, match="PENSTOCK_LISTEN_PRT"):
        settings.resolve(file=None, environ=HOME | {"PENSTOCK_LISTEN_PRT": "80"}, flags={})


def test_the_clients_own_variables_are_not_settings() -> None:
    environ = HOME | {"PENSTOCK_URL": "http://127.0.0.1:1", "PENSTOCK_KEY": "psk_x"}
    assert settings.resolve(file=None, environ=environ, flags={}).config.listen.port == 8080


def test_a_missing_file_is_named() -> None:
    with pytest.raises(CallerError) as caught:
        settings.resolve(file=Path("/nowhere/penstock.toml"), environ=HOME, flags={})
    assert caught.value.code == "config-unreadable"
    assert "/nowhere/penstock.toml" in caught.value.message


#: Settings that are paths, with a value and where the path is in what was resolved.
PATHS = {path: hint for path, hint in settings._hints(ServerConfig) if "Path" in str(hint)}


def _paths_of(config: ServerConfig, path: str) -> list[Path]:
    value = dict(settings.walk(config))[path]
    found = list(value.values()) if isinstance(value, dict) else [value]
    assert all(isinstance(each, Path) and each.is_absolute() for each in found)
    return [each.resolve() for each in found]


@pytest.mark.parametrize("path", PATHS)
def test_every_path_is_absolute_once_it_is_read(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a file it is relative to the file, elsewhere to where the command runs."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    monkeypatch.chdir(here)
    table = "dict" in str(PATHS[path])
    both = {"listen.tls_cert": "listen.tls_key", "listen.tls_key": "listen.tls_cert"}.get(path)
    text = '{ one = "sub/../x" }' if table else '"sub/../x"'
    file = there / "penstock.toml"
    file.write_text("".join(f"{each} = {text}\n" for each in (path, both) if each))
    found = settings.resolve(file=Path("../there/penstock.toml"), environ=HOME, flags={}).config
    assert _paths_of(found, path) == [there / "x"]
    named = [each for each in (path, both) if each]
    variables = {
        f"PENSTOCK_{each.upper().replace('.', '_')}": text if table else "x" for each in named
    }
    found = settings.resolve(file=None, environ=HOME | variables, flags={}).config
    assert _paths_of(found, path) == [here / "x"]
    value: object = {"one": "x"} if table else Path("x")
    found = settings.resolve(file=None, environ=HOME, flags=dict.fromkeys(named, value)).config
    assert _paths_of(found, path) == [here / "x"]


def test_a_folder_of_other_machines_is_named_whole() -> None:
    """Nobody knows what it would be relative to there."""
    for good in ("", "/var/cache/penstock", "~/penstock"):
        settings.resolve(file=None, environ=HOME, flags={"control.node_cache_dir": good})
    with pytest.raises(CallerError, match="node_cache_dir"):
        settings.resolve(file=None, environ=HOME, flags={"control.node_cache_dir": "cache"})
