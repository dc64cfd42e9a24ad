"""What a host of target models counts, as a real instance: told once, to the one who loaded it, and
nothing of it lost when the host ends in order."""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path

from test_model_host import HOST, ModelHostClient, adding, host  # noqa: F401
from tests.kit import model_files
from tests.kit.instances import FrameClient, instance
from tests.kit.polling import wait_until

from penstock.metrics.models.model_delta import ModelDelta


def heard(client: FrameClient) -> dict[str, ModelDelta]:
    """Everything that was told so far, added up by model."""
    found: dict[str, ModelDelta] = {}
    for event in client.events:
        if event["event"] == "model-counts":
            assert event["copy"] == HOST
            for model, fields in event["models"].items():
                found.setdefault(model, ModelDelta()).add(ModelDelta.from_dict(fields))
    return found


def test_a_models_first_call_waits_for_its_load_and_the_next_ones_find_it(
    host: ModelHostClient,  # noqa: F811
    tmp_path: Path,
) -> None:
    adding(tmp_path, host.prefix / "m.tar.gz", 1)
    for x in range(5):
        assert host.ask("m.tar.gz", x).json["sum"] == x + 1
    assert host.ask("missing.tar.gz").error["code"] == "target-model-not-found"

    def all_told() -> bool:
        host.status()  # reads what has come
        told = heard(host.client)
        return (
            {"m.tar.gz", "missing.tar.gz"} <= told.keys()
            and told["m.tar.gz"].answered == 5
            and told["missing.tar.gz"].other_errors == 1
        )

    wait_until(all_told, "all six are told")
    told = heard(host.client)
    model, missing = told["m.tar.gz"], told["missing.tar.gz"]
    assert (model.misses, model.hits, model.answered, model.loads) == (1, 4, 5, 1)
    assert model.wait_us is not None
    assert model.load_us is not None
    assert model.download_us is not None
    assert model.latency_us is not None
    assert (model.wait_us.count, model.latency_us.count) == (1, 5)
    # Who waited for it did so while it was brought and loaded.
    assert model.wait_us.total >= model.load_us.total
    assert model.run_s > 0
    assert (missing.misses, missing.answered, missing.other_errors) == (1, 0, 1)
    assert (missing.loads, missing.loads_failed) == (0, 1)


def test_only_the_connection_that_loaded_the_host_hears_its_counts(
    host: ModelHostClient,  # noqa: F811
    tmp_path: Path,
) -> None:
    adding(tmp_path, host.prefix / "m.tar.gz", 1)
    other = host.running.client()
    host.ask("m.tar.gz")

    def told() -> bool:
        host.status()
        return bool(heard(host.client))

    wait_until(told, "the counts are told")
    other.control(op="ping")
    assert heard(other) == {}
    other.close()


def test_a_host_that_is_unloaded_tells_everything_before_it_says_that_it_is_gone(
    host: ModelHostClient,  # noqa: F811
    tmp_path: Path,
) -> None:
    adding(tmp_path, host.prefix / "m.tar.gz", 1)
    for x in range(20):
        host.ask("m.tar.gz", x)
    assert host.client.control(op="unload", copy=HOST)["found"]
    model = heard(host.client)["m.tar.gz"]
    assert (model.misses, model.hits, model.answered) == (1, 19, 20)
    assert model.unloads == {"host-ended": 1}
    assert model.byte_s > 0
    assert model.resident_s >= model.idle_s > 0
    last = [event for event in host.client.events if event["event"] == "model-counts"][-1]
    assert last["models"]["m.tar.gz"]["resident"] is False


def test_an_instance_that_is_told_to_end_tells_everything_first(tmp_path: Path) -> None:
    prefix = tmp_path / "models"
    adding(tmp_path, prefix / "m.tar.gz", 1)
    with instance(tmp_path / "run") as running:
        host = ModelHostClient(running, prefix)
        assert host.load().get("ok")
        for x in range(20):
            host.ask("m.tar.gz", x)
        running.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(ConnectionError):  # it says so when all has been read
            while True:
                host.client.read()
        model = heard(host.client)["m.tar.gz"]
        assert (model.misses + model.hits, model.answered) == (20, 20)


def test_unloads_are_counted_with_their_reason_and_take_time(
    host: ModelHostClient,  # noqa: F811
    tmp_path: Path,
) -> None:
    model_files.affine(host.prefix / "m")
    body = b"[[1, 0, 0, 2]]"
    meta = {"content_type": "application/json", "target_model": "m"}
    host.client.invoke(HOST, body, **meta).json  # noqa: B018
    assert host.models(unload="m").get("ok")
    wait_until(lambda: host.status()["models_loaded"] == 0, "the model is unloaded")
    host.client.invoke(HOST, body, **meta).json  # noqa: B018
    bad = host.client.invoke(HOST, b"no numbers", **meta)
    assert bad.error["code"]
    assert host.client.control(op="unload", copy=HOST)["found"]
    model = heard(host.client)["m"]
    assert model.unloads == {"dismissed": 1, "host-ended": 1}
    assert model.unload_us is not None
    assert model.unload_us.count == 1
    assert (model.loads, model.misses, model.hits) == (2, 2, 1)
    assert (model.answered, model.model_errors) == (2, 1)
