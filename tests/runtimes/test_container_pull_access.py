"""What an engine gets for a pull: a login by a file that is gone afterwards, or another place."""

from __future__ import annotations

import base64
import json
import os
import stat
import tomllib
from pathlib import Path

import pytest

from penstock.core.machine.images import PullRoute, RegistrySpec
from penstock.errors import CallerError
from penstock.runtimes.container.pull_access import pull_access

IMAGE = "reg.example/team/one:1"


@pytest.fixture
def route(tmp_path: Path) -> PullRoute:
    (tmp_path / "secret").write_text("pa:ss\n")
    login = RegistrySpec(host="reg.example", user="me", secret_file=str(tmp_path / "secret"))
    return PullRoute("reg.example", "", login)


def pair(entry: dict[str, str]) -> str:
    return base64.b64decode(entry["auth"]).decode()


def test_podman_gets_a_login_of_its_own_for_as_long_as_the_pull(
    route: PullRoute, tmp_path: Path
) -> None:
    with pull_access("/usr/bin/podman", IMAGE, route, tmp_path / "notes") as access:
        [option, place] = access.options
        assert option == "--authfile"
        told = json.loads(Path(place).read_text())
        assert pair(told["auths"]["reg.example"]) == "me:pa:ss"
        assert stat.S_IMODE(Path(place).parent.stat().st_mode) == 0o700
    assert not Path(place).parent.exists()
    with pull_access("podman", IMAGE, PullRoute("reg.example", "", None), tmp_path) as access:
        assert (access.options, access.environment) == ([], {})


def test_docker_keeps_its_daemon_and_none_of_its_credentials(
    route: PullRoute, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = tmp_path / "docker"
    (usual / "contexts").mkdir(parents=True)
    (usual / "config.json").write_text(
        '{"currentContext": "far", "credsStore": "x", "auths": {"other.example": {}}}'
    )
    monkeypatch.setenv("DOCKER_CONFIG", str(usual))
    with pull_access("/usr/bin/docker", IMAGE, route, tmp_path / "notes") as access:
        made = Path(access.environment["DOCKER_CONFIG"])
        told = json.loads((made / "config.json").read_text())
        assert (made / "contexts").resolve() == usual / "contexts"
    assert access.options == []
    assert told["currentContext"] == "far"
    assert told.keys() == {"currentContext", "auths"}
    assert told["auths"].keys() == {"reg.example"}
    assert (usual / "contexts").is_dir()


def test_a_mirror_is_podmans(tmp_path: Path) -> None:
    route = PullRoute("127.0.0.1:5000", "127.0.0.1:5000/hub", None)
    with pull_access("podman", IMAGE, route, tmp_path) as access:
        told = tomllib.loads(Path(access.environment["CONTAINERS_REGISTRIES_CONF"]).read_text())
    [entry] = told["registry"]
    assert entry == {
        "prefix": "reg.example", "location": "127.0.0.1:5000/hub", "insecure": True,
    }  # fmt: skip
    with (
        pytest.raises(CallerError, match="has a mirror in"),
        pull_access("docker", IMAGE, route, tmp_path),
    ):
        pass


def test_what_a_killed_pull_left_goes_and_what_others_use_stays(
    route: PullRoute, tmp_path: Path
) -> None:
    folder = tmp_path / "notes"
    left, used = folder / "login-999999999-x", folder / f"login-{os.getpid()}-x"
    for each in (left, used):
        each.mkdir(parents=True)
    with pull_access("podman", IMAGE, route, folder):
        pass
    assert not left.exists()
    assert used.exists()
