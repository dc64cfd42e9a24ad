"""No URI of a caller's reaches what is the server's own, nor leads out of a mapped bucket.

Every member that names a place, in every spelling of one: each is refused where it is named, and
again where the place has become another one since.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest
from tests.kit.asynchronous import AsyncSite
from tests.kit.polling import wait_until
from tests.kit.python_models import python_model
from tests.kit.servers import Server

SECRET = b"the-key-of-all-keys"
SECRET_NAME = "keys.key"
#: Answers what it was sent.
ECHO = """
def model_fn(model_dir): return None
def input_fn(body, content_type): return body
def predict_fn(data, model): return data
def output_fn(data, accept): return data
"""


class PlacesSite(NamedTuple):
    server: Server
    folder: Path  #: of the caller's, with a bucket `data` in it

    @property
    def secret(self) -> Path:
        return self.server.state_dir / SECRET_NAME

    @property
    def bucket(self) -> Path:
        return self.folder / "bucket"

    def call(self, operation: str, request: dict[str, Any]) -> tuple[int, str]:
        status, body = self.server.sagemaker(operation, **request)
        return status, body.decode()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlacesSite]:
    top = tmp_path_factory.mktemp("places")
    folder, state = top / "mine", top / "server" / "state"
    (folder / "bucket").mkdir(parents=True)
    state.mkdir(parents=True)
    (state / SECRET_NAME).write_bytes(SECRET)
    (folder / "link").symlink_to(state)
    (folder / "link.key").symlink_to(state / SECRET_NAME)
    os.link(state / SECRET_NAME, folder / "hard.key")
    (folder / "bucket" / "link").symlink_to(state)
    (folder / "bucket" / "out").symlink_to(folder)
    (folder / "outside.csv").write_text("1,2,3,4\n")
    (folder / "bucket" / "outside.csv").symlink_to(folder / "outside.csv")
    toml = top / "penstock.toml"
    toml.write_text(f'[control.s3_local]\ndata = "{folder / "bucket"}"\n')
    server = Server(state, "--config", str(toml)).start()
    try:
        site = PlacesSite(server, folder)
        model = python_model(folder / "echo", ECHO)
        made = {"ModelName": "echo", "PrimaryContainer": {"ModelDataUrl": model.as_uri()}}
        assert site.call("CreateModel", made)[0] == 200
        AsyncSite(server, folder / "async").endpoint("later", model="echo")
        yield site
    finally:
        server.kill()


def _encoded(path: Path) -> str:
    return "".join(f"%{byte:02x}" if byte != 0x2F else "/" for byte in os.fsencode(path))


#: How a path is written. Of the state directory itself, and of a file in it.
SPELLINGS: dict[str, Callable[[PlacesSite, Path], str]] = {
    "plain": lambda site, path: path.as_uri(),
    "capitals": lambda site, path: f"FILE://{path}",
    "localhost": lambda site, path: f"file://localhost{path}",
    "encoded": lambda site, path: f"file://{_encoded(path)}",
    "slashes": lambda site, path: f"file:///{path}",
    "absolute": lambda site, path: str(path),
    "dots": lambda site, path: (
        f"file://{site.folder}/../server/./state/{path.name}"
        if path != site.server.state_dir
        else f"file://{site.folder}/../server/state"
    ),
    "link": lambda site, path: (
        f"file://{site.folder}/link" + (f"/{path.name}" if path != site.server.state_dir else "")
    ),
    "root": lambda site, path: f"file:///proc/self/root{path}",
    "bucket": lambda site, path: (
        "s3://data/link" + (f"/{path.name}" if path != site.server.state_dir else "")
    ),
}


def _transform(uri: str, out: str, kind: str = "S3Prefix") -> dict[str, Any]:
    return {
        "TransformJobName": f"job-{abs(hash((uri, out, kind)))}",
        "ModelName": "echo",
        "TransformInput": {"DataSource": {"S3DataSource": {"S3DataType": kind, "S3Uri": uri}}},
        "TransformOutput": {"S3OutputPath": out},
        "TransformResources": {"InstanceType": "ml.local.small", "InstanceCount": 1},
    }


def _model(**container: Any) -> dict[str, Any]:
    return {"ModelName": "stolen", "PrimaryContainer": container}


def _config(**output: Any) -> dict[str, Any]:
    return {
        "EndpointConfigName": "stolen",
        "ProductionVariants": [
            {"VariantName": "v", "ModelName": "echo", "InstanceType": "ml.local.small"}
        ],
        "AsyncInferenceConfig": {"OutputConfig": output},
    }


def _component(uri: str) -> dict[str, Any]:
    return {
        "InferenceComponentName": "stolen",
        "EndpointName": "later",
        "Specification": {
            "BaseInferenceComponentName": "base",
            "Container": {"ArtifactUrl": uri},
        },
    }


def _manifest(site: PlacesSite, uri: str) -> str:
    path = site.folder / f"manifest-{abs(hash(uri))}.json"
    path.write_text(json.dumps([{"prefix": uri.rpartition("/")[0] + "/"}, uri.rpartition("/")[2]]))
    return path.as_uri()


def _data_source(uri: str) -> dict[str, Any]:
    data = {"S3Uri": uri, "S3DataType": "S3Object", "CompressionType": "None"}
    return {"ModelDataSource": {"S3DataSource": data}}


OUT = "file:///tmp/never-written"

#: Members that name a place to read from: the call, and its request for a URI.
READERS: dict[str, Callable[[PlacesSite, str], tuple[str, dict[str, Any]]]] = {
    "transform": lambda site, uri: ("CreateTransformJob", _transform(uri, OUT)),
    "manifest": lambda site, uri: ("CreateTransformJob", _transform(uri, OUT, "ManifestFile")),
    "manifest-names": lambda site, uri: (
        "CreateTransformJob", _transform(_manifest(site, uri), OUT, "ManifestFile"),
    ),
    "model": lambda site, uri: ("CreateModel", _model(ModelDataUrl=uri)),
    "data-source": lambda site, uri: ("CreateModel", _model(**_data_source(uri))),
    "submitted": lambda site, uri: (
        "CreateModel",
        _model(Image="sklearn", Environment={"SAGEMAKER_SUBMIT_DIRECTORY": uri}),
    ),
    "adapter": lambda site, uri: ("CreateInferenceComponent", _component(uri)),
}  # fmt: skip

#: The same of folders, with what is written or found below them.
FOLDERS: dict[str, Callable[[PlacesSite, str], tuple[str, dict[str, Any]]]] = {
    "multi-model": lambda site, uri: (
        "CreateModel", _model(ModelDataUrl=uri, Mode="MultiModel", Image="sklearn"),
    ),
    "prefix": lambda site, uri: ("CreateTransformJob", _transform(uri, OUT)),
    "transform-output": lambda site, uri: (
        "CreateTransformJob", _transform((site.folder / "outside.csv").as_uri(), uri),
    ),
    "async-output": lambda site, uri: ("CreateEndpointConfig", _config(S3OutputPath=uri)),
    "async-failure": lambda site, uri: (
        "CreateEndpointConfig",
        _config(S3OutputPath=(site.folder / "fine").as_uri(), S3FailurePath=uri),
    ),
}  # fmt: skip


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("member", READERS)
def test_no_member_reads_the_servers_files(site: PlacesSite, member: str, spelling: str) -> None:
    operation, request = READERS[member](site, SPELLINGS[spelling](site, site.secret))
    status, answer = site.call(operation, request)
    assert (status, _says_why(answer)) == (400, True), answer


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("member", FOLDERS)
def test_no_member_names_the_servers_folder(site: PlacesSite, member: str, spelling: str) -> None:
    before = sorted(site.server.state_dir.iterdir())
    operation, request = FOLDERS[member](site, SPELLINGS[spelling](site, site.server.state_dir))
    status, answer = site.call(operation, request)
    assert (status, _says_why(answer)) == (400, True), answer
    assert sorted(site.server.state_dir.iterdir()) == before


@pytest.mark.parametrize(
    "name", ["link.key", "hard.key", "/proc/self/environ", "//proc/self/environ", "/dev/fd/0"]
)
def test_no_other_name_of_a_file_is_read(site: PlacesSite, name: str) -> None:
    uri = f"file://{name}" if name.startswith("/") else (site.folder / name).as_uri()
    status, answer = site.call("CreateTransformJob", _transform(uri, OUT))
    assert (status, _says_why(answer)) == (400, True), answer


def test_a_folder_that_holds_the_servers_is_no_prefix(site: PlacesSite) -> None:
    above = site.server.state_dir.parent.as_uri()
    status, answer = site.call("CreateTransformJob", _transform(above, OUT))
    assert (status, _says_why(answer)) == (400, True), answer


@pytest.mark.parametrize("key", ["outside.csv", "out/outside.csv"])
def test_no_link_leads_out_of_a_bucket(site: PlacesSite, key: str) -> None:
    """An object that is named itself, by a key whose last part or folder is a link."""
    status, answer = site.call("CreateTransformJob", _transform(f"s3://data/{key}", OUT))
    assert (status, "outside" in answer) == (400, True), answer
    status, answer = _later(site, {"InputLocation": f"s3://data/{key}"})
    assert status in (202, 400), answer
    if status == 202:
        failed = wait_until(
            lambda: AsyncSite(site.server, site.folder / "async").failures(), "a failure object", 60
        )
        assert "1,2,3,4" not in json.dumps(failed)


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_no_input_of_an_asynchronous_request_is_the_servers(
    site: PlacesSite, spelling: str
) -> None:
    status, answer = _later(site, {"InputLocation": SPELLINGS[spelling](site, site.secret)})
    assert status == 400, answer


@pytest.mark.parametrize(
    "words",
    [
        {"Filename": "../../../server/state/keys.key"},
        {"Filename": "/keys.key"},
        {"S3OutputPathExtension": "link", "Filename": SECRET_NAME},
        {"S3OutputPathExtension": "../../link", "Filename": SECRET_NAME},
    ],
)
def test_words_of_a_caller_are_names_and_no_paths(site: PlacesSite, words: dict[str, str]) -> None:
    link = site.folder / "async" / "out" / "link"
    link.parent.mkdir(parents=True, exist_ok=True)
    if not link.is_symlink():
        link.symlink_to(site.server.state_dir)
    status, answer = _later(site, words, body=b"mine")
    assert status == 400, answer
    assert site.secret.read_bytes() == SECRET


def test_a_folder_that_has_become_a_link_is_not_written_through(site: PlacesSite) -> None:
    """What an invoke-scope caller could do: the answer, named as the key, over the key."""
    later = AsyncSite(site.server, site.folder / "swapped")
    later.endpoint("swapped", model="echo")
    later.out.rmdir()
    later.out.symlink_to(site.server.state_dir)
    status, answer = _later(site, {"Filename": SECRET_NAME}, body=b"mine", endpoint="swapped")
    if status == 202:  # refused later, where it would have been written
        told = wait_until(later.failures, "a failure object", 60)
        assert "own" in json.dumps(told)
    else:
        assert status == 400, answer
    assert site.secret.read_bytes() == SECRET


def test_outputs_in_a_private_folder_are_private(site: PlacesSite) -> None:
    """No umask opens to others what lies in a folder that is closed to them."""
    later = AsyncSite(site.server, site.folder / "private")
    later.folder.mkdir(mode=0o700)
    later.endpoint("private", model="echo")
    later.ask("private", {"number": 1}, "a.out")
    wait_until(later.answers, "an answer", 60)
    out = later.folder / "job"
    request = _transform((site.folder / "outside.csv").as_uri(), out.as_uri())
    assert site.call("CreateTransformJob", request)[0] == 200
    made = wait_until(lambda: list(out.glob("*.out")), "an output", 120)
    for path in (later.out / "a.out", *made):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    for folder in (later.out, out):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700, folder


def test_no_target_model_is_the_servers(site: PlacesSite) -> None:
    """A prefix above the state directory has its models, and what lies in that one is none."""
    client, above = site.server.client("sagemaker"), site.server.state_dir.parent
    python_model(above / "mine", ECHO)
    made = _model(ModelDataUrl=f"{above.as_uri()}/", Mode="MultiModel") | {"ModelName": "above"}
    assert site.call("CreateModel", made)[0] == 200
    variant = {"VariantName": "v", "ModelName": "above", "InstanceType": "ml.local.small",
               "InitialInstanceCount": 1}  # fmt: skip
    client.create_endpoint_config(EndpointConfigName="above", ProductionVariants=[variant])
    client.create_endpoint(EndpointName="above", EndpointConfigName="above")
    site.server.wait_in_service("above")
    listed = [one["model"] for one in site.server.get("/admin/endpoints/above/models")["models"]]
    assert "mine" in listed
    assert [name for name in listed if name.startswith("state/")] == []
    for name in ("state", "state/keys.key", "state/cache"):
        status, answer = site.server.post(
            "/endpoints/above/invocations", b"[1]", {"X-Amzn-SageMaker-Target-Model": name}
        )
        assert (400 <= status < 500, _says_why(answer.decode())) == (True, True), answer


def test_a_schedule_names_no_place_of_the_servers(site: PlacesSite) -> None:
    job = _transform(site.secret.as_uri(), OUT)
    del job["TransformJobName"]
    body = {"expression": "rate(1 hour)", "job": job}
    status, answer = site.server.post("/admin/schedules/stolen", json.dumps(body).encode())
    assert (status, json.loads(answer)["code"]) == (400, "place-refused")


def _says_why(answer: str) -> bool:
    """It is the place that is refused, whether or not a member has the right form."""
    reasons = ("of the server's own", "of the system's", "outside", "regular expression pattern")
    return any(reason in answer for reason in reasons)


def _later(
    site: PlacesSite, words: dict[str, str], *, body: bytes = b"", endpoint: str = "later"
) -> tuple[int, str]:
    headers = {f"X-Amzn-SageMaker-{quote(key)}": value for key, value in words.items()} | {
        "X-Amzn-SageMaker-Content-Type": "text/csv"
    }
    status, answer = site.server.post(f"/endpoints/{endpoint}/async-invocations", body, headers)
    return status, answer.decode()


def test_a_relative_state_directory_serves_models_with_code(tmp_path: Path) -> None:
    """It is relative to where the command runs; processes of models run elsewhere."""
    server = Server(
        tmp_path / "state", "--state-dir", "state", prefix=("env", "-C", str(tmp_path))
    ).start()
    try:
        server.deploy("echo", python_model(tmp_path / "echo", ECHO))
        assert server.post("/endpoints/echo/invocations", b"[1]") == (200, b"[1]")
    finally:
        server.kill()
