"""A server that asks for credentials, and unmodified clients that have them, or have not."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from tests.kit.certificates import self_signed
from tests.kit.environments import printed_by
from tests.kit.polling import wait_until
from tests.kit.servers import EXAMPLES, Server, penstock
from tools.free_port import free_port

pytestmark = pytest.mark.system

SCRIPTS = Path(__file__).parent / "scripts"
INTENT = EXAMPLES / "query_intent" / "artifact"


class Guarded:
    """A server with --auth and one key of each kind, made while it was running."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.state_dir = folder / "state"
        self.server = Server(
            self.state_dir,
            *("--auth", "--deploy", f"intent={INTENT}"),
            *("--deploy", f"echo={EXAMPLES / 'echo' / 'python'}", *flags),
        ).start()
        self.access_key = self.make_key()
        self.bearer_key = self.make_key("--bearer")

    def make_key(self, *flags: str) -> dict[str, str]:
        argv = ["keys", "create", "--state-dir", str(self.state_dir), "--json", *flags]
        made: dict[str, str] = json.loads(penstock(*argv).stdout)
        return made

    def status_with(self, token: str, path: str = "/v2") -> int:
        """HTTP status of a GET with this bearer key; an empty one is not sent."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return self.server.ask(path, headers=headers)[0]

    def wait_for_endpoints(self) -> None:
        log = self.server.log
        wait_until(lambda: log().count("is in service") == 2 or "error[" in log(), "in service", 60)
        assert "error[" not in log(), log()


def client_says(name: str, script: str, *arguments: str) -> dict[str, Any]:
    """What a script in a client's own environment printed."""
    return dict(json.loads(printed_by(f"client-{name}", str(SCRIPTS / script), *arguments)))


@pytest.fixture(scope="module")
def guarded() -> Iterator[Guarded]:
    with tempfile.TemporaryDirectory() as folder:
        site = Guarded(Path(folder))
        site.wait_for_endpoints()
        # The younger of the two keys: when it is known, both are.
        token = site.bearer_key["secret"]
        wait_until(lambda: site.status_with(token) == 200, "the keys are known", 60)
        yield site
        assert site.server.stop() == 0, site.server.log()
        said = site.server.log()
        for key in (site.access_key, site.bearer_key):
            assert key["secret"] not in said


def test_a_server_that_strangers_reach_does_not_start_without_credentials(tmp_path: Path) -> None:
    ports = ("--port", str(free_port()), "--grpc-port", str(free_port()))
    state = ("--state-dir", str(tmp_path / "state"))
    refused = penstock("up", "--host", "0.0.0.0", *ports, *state, status=1)
    assert refused.stderr.splitlines() == [
        "error[credentials-required]: 0.0.0.0 can be reached from other machines, and no"
        " credentials are asked for",
        "hint: Add --auth and make a key with 'penstock keys create', or, where the network itself"
        " keeps strangers out, --insecure.",
    ]


@pytest.mark.integration
@pytest.mark.parametrize("version", ["boto3-oldest", "boto3-newest"])
def test_boto3_raises_what_is_wrong_with_its_credentials(guarded: Guarded, version: str) -> None:
    """JSON 1.1, rest-json, and JSON 1.0 or, for the oldest client, Query."""
    key = guarded.access_key
    arguments = (guarded.server.url, "echo", key["key_id"], key["secret"])
    seen = client_says(version, "access_tour.py", *arguments)
    assert seen.pop("gzip") == ["gzip", "ok"]
    refused = {
        "right": "ok",
        "wrong secret": ["InvalidSignatureException", 403],
        "unknown key": ["UnrecognizedClientException", 403],
        "unsigned": ["MissingAuthenticationTokenException", 403],
        "changed on its way": ["InvalidSignatureException", 403],
        "clock 10 min late": ["InvalidSignatureException", 403],
        "clock 10 min early": ["InvalidSignatureException", 403],
    }
    assert seen == {
        "sagemaker": refused,
        "sagemaker-runtime": refused,
        "cloudwatch": refused,
    }


def test_a_server_without_keys_says_so_and_starts(guarded: Guarded) -> None:
    assert "nobody can come in yet: make a key with 'penstock keys create'" in guarded.server.log()


def test_a_running_server_learns_of_new_and_of_deleted_keys(guarded: Guarded) -> None:
    key = guarded.make_key("--bearer", "--label", "for a day")
    token = key["secret"]
    wait_until(lambda: guarded.status_with(token) == 200, "the new key opens", 60)
    listed = json.loads(
        penstock("keys", "list", "--state-dir", str(guarded.state_dir), "--json").stdout
    )
    assert "for a day" in [one["label"] for one in listed]
    assert token not in str(listed)
    deleted = penstock("keys", "delete", key["key_id"], "--state-dir", str(guarded.state_dir))
    assert deleted.returncode == 0
    wait_until(lambda: guarded.status_with(token) == 403, "the key is refused", 60)


def test_only_its_health_is_told_to_strangers(guarded: Guarded) -> None:
    told = {
        path: guarded.status_with("", path)
        for path in ("/ping", "/v2/health/live", "/v2/health/ready", "/metrics", "/admin/copies")
    }
    assert told == {
        "/ping": 200,
        "/v2/health/live": 200,
        "/v2/health/ready": 200,
        "/metrics": 403,
        "/admin/copies": 403,
    }


def test_the_secrets_lie_in_the_state_directory_for_its_owner_only(guarded: Guarded) -> None:
    secrets = [guarded.access_key["secret"].encode(), guarded.bearer_key["secret"].encode()]
    for path in guarded.state_dir.glob("*"):
        if path.is_file():
            assert not any(secret in path.read_bytes() for secret in secrets), path
    modes = {path.name: path.stat().st_mode for path in guarded.state_dir.glob("*")}
    modes.pop("cache", None)  # of models, which hold nothing of who calls
    assert {"keys.key", "penstock.db", "lock", "logs"} <= set(modes)
    assert [name for name, mode in modes.items() if mode & 0o077] == []
    assert guarded.state_dir.stat().st_mode & 0o777 == 0o700


def test_a_key_to_ask_one_model_asks_that_one_and_does_nothing_else(guarded: Guarded) -> None:
    """boto3 and the command line, as a colleague would use them."""
    flags = ("--scope", "invoke", "--endpoint", "intent")
    key, token = guarded.make_key(*flags), guarded.make_key(*flags, "--bearer")["secret"]
    assert (key["scope"], key["endpoints"]) == ("invoke", ["intent"])
    intent = ("invoke", "intent", '{"inputs": "where is my order"}', "--url", guarded.server.url)

    def answered() -> bool:
        return penstock(*intent, status=None, env={"PENSTOCK_KEY": token}).returncode == 0

    wait_until(answered, "the new key opens", 60)
    session = boto3.Session(key["key_id"], key["secret"], region_name="us-east-1")
    clients: dict[str, Any] = {
        name: session.client(name, endpoint_url=guarded.server.url)
        for name in ("sagemaker", "sagemaker-runtime", "cloudwatch")
    }
    asked = clients["sagemaker-runtime"].invoke_endpoint(
        EndpointName="intent", ContentType="application/json", Body=b'{"inputs": "hello"}'
    )
    assert json.loads(asked["Body"].read())
    for call in (
        lambda: clients["sagemaker-runtime"].invoke_endpoint(EndpointName="echo", Body=b"x"),
        clients["sagemaker"].list_endpoints,
        lambda: clients["sagemaker"].create_model(ModelName="mine"),
        clients["cloudwatch"].list_metrics,
    ):
        with pytest.raises(ClientError) as caught:
            call()
        assert caught.value.response["Error"]["Code"] == "AccessDeniedException"
        assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403
    assert guarded.status_with(token, "/metrics") == 403
    assert guarded.status_with(token, "/v2/models/intent") == 200
    assert guarded.status_with(token, "/v2/models/echo") == 403
    listed = penstock("keys", "list", "--state-dir", str(guarded.state_dir), "--json").stdout
    assert {(one["scope"], one["endpoints"]) for one in json.loads(listed)} == {
        ("admin", "all"), ("invoke", "intent"),
    }  # fmt: skip


@pytest.mark.integration
def test_tls_serves_tritonclient_and_the_command_line(tmp_path: Path) -> None:
    cert, key = self_signed(tmp_path)
    site = Guarded(tmp_path, "--tls-cert", str(cert), "--tls-key", str(key))
    try:
        site.wait_for_endpoints()
        token = site.bearer_key["secret"]
        url = f"https://localhost:{site.server.port}"
        trusting = {"SSL_CERT_FILE": str(cert)}
        call = ("invoke", "intent", '{"inputs": "where is my order"}', "--url", url, "--json")

        def answered() -> bool:
            by_key = trusting | {"PENSTOCK_KEY": token}
            return penstock(*call, status=None, env=by_key).returncode == 0

        wait_until(answered, "the new key opens", 60)
        by_flag = penstock(*call, "--key", token, env=trusting)
        assert json.loads(by_flag.stdout)["body"][0]["label"] == "order-status"
        untrusted = penstock(*call, "--key", token, status=None)
        assert untrusted.stderr.startswith("error[certificate-untrusted]: the certificate of")
        assert "SSL_CERT_FILE" in untrusted.stderr
        keyless = penstock("status", "--url", url, status=None, env=trusting)
        assert keyless.stderr.startswith("error[MissingAuthenticationTokenException]:")
        assert "hint: Give a key of 'penstock keys create --bearer'" in keyless.stderr
        seen = client_says(
            "tritonclient",
            "triton_access.py",
            f"localhost:{site.server.port}",
            f"localhost:{site.server.grpc_port}",
            "intent",
            str(cert),
            token,
        )
        assert seen == {
            "http": {"live": True, "right": "order-status", "wrong": "403", "none": "403"},
            "grpc": {
                "live": True,
                "right": "order-status",
                "wrong": "StatusCode.UNAUTHENTICATED",
                "none": "StatusCode.UNAUTHENTICATED",
            },
        }
    finally:
        assert site.server.stop() == 0, site.server.log()
