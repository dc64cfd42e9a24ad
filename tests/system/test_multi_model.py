"""Many models behind one endpoint, with an unmodified SDK against a real server."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import botocore.exceptions
import pytest
from tests.kit.multi_model import create_multi_model, put
from tests.kit.polling import wait_until
from tests.kit.servers import Server

pytestmark = pytest.mark.system


def ask(server: Server, endpoint: str, model: str, x: int) -> dict[str, Any]:
    return dict(server.invoke(endpoint, {"x": x}, TargetModel=model))


def test_each_request_is_answered_by_the_model_that_it_names(
    empty_server: Server, tmp_path: Path
) -> None:
    prefix = tmp_path / "models"
    for number in range(8):
        put(prefix, f"customer-{number}.tar.gz", number)
    create_multi_model(empty_server, "many", prefix, count=2)

    def sums(number: int) -> int:
        return int(ask(empty_server, "many", f"customer-{number % 8}.tar.gz", 100)["sum"])

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(sums, range(64))) == [100 + number % 8 for number in range(64)]
    put(prefix, "team/late.tar.gz", 50)
    assert ask(empty_server, "many", "team/late.tar.gz", 1)["sum"] == 51


def test_models_spread_over_the_instances_and_each_is_called_where_it_is_loaded(
    empty_server: Server, tmp_path: Path
) -> None:
    prefix = tmp_path / "models"
    for number in range(4):
        put(prefix, f"m{number}.tar.gz", number)
    create_multi_model(empty_server, "many", prefix, count=2)
    first = {n: ask(empty_server, "many", f"m{n}.tar.gz", 0)["pid"] for n in range(4)}
    again = {n: ask(empty_server, "many", f"m{n}.tar.gz", 0)["pid"] for n in range(4)}
    assert first == again
    loaded = [copy["models"]["models_loaded"] for copy in empty_server.copies("many")]
    assert loaded == [2, 2]


def test_a_killed_instance_loses_no_request_and_its_models_answer_elsewhere(
    empty_server: Server, tmp_path: Path
) -> None:
    prefix = tmp_path / "models"
    for number in range(4):
        put(prefix, f"m{number}.tar.gz", number)
    create_multi_model(empty_server, "many", prefix, count=2)
    for number in range(4):
        ask(empty_server, "many", f"m{number}.tar.gz", 0)
    victim = empty_server.copies("many")[0]["pid"]

    def sums(number: int) -> int:
        if number == 20:
            os.kill(victim, signal.SIGKILL)
        return int(ask(empty_server, "many", f"m{number % 4}.tar.gz", 100)["sum"])

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(sums, range(100))) == [100 + number % 4 for number in range(100)]
    wait_until(
        lambda: [c["state"] for c in empty_server.copies("many")] == ["ready", "ready"],
        "the instance is replaced",
        60,
    )


def test_a_single_model_endpoint_takes_no_target_model_and_a_multi_model_one_needs_it(
    server: Server, echo: str, tmp_path: Path
) -> None:
    put(tmp_path / "models", "m.tar.gz", 1)
    create_multi_model(server, "needs-target", tmp_path / "models")
    with pytest.raises(botocore.exceptions.ClientError, match="takes no TargetModel"):
        ask(server, echo, "m.tar.gz", 1)
    with pytest.raises(botocore.exceptions.ClientError, match="needs a TargetModel"):
        server.runtime.invoke_endpoint(EndpointName="needs-target", Body=b"{}")
    server.client("sagemaker").delete_endpoint(EndpointName="needs-target")
