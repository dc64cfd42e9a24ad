"""The SageMaker Python SDK, v2 and v3, unmodified, with moto's server as their and our S3.

The files of docs/howto/sagemaker-sdk.md are run here beside what the page does not show;
`tests/docs` types the page itself.
"""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import tarfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
from tests.kit.pages import blocks
from tests.kit.polling import wait_until
from tests.kit.python_models import python_model
from tests.kit.servers import EXAMPLES, ROOT, Server
from tests.kit.servers import KEYS as BOTO_KEYS
from tests.system.test_clients import SCRIPTS, client_python
from tools.free_port import free_port

#: Importing the SDK takes a slow machine minutes, and its own waiters sleep for 30 s.
SECONDS_MAX = 400

pytestmark = [pytest.mark.system, pytest.mark.integration, pytest.mark.timeout(SECONDS_MAX)]

PAGE = ROOT / "docs" / "howto" / "sagemaker-sdk.md"
V2, V3 = "sagemaker-v2", "sagemaker-v3"
KEYS = {
    "AWS_ACCESS_KEY_ID": "none",
    "AWS_SECRET_ACCESS_KEY": "none",
    "AWS_DEFAULT_REGION": "us-east-1",
}


@dataclass(frozen=True, slots=True)
class SdkSite:
    """A server that takes s3:// from moto, and the folder of the page's files."""

    server: Server
    s3_url: str
    folder: Path

    def s3(self) -> Any:
        return boto3.client("s3", endpoint_url=self.s3_url, **BOTO_KEYS)

    def environment(self, *, s3: bool) -> dict[str, str]:
        """What a user sets, and nothing that this machine has set besides."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith("AWS_")}
        kept |= KEYS | {"AWS_ENDPOINT_URL": self.server.url, "HOME": str(self.folder)}
        kept |= {"SAGEMAKER_USER_CONFIG_OVERRIDE": str(self.folder / "sdk.yaml")}
        kept |= {"SAGEMAKER_VALIDATE_ROLE": "false"}
        return kept | ({"AWS_ENDPOINT_URL_S3": self.s3_url} if s3 else {})

    def start(
        self, client: str, script: str | Path, *arguments: str, s3: bool = True
    ) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [client_python(client), str(script), *arguments],
            cwd=self.folder, env=self.environment(s3=s3), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip


def printed(process: subprocess.Popen[str]) -> Any:
    """The JSON at the end of what it printed; the SDK draws dots in front of it."""
    try:
        out, errors = process.communicate(timeout=SECONDS_MAX)
    finally:
        process.kill()
    assert process.returncode == 0, errors[-4000:] + out[-2000:]
    return json.loads(out[re.search(r"[\[{]", out).start() :])  # type: ignore[union-attr]


@pytest.fixture(scope="module")
def s3_url() -> Iterator[str]:
    """moto's server; it is not under test."""
    port = free_port()
    moto = Path(client_python(V3)).with_name("moto_server")
    process = subprocess.Popen(
        [str(moto), "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip

    def answers() -> bool:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/moto-api/", timeout=5).close()
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False
        return True

    try:
        wait_until(answers, seconds=120, what="moto's first answer")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait(10)


@pytest.fixture(scope="module")
def site(s3_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SdkSite]:
    folder = tmp_path_factory.mktemp("sdk")
    write_page(folder)
    with pytest.MonkeyPatch.context() as environment:
        for name, value in (KEYS | {"AWS_ENDPOINT_URL_S3": s3_url}).items():
            environment.setenv(name, value)
        environment.delenv("AWS_ENDPOINT_URL", raising=False)
        # The SDK names an image of PyTorch, whose environment would be gigabytes; see
        # tests/instance/test_models_environments.py for what an image's name brings.
        environment.setenv("PENSTOCK_CONTROL_ENVIRONMENTS", "off")
        server = Server(folder / "state").start()
    yield SdkSite(server, s3_url, folder)
    assert server.stop() == 0, server.log()


@pytest.fixture(scope="module")
def runs(site: SdkSite) -> Iterator[dict[str, subprocess.Popen[str]]]:
    """All clients at once: importing the SDK takes long, and its own waiter sleeps for 30 s."""
    artifact = (EXAMPLES / "echo" / "python").as_uri()
    s3 = site.s3()
    s3.create_bucket(Bucket="later")
    started = {
        "async": site.start(V2, SCRIPTS / "sagemaker_async.py", artifact, "async", "later"),
        "plain": site.start(V2, SCRIPTS / "sagemaker_plain.py", artifact, "plain", s3=False),
        "component": site.start(
            V2, SCRIPTS / "sagemaker_component.py", artifact, "component", s3=False
        ),
        "pipeline": site.start(V2, SCRIPTS / "sagemaker_pipeline.py", *pipeline(site, s3)),
        "v2": site.start(V2, SCRIPTS / "sagemaker_tour.py"),
        "v3": site.start(V3, "v3.py"),
    }
    yield started
    for process in started.values():
        process.kill()
        process.communicate()


#: Adds the number of its place to a list.
ADDS = """
import json, os

def model_fn(model_dir):
    return int(os.environ["NUMBER"])

def transform_fn(number, body, content_type, accept):
    return json.dumps([*json.loads(body), number]), "application/json"
"""


def pipeline(site: SdkSite, s3: Any) -> list[str]:
    """The arguments of its script. For jobs the SDK takes s3:// alone."""
    artifact = python_model(site.folder / "adds", ADDS).as_uri()
    s3.create_bucket(Bucket="lists")
    s3.put_object(Bucket="lists", Key="input/lists.jsonl", Body=b"[0]\n[7]\n")
    return ["in-a-row", "s3://lists/input", "s3://lists/output", artifact, artifact, artifact]


def write_page(folder: Path) -> None:
    """The page's files."""
    for block in blocks(PAGE):
        if block.kind == "file":
            (folder / block.file).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.file).write_text(block.text)
    weights = b'{"factor": 2}\n'
    with tarfile.open(folder / "model.tar.gz", "w:gz") as archive:
        member = tarfile.TarInfo("weights.json")
        member.size = len(weights)
        archive.addfile(member, io.BytesIO(weights))
    # Tests don't leave the machine: the SDK would send telemetry to AWS.
    (folder / "sdk.yaml").write_text(
        'SchemaVersion: "1.0"\nSageMaker: {PythonSDK: {Modules: {TelemetryOptOut: true}}}\n'
    )


def test_v2_does_what_the_page_shows_and_each_class_brings_its_code_its_own_way(
    site: SdkSite, runs: dict[str, subprocess.Popen[str]]
) -> None:
    """PyTorch and Hugging Face repack the artifact, scikit-learn's code stays an archive apart."""
    doubled = [[2, 4], [6, 8]]
    answer = {"default": doubled, "json": doubled}
    assert printed(runs["v2"]) == {
        "page": doubled,
        "pytorch": {"code_on_s3": False, **answer},
        "huggingface": {"code_on_s3": False, **answer},
        "sklearn": {"code_on_s3": True, **answer},
    }
    assert site.server.client("sagemaker").list_models(NameContains="pytorch")["Models"] == []


def test_v3_does_what_the_page_shows(site: SdkSite, runs: dict[str, subprocess.Popen[str]]) -> None:
    assert printed(runs["v3"]) == [[2, 4], [6, 8]]
    listed = site.server.client("sagemaker").list_endpoints(NameContains="doubling-v3")
    assert [each["EndpointStatus"] for each in listed["Endpoints"]] in ([], ["Deleting"])


def test_a_model_deploys_with_the_servers_address_alone(
    runs: dict[str, subprocess.Popen[str]],
) -> None:
    assert printed(runs["plain"]) == {"answer": {"a": 1}}


def test_an_async_predictor_gets_its_answers_from_s3(
    runs: dict[str, subprocess.Popen[str]],
) -> None:
    told = printed(runs["async"])
    assert (told["answer"], told["second"]) == ({"a": 1}, {"a": 2})
    assert "input-not-found" in told["failure"]


def test_a_model_deploys_as_an_inference_component(
    runs: dict[str, subprocess.Popen[str]],
) -> None:
    told = {"answer": {"a": 1}, "based": True, "listed": True}
    assert printed(runs["component"]) == told


def test_a_pipeline_model_deploys_and_transforms(
    site: SdkSite, runs: dict[str, subprocess.Popen[str]]
) -> None:
    assert printed(runs["pipeline"]) == {"answer": [0, 1, 2, 3], "status": "Completed"}
    written = site.s3().get_object(Bucket="lists", Key="output/lists.jsonl.out")["Body"]
    assert written.read() == b"[0, 1, 2, 3][7, 1, 2, 3]"
