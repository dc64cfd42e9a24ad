"""Real servers for system tests: `penstock up` as a process, called over its sockets."""

from __future__ import annotations

import contextlib
import datetime
import functools
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from email.message import Message
from pathlib import Path
from typing import Any, Self

import boto3
from botocore.config import Config
from tests.kit.environments import python_of
from tests.kit.polling import wait_until
from tests.kit.stories import STARTED, WATCH, story, waited_in_vain
from tools.free_port import free_port

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"

#: Servers have their instances on this fleet where the environment names one: the same tests hold
#: on a Ray cluster (`with_ray.py` makes one and runs them).
FLEET = os.environ.get("TESTS_FLEET", "")

#: s for an endpoint to be in service, or to fail; a test has 120. On an idle machine it takes one.
START_S_MAX = 100.0

KEYS = {"aws_access_key_id": "none", "aws_secret_access_key": "none", "region_name": "us-east-1"}


class Server:
    """One `penstock up`, on ports and a state directory of its own."""

    READY = "penstock ready"

    def __init__(
        self,
        state_dir: Path,
        *flags: str,
        prefix: tuple[str, ...] = (),
        python: str = sys.executable,
    ) -> None:
        """`prefix`: a command that runs the server's, such as `prlimit`. `python`: the interpreter
        that it runs under.

        One process, as on a machine with few cores; PENSTOCK_LISTEN_GATEWAYS=2 runs tests with two
        gateways.
        """
        self.prefix = prefix
        if FLEET and "--fleet" not in flags:
            flags, python = (*flags, "--fleet", FLEET), str(python_of("ray"))
        self.python = python
        self.state_dir = state_dir
        self.flags = flags
        self.port, self.grpc_port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log_path = state_dir.parent / f"server-{self.port}.log"
        self.process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        return [
            *(*self.prefix, self.python, "-m", "penstock", "up", "--host", "127.0.0.1"),
            *("--port", str(self.port), "--grpc-port", str(self.grpc_port)),
            *("--state-dir", str(self.state_dir), *self.flags),
        ]

    def start(self, word: str = "") -> Self:
        """`word`: what it says once it is what it is to be, where that is not `READY`."""
        word = word or self.READY
        self.__dict__.pop("runtime", None)  # whose connections are of a life before
        offset = self.log_path.stat().st_size if self.log_path.exists() else 0
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                self.command(),
                stdout=log,
                stderr=subprocess.STDOUT,
                env={"PENSTOCK_LISTEN_GATEWAYS": "1"} | os.environ,
            )
        STARTED.add(self)
        try:
            # Idle it takes two seconds; beside other work it was seen to take over 30.
            wait_until(
                lambda: word in self.log(offset) or self.process.poll() is not None, repr(word), 90
            )
        except BaseException:
            self.kill()
            raise
        assert self.process.poll() is None, self.log(offset)
        return self

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def log(self, offset: int = 0) -> str:
        return self.log_path.read_bytes()[offset:].decode("utf-8", "replace")

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(10)

    def pause(self) -> None:
        """As if the machine had stopped answering, with its connections open."""
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """No effect on one that has ended."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGCONT)

    def stop(self) -> int:
        """SIGTERM; the exit status."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(40)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def client(self, service: str, **options: Any) -> Any:
        config = Config(retries={"max_attempts": 1, "mode": "standard"}, read_timeout=60)
        made = boto3.client(
            service, endpoint_url=self.url, **KEYS, **({"config": config} | options)
        )
        self._watch(made.meta.events)
        return made

    def _watch(self, events: Any) -> None:
        """What a client of boto3 waits for is watched, but for the parts of a stream."""

        def begun(context: dict[str, Any], **_: Any) -> None:
            context["watched"] = WATCH.begin(self)

        def ended(context: dict[str, Any], exception: Exception | None = None, **_: Any) -> None:
            call = context.get("watched")
            if exception is not None:
                WATCH.note(exception, call)
            WATCH.end(call)

        events.register("before-call", begun)
        events.register("after-call", ended)
        events.register("after-call-error", ended)

    @functools.cached_property
    def runtime(self) -> Any:
        """A client of sagemaker-runtime, with its connections."""
        return self.client("sagemaker-runtime")

    # over HTTP

    def ask(
        self,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        *,
        method: str | None = None,
        timeout: float = 60,
    ) -> tuple[int, bytes, Message]:
        """Status, body and headers, whatever the status is; a connection of its own for each."""
        kind = {} if body is None else {"Content-Type": "application/json"}
        request = urllib.request.Request(
            self.url + path, data=body, headers=kind | (headers or {}), method=method
        )
        with WATCH.over(self):
            try:
                with urllib.request.urlopen(request, timeout=timeout) as answer:
                    return answer.status, answer.read(), answer.headers
            except urllib.error.HTTPError as error:
                return error.code, error.read(), error.headers

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(self.url + path, timeout=60) as answer:
            return json.loads(answer.read())

    def post(
        self, path: str, body: bytes, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Status and body, whatever the status is."""
        return self.ask(path, body, headers)[:2]

    def sagemaker(self, operation: str, **members: Any) -> tuple[int, bytes]:
        """An operation without boto3, which knows fewer members and more rules."""
        headers = {
            "X-Amz-Target": f"SageMaker.{operation}",
            "Content-Type": "application/x-amz-json-1.1",
        }
        return self.post("/", json.dumps(members).encode(), headers)

    def page(self, process: str = "") -> str:
        """What is at /metrics: of all processes, or of one gateway."""
        status, body, _ = self.ask(f"/metrics?process={process}" if process else "/metrics")
        assert status == 200
        return body.decode()

    def in_flight(self, endpoint: str = "") -> int:
        """Requests in flight, those that wait for a copy included; of all endpoints, or of one."""
        rows = [
            line
            for line in self.page().splitlines()
            if line.startswith("penstock_in_flight{") and f'endpoint="{endpoint}' in line
        ]
        return int(sum(float(row.rpartition(" ")[2]) for row in rows))

    def copies(self, endpoint: str) -> list[dict[str, Any]]:
        return [
            copy for copy in self.get("/admin/copies")["copies"] if copy["endpoint"] == endpoint
        ]

    def ready_copies(self, endpoint: str) -> list[dict[str, Any]]:
        return [copy for copy in self.copies(endpoint) if copy["state"] == "ready"]

    def outstanding(self, *endpoints: str) -> int:
        """Requests that their copies have."""
        return sum(copy["outstanding"] for name in endpoints for copy in self.copies(name))

    # endpoints

    def model(self, name: str, folder: Path | str, **container: Any) -> None:
        """`container`: more members of its PrimaryContainer."""
        url = folder if isinstance(folder, str) else folder.as_uri()
        self.client("sagemaker").create_model(
            ModelName=name, PrimaryContainer={"ModelDataUrl": url} | container
        )

    def config(self, name: str, *, members: dict[str, Any] | None = None, **variant: Any) -> None:
        """Of one variant, `all`, of the model with its name; `variant` says what is otherwise, None
        leaves a member out. `members`: more of the configuration."""
        whole = {
            "VariantName": "all", "ModelName": name, "InstanceType": "ml.local.small",
            "InitialInstanceCount": 1,
        } | variant  # fmt: skip
        wanted = {key: value for key, value in whole.items() if value is not None}
        self.client("sagemaker").create_endpoint_config(
            EndpointConfigName=name, ProductionVariants=[wanted], **(members or {})
        )

    def endpoint(
        self, name: str, *, wait: bool = True, members: dict[str, Any] | None = None, **variant: Any
    ) -> None:
        """Configuration and endpoint, in service."""
        self.config(name, members=members, **variant)
        self.client("sagemaker").create_endpoint(EndpointName=name, EndpointConfigName=name)
        if wait:
            self.wait_in_service(name)

    def deploy(
        self,
        name: str,
        folder: Path | str,
        *,
        count: int = 1,
        instance_type: str = "ml.local.small",
        wait: bool = True,
        **container: Any,
    ) -> None:
        """Creates model, configuration and endpoint, all named `name`, and waits."""
        self.model(name, folder, **container)
        self.endpoint(name, wait=wait, InstanceType=instance_type, InitialInstanceCount=count)

    def prepare(self, name: str, folder: Path | str, *, count: int = 1) -> None:
        """As `deploy`, but for the endpoint."""
        self.model(name, folder)
        self.config(name, InitialInstanceCount=count)

    def settled(self, name: str, *, seconds: float = START_S_MAX) -> dict[str, Any]:
        """The endpoint, once it is in service or has failed."""
        client = self.client("sagemaker")

        def settled() -> dict[str, Any] | None:
            described: dict[str, Any] = client.describe_endpoint(EndpointName=name)
            return described if described["EndpointStatus"] in {"InService", "Failed"} else None

        return dict(wait_until(settled, f"{name} in service", seconds))

    def wait_in_service(self, name: str, *, seconds: float = START_S_MAX) -> dict[str, Any]:
        described = self.settled(name, seconds=seconds)
        assert described["EndpointStatus"] == "InService", described.get("FailureReason")
        return described

    def set_count(self, name: str, count: int, variant: str = "all") -> None:
        """The wanted count of instances, in service again."""
        wanted = {"VariantName": variant, "DesiredInstanceCount": count}
        self.client("sagemaker").update_endpoint_weights_and_capacities(
            EndpointName=name, DesiredWeightsAndCapacities=[wanted]
        )
        self.wait_in_service(name)

    def delete(self, name: str) -> None:
        """The endpoint and its configuration; returns once it is gone."""
        client = self.client("sagemaker")
        client.delete_endpoint(EndpointName=name)
        client.delete_endpoint_config(EndpointConfigName=name)
        gone = lambda: not client.list_endpoints(NameContains=name)["Endpoints"]  # noqa: E731
        wait_until(gone, f"the end of {name}", 60)

    def invoke(self, endpoint: str, data: Any, **members: Any) -> Any:
        """By boto3, JSON to JSON; `members`: more of InvokeEndpoint."""
        answer = self.runtime.invoke_endpoint(
            EndpointName=endpoint, ContentType="application/json",
            Body=data if isinstance(data, bytes) else json.dumps(data), **members,
        )  # fmt: skip
        return json.loads(answer["Body"].read())

    def datapoints(
        self,
        metric: str,
        statistic: str,
        *,
        namespace: str = "AWS/SageMaker",
        period: int = 60,
        **dimensions: str,
    ) -> list[float]:
        """Of an endpoint's metric in CloudWatch, over the last ten minutes."""
        now = datetime.datetime.now(datetime.UTC)
        points = self.client("cloudwatch").get_metric_statistics(
            Namespace=namespace, MetricName=metric, Period=period, Statistics=[statistic],
            Dimensions=[{"Name": name, "Value": value} for name, value in dimensions.items()],
            StartTime=now - datetime.timedelta(minutes=10),
            EndTime=now + datetime.timedelta(minutes=2),
        )["Datapoints"]  # fmt: skip
        return [float(point[statistic]) for point in points]


@contextlib.contextmanager
def up(folder: Path, *flags: str, **options: Any) -> Iterator[Server]:
    """A server of its own below `folder`; it has to end well."""
    server = Server(folder / "state", *flags, **options).start()
    try:
        yield server
    except BaseException as error:
        if server.runs and waited_in_vain(error):
            error.add_note(story(server))
        server.kill()
        raise
    assert server.stop() == 0, server.log()


def penstock(
    *words: str, server: Server | None = None, status: int | None = 0, **options: Any
) -> subprocess.CompletedProcess[str]:
    """A command of the command line, to its end, which has to be `status`; None: any. `server`: of
    whom it asks. `options`: of `subprocess.run`; variables of its environment as `env`."""
    said = {"PENSTOCK_URL": server.url} if server is not None else {}
    env = os.environ | said | options.pop("env", {})
    done = subprocess.run(
        [sys.executable, "-m", "penstock", *words],
        capture_output=True, text=True, check=False, env=env, **{"timeout": 110} | options,
    )  # fmt: skip
    assert status in (None, done.returncode), (words, done.stdout, done.stderr)
    return done


def remove_all(server: Server) -> None:
    """Endpoints, their configurations, components and models; returns once no copy is left."""
    client = server.client("sagemaker")

    def nothing_left() -> bool:
        components = client.list_inference_components()["InferenceComponents"]
        for one in components:
            if one["InferenceComponentStatus"] != "Deleting":
                client.delete_inference_component(
                    InferenceComponentName=one["InferenceComponentName"]
                )
        endpoints = client.list_endpoints()["Endpoints"]
        for one in endpoints:
            if one["EndpointStatus"] != "Deleting":
                client.delete_endpoint(EndpointName=one["EndpointName"])
        return not (components or endpoints or server.get("/admin/copies")["copies"])

    wait_until(nothing_left, "no endpoint and no copy", 90)
    while configs := client.list_endpoint_configs()["EndpointConfigs"]:
        for one in configs:
            client.delete_endpoint_config(EndpointConfigName=one["EndpointConfigName"])
    while models := client.list_models()["Models"]:
        for one in models:
            client.delete_model(ModelName=one["ModelName"])
