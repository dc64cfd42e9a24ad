"""`penstock apply` against the front door and its database: what it does, and does no second time.

The process is the real one. It is killed at seeded moments: behind so many uploads, behind so many
calls.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.kit.object_server import object_server
from tests.kit.package_files import echo_packages, write
from tests.packaging.control_plane import ServedControlPlane, control_plane

from penstock.cli.client import Client
from penstock.cli.endpoints.listing import list_all

APPLY = """\
schema: 1
stack: support
packages: [package.yaml]
location: models
endpoints:
  - name: embed
    mode: SingleModel
    tags: {{team: search}}
    variants:
      - {{name: "v-${{each}}", package: "echo-c${{each}}", for_each: [{singles}]}}
{more}
"""
#: A prefix of many archives: what a multi-model endpoint is made of.
MANY = """\
  - name: many
    mode: MultiModel
    models: [{kind: echo}]
"""
SINGLES = """\
  - {{name: "one-${{each}}", package: "echo-c${{each}}", for_each: [{singles}]}}
"""


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ServedControlPlane]:
    with control_plane(tmp_path / "state") as made:
        yield made


def spec(root: Path, count: int, *, singles: int = 1, more: str = "", version: str = "1") -> Path:
    """`count` packages, of which `singles` are each behind a variant."""
    echo_packages(root, [f"c{number}" for number in range(count)], version=version)
    names = ", ".join(f'"{number}"' for number in range(singles))
    write(root, {"apply.yaml": APPLY.format(singles=names, more=more)})
    return root / "apply.yaml"


def command(file: Path, plane: ServedControlPlane, *flags: str) -> list[str]:
    argv = [sys.executable, "-m", "penstock", "apply", str(file), "--url", plane.url]
    return [*argv, "--json", *flags]


def apply(file: Path, plane: ServedControlPlane, *flags: str, status: int = 0) -> dict[str, Any]:
    argv = command(file, plane, *flags)
    ended = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=110)
    assert ended.returncode == status, ended.stderr
    return dict(json.loads(ended.stdout)) if ended.stdout else {"error": ended.stderr}


def actions(told: dict[str, Any]) -> list[tuple[str, str]]:
    return [(step["action"], step["reason"]) for step in told["steps"]]


def everything(plane: ServedControlPlane) -> dict[str, Any]:
    """What the front door tells of all that there is, but for times."""
    client = Client(plane.url)
    told: dict[str, Any] = {}
    for kind, plural, describe, key in (
        ("Models", "ListModels", "DescribeModel", "ModelName"),
        ("EndpointConfigs", "ListEndpointConfigs", "DescribeEndpointConfig", "EndpointConfigName"),
        ("Endpoints", "ListEndpoints", "DescribeEndpoint", "EndpointName"),
    ):
        for each in list_all(client, plural, kind):
            found = client.sagemaker(describe, **{key: each[key]})
            tags = client.sagemaker("ListTags", ResourceArn=found[f"{kind[:-1]}Arn"])["Tags"]
            times = {"CreationTime", "LastModifiedTime"}
            told[each[key]] = [tags] + [found[name] for name in sorted(found) if name not in times]
    return told


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_plan_is_only_shown_until_it_is_agreed_to(
    tmp_path: Path, plane: ServedControlPlane
) -> None:
    file = spec(tmp_path, 1)
    told = apply(file, plane, status=2)
    assert (told["applied"], told["unchanged"]) == (False, 0)
    assert actions(told) == [
        ("upload", "not-there"),
        ("create-model", "not-there"),
        ("create-endpoint-config", "not-there"),
        ("create-endpoint", "not-there"),
    ]
    assert plane.changes() == []
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize(("answer", "status"), [("n", 2), ("y", 0)])
def test_on_a_terminal_it_asks(
    tmp_path: Path, plane: ServedControlPlane, answer: str, status: int
) -> None:
    argv = [word for word in command(spec(tmp_path, 1), plane) if word != "--json"]
    ours, theirs = os.openpty()
    process = subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    told = b""
    with os.fdopen(ours, "r+b", buffering=0) as terminal:
        try:
            while chunk := terminal.read(4096):
                if b"[y/N]" not in told and b"[y/N]" in told + chunk:
                    terminal.write(f"{answer}\n".encode())
                told += chunk
        except OSError:
            pass  # the terminal's other end is closed
    assert process.wait(60) == status, told.decode()
    assert b"Carry out 4 steps?" in told
    assert bool(plane.changes()) is (status == 0)


def test_what_was_applied_is_not_done_again(tmp_path: Path, plane: ServedControlPlane) -> None:
    file = spec(tmp_path, 2, singles=2)
    assert apply(file, plane, "--yes")["applied"] is True
    assert plane.changes() == [
        "CreateModel",
        "CreateModel",
        "CreateEndpointConfig",
        "CreateEndpoint",
    ]
    before, calls = files(tmp_path / "models"), len(plane.changes())
    assert len(before) == 2
    again = apply(file, plane)
    assert (again["steps"], again["unchanged"]) == ([], 6)
    assert (files(tmp_path / "models"), len(plane.changes())) == (before, calls)


def test_a_new_version_is_an_update_and_an_old_one_is_rolled_back_to_by_name(
    tmp_path: Path, plane: ServedControlPlane
) -> None:
    apply(spec(tmp_path, 1), plane, "--yes")
    first = everything(plane)["embed"]
    told = apply(spec(tmp_path, 1, version="2"), plane, "--yes")
    assert actions(told)[-1] == ("update-endpoint", "other-config")
    assert everything(plane)["embed"] != first
    back = apply(tmp_path / "apply.yaml", plane, "--version", "echo-c0=1", "--yes")
    assert actions(back) == [("update-endpoint", "other-config")], "the rest is still there"
    assert everything(plane)["embed"] == first


def test_pruning_leaves_what_is_asked_for_and_what_others_made(
    tmp_path: Path, plane: ServedControlPlane
) -> None:
    file = spec(tmp_path, 2, more="  - {name: old, package: echo-c1}\n")
    apply(file, plane, "--yes")
    asked = {name: told for name, told in everything(plane).items() if name.startswith("embed")}
    client = Client(plane.url)
    client.sagemaker("CreateModel", ModelName="mine", PrimaryContainer={"Image": "local://python"})
    write(tmp_path / "models" / "embed", {"mine.tar.gz": b"by hand"})
    apply(spec(tmp_path, 2, version="2"), plane, "--yes")
    assert {"old", "mine"} <= everything(plane).keys()
    told = apply(tmp_path / "apply.yaml", plane, "--version", "echo-c0=1", "--prune", "--yes")
    assert [action for action, _ in actions(told)] == [
        "update-endpoint",
        "delete-endpoint",
        *["delete-endpoint-config"] * 2,
        *["delete-model"] * 2,
        *["delete-artifact"] * 2,
    ]
    left = everything(plane)
    assert left.pop("mine")
    assert left == asked
    embed = sorted(path.name for path in (tmp_path / "models" / "embed").iterdir())
    assert [name[:9] for name in embed] == ["echo-c0-1", "mine.tar."]


def test_a_bucket_is_a_location_as_a_folder_is(
    tmp_path: Path, plane: ServedControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new package of the kind is one upload, a new version of one takes its place."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with object_server() as bucket:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", bucket.url)
        file = spec(tmp_path, 2, more=MANY)
        file.write_text(
            file.read_text().replace("location: models", "location: s3://models/support")
        )
        apply(file, plane, "--yes")
        names = ["echo-c0.tar.gz", "echo-c1.tar.gz"]
        assert sorted(bucket.objects)[1:] == [f"/models/support/many/{name}" for name in names]
        assert apply(file, plane)["steps"] == []
        calls = len(plane.changes())
        echo_packages(tmp_path, ["c0", "c1", "c2"])
        assert actions(apply(file, plane, "--yes")) == [("upload", "not-there")]
        first = bucket.objects["/models/support/many/echo-c1.tar.gz"]
        echo_packages(tmp_path, ["c1"], version="2")
        assert actions(apply(file, plane, "--yes")) == [("upload", "other-content")]
        assert bucket.objects["/models/support/many/echo-c1.tar.gz"] != first
        assert len(plane.changes()) == calls, "the endpoints are not touched"


def test_other_tags_are_put_right(tmp_path: Path, plane: ServedControlPlane) -> None:
    file = spec(tmp_path, 1)
    apply(file, plane, "--yes")
    file.write_text(file.read_text().replace("team: search", "team: ads"))
    assert actions(apply(file, plane, "--yes")) == [("tag-endpoint", "other-tags")]
    [tags, *_] = everything(plane)["embed"]
    assert {"Key": "team", "Value": "ads"} in tags
    assert apply(file, plane)["steps"] == []


def test_deleting_an_endpoint_takes_what_was_made_for_it_along(
    tmp_path: Path, plane: ServedControlPlane
) -> None:
    apply(spec(tmp_path, 2, singles=2), plane, "--yes")
    assert len(everything(plane)) == 4
    argv = [sys.executable, "-m", "penstock", "delete", "embed", "--url", plane.url]
    subprocess.run(argv, check=True, timeout=110)
    assert everything(plane) == {}


def test_a_server_that_goes_away_is_told_and_the_next_run_goes_on(
    tmp_path: Path, plane: ServedControlPlane
) -> None:
    file = spec(tmp_path, 1)
    url, plane.url = plane.url, "http://127.0.0.1:1"
    assert "error[server-unreachable]" in apply(file, plane, "--yes", status=75)["error"]
    plane.url = url
    assert apply(file, plane, "--yes")["applied"] is True


def test_what_a_server_refuses_is_told_and_done_with_once_it_is_taken(
    tmp_path: Path, plane: ServedControlPlane
) -> None:
    file = spec(tmp_path, 1)
    right = file.read_text()
    file.write_text(right.replace('{name: "v-', '{name: "_v-'))
    told = apply(file, plane, "--yes", status=1)["error"]
    assert "error[ValidationException]" in told
    assert "VariantName" in told or "variantName" in told
    file.write_text(right)
    assert [action for action, _ in actions(apply(file, plane, "--yes"))] == [
        "create-endpoint-config",
        "create-endpoint",
    ]


def killed(
    argv: list[str], plane: ServedControlPlane, *, folder: Path, files: int, calls: int
) -> bool:
    """Runs the command until `folder` has so many files, or so many calls were carried out, and
    kills it. Whether it was in time."""
    before = len(plane.changes())
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def called(_: str) -> None:
        if calls and len(plane.changes()) - before >= calls:
            process.send_signal(signal.SIGKILL)

    plane.on_call = called
    deadline = time.monotonic() + 110
    while process.poll() is None and time.monotonic() < deadline:
        if files and folder.is_dir() and len(os.listdir(folder)) >= files:
            process.send_signal(signal.SIGKILL)
        time.sleep(0.002)
    plane.on_call = lambda operation: None
    return process.wait(1) == -signal.SIGKILL


@pytest.mark.timeout(600)
def test_500_models_are_deployed_by_a_command_that_is_killed_again_and_again(
    tmp_path: Path,
) -> None:
    """The end is that of a run which was never killed, and then there is nothing left to do.

    500 target models lie below one endpoint's prefix, 20 models have an endpoint each. The kills
    are while packages are made, while they are uploaded, and while models and endpoints are.
    """
    seed = int(os.environ.get("SEED", "10"))
    print(f"SEED={seed}")
    rng = random.Random(seed)
    singles = ", ".join(f'"{number}"' for number in range(20))
    file = spec(tmp_path, 500, more=f"{MANY}{SINGLES.format(singles=singles)}")
    build, models = tmp_path / "build", tmp_path / "models"
    with control_plane(tmp_path / "killed") as plane:
        argv = command(file, plane, "--yes")
        moments = [(build, rng.randrange(2, 400), 0)]
        moments += [(models / "many", at, 0) for at in sorted(rng.sample(range(1, 480), 5))]
        moments += [(build, 0, rng.randrange(1, 20)) for _ in range(3)]
        for folder, count, calls in moments:
            assert killed(argv, plane, folder=folder, files=count, calls=calls), "not in time"
        told = apply(file, plane, "--yes")
        assert told["steps"]
        assert apply(file, plane)["steps"] == []
        end = everything(plane), files(build), files(models)
    shutil.rmtree(build)
    shutil.rmtree(models)
    with control_plane(tmp_path / "never") as plane:
        apply(file, plane, "--yes")
        assert (everything(plane), files(build), files(models)) == end
    assert len(end[2]) == 500 + 21
    assert len(end[0]) == 3 * 22
