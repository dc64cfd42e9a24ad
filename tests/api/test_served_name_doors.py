"""An endpoint under other names, door by door: who is called, what is answered, who may ask."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import grpc
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.api.test_access_scopes import KEY, TOKEN, ScopedRing
from tests.api.test_oip_grpc import call, raw, status_of
from tests.api.test_oip_http import ask, get
from tests.kit import streams
from tests.kit.doors import MODEL, DoorSite, door_site
from tests.kit.gateway import routes, run
from tests.kit.http_clients import post

from penstock.api.access import KeyAuthenticator, asked_of
from penstock.api.model_names import model_target, parts_of, repository_target
from penstock.clock import ManualClock
from penstock.core.deployment.served_names import MODELS
from penstock.core.request.grants import Grant
from penstock.errors import CallerError
from penstock.gateway.dispatch.served_names import ServedNames
from penstock.wire import frames
from penstock.wire.aws.errors import AwsError
from penstock.wire.oip_messages import ModelInferRequest

pytestmark = pytest.mark.loop(by=run)

NAMES = ("densenet_onnx", "Qwen/Qwen3-0.6B", "llama3.2:1b")


def serve(
    served: DoorSite, *names: str, model: dict[str, object] = MODEL, multi_model: bool = False
) -> None:
    published = routes(1, model=model, outstanding_max=100)
    variants = (dataclasses.replace(one, multi_model=multi_model) for one in published.variants)
    told = {name: target for name, _, target in (each.partition("=") for each in names)}
    served.dispatcher.publish(
        dataclasses.replace(published, variants=tuple(variants), served_names=told)
    )


def sent(served: DoorSite) -> list[frames.RequestMeta]:
    return [frames.decode_request_meta(one.meta) for one in served.instance.invokes]


@pytest.mark.parametrize("name", NAMES)
async def test_over_http_a_model_answers_under_the_name_that_is_asked(name: str) -> None:
    async with door_site() as served:
        path = f"/v2/models/{name}"
        assert (await ask(served, get(path)))[0] == 404
        serve(served, *NAMES)
        for asked in (path, f"/v2/models/{name.replace('/', '%2F').replace(':', '%3A')}"):
            assert (await ask(served, get(f"{asked}/ready"))) == (200, None)
            assert (await ask(served, get(asked)))[1]["name"] == name
            assert (await ask(served, get(f"{asked}/versions/3")))[1]["name"] == name
            assert (await ask(served, get(f"{asked}/config")))[1]["name"] == name
            [counted] = (await ask(served, get(f"{asked}/stats")))[1]["model_stats"]
            assert counted["name"] == name
            assert (await ask(served, post(f"{asked}/infer", b'{"inputs":[]}')))[0] == 200
            await ask(served, post(f"{asked}/versions/3/infer", b"{}"))
            await ask(served, post(f"{asked}/generate", b"{}"))
        told = [orjson.loads(meta.parameters or "{}") for meta in sent(served)]
        assert told[:3] == told[3:] == [
            {"model": name},
            {"version": "3", "model": name},
            {"operation": "generate", "model": name},
        ]  # fmt: skip
        assert {meta.target_model for meta in sent(served)} == {None}


@pytest.mark.parametrize("name", NAMES)
async def test_over_grpc_a_model_answers_under_the_name_that_is_asked(name: str) -> None:
    async with door_site() as served:
        serve(served, *NAMES)
        assert (await call(served, "ModelReady", name=name)).ready
        assert (await call(served, "ModelMetadata", name=name)).name == name
        assert (await call(served, "ModelConfig", name=name)).config.name == name
        assert (await call(served, "ModelStatistics", name=name)).model_stats[0].name == name
        message = ModelInferRequest(model_name=name, id="7").SerializeToString()
        assert await raw(served, "ModelInfer", message, timeout=60) == message
        [meta] = sent(served)
        assert (meta.parameters, meta.target_model) == (json_of(model=name), None)


def json_of(**fields: str) -> str:
    return orjson.dumps(fields).decode()


async def test_the_index_lists_every_name_and_statistics_count_each_model_once() -> None:
    async with door_site() as served:
        serve(served, *NAMES, "echo")
        _, index = await ask(served, post("/v2/repository/index", b"{}"))
        listed = [name for name in ("echo", *NAMES) for _ in ("1", "3")]
        assert [row["name"] for row in index] == listed
        assert {row["state"] for row in index} == {"READY"}
        over_grpc = await call(served, "RepositoryIndex")
        assert [row.name for row in over_grpc.models] == listed
        _, stats = await ask(served, get("/v2/models/stats"))
        assert [row["name"] for row in stats["model_stats"]] == ["echo"]


@pytest.mark.parametrize("name", NAMES)
async def test_openais_clients_name_a_model_as_it_is_called(name: str) -> None:
    async with door_site(model=streams.MODEL) as served:
        serve(served, *NAMES, model=streams.MODEL)
        _, listed = await ask(served, get("/v1/models"))
        assert [one["id"] for one in listed["data"]] == ["echo", *NAMES]
        _, within = await ask(served, get("/endpoints/echo/openai/v1/models"))
        assert within == listed
        assert (await ask(served, get(f"/v1/models/{name}")))[1]["id"] == name
        assert (await ask(served, get(f"/endpoints/echo/openai/v1/models/{name}")))[0] == 200
        assert (await ask(served, get("/v1/models/another")))[0] == 404
        large = json.dumps({"messages": "x" * 200_000, "model": name}).encode()
        for body in (json.dumps({"model": name}).encode(), large):
            assert (await ask(served, post("/v1/completions", body)))[0] == 200
        assert [meta.parameters for meta in sent(served)] == [
            json_of(operation="completions", model=name)
        ] * 2


async def test_sagemakers_door_has_sagemakers_names() -> None:
    async with door_site() as served:
        serve(served, "densenet_onnx", "densenet")
        status, _ = await ask(served, post("/endpoints/densenet/invocations", b"{}"))
        assert status == 400
        assert not served.instance.invokes


async def test_a_name_that_is_taken_away_or_moves_is_not_remembered() -> None:
    async with door_site() as served:
        serve(served, "densenet_onnx")
        path, body = "/v2/models/densenet_onnx/infer", b'{"inputs":[]}'
        assert (await ask(served, post(path, body)))[0] == 200
        serve(served)
        assert (await ask(served, post(path, body)))[0] == 404
        other = dataclasses.replace(
            routes(1, endpoint="other", outstanding_max=100), served_names={"densenet_onnx": ""}
        )
        served.dispatcher.withdraw("echo")
        served.dispatcher.publish(other)
        assert (await ask(served, post(path, body)))[0] == 200
        served.dispatcher.withdraw("other")
        assert (await ask(served, post(path, body)))[0] == 404
        assert (await ask(served, post("/v2/repository/index", b"{}")))[1] == []


async def test_a_target_model_is_served_under_a_name_of_its_own() -> None:
    async with door_site() as served:
        serve(served, "resnet=team/resnet.tar.gz", "repository", multi_model=True)
        for name in ("resnet", "repository:team/resnet.tar.gz", "echo:team/resnet.tar.gz"):
            assert (await ask(served, post(f"/v2/models/{name}/infer", b"{}")))[0] == 200
            message = ModelInferRequest(model_name=name).SerializeToString()
            await raw(served, "ModelInfer", message, timeout=60)
            body = json.dumps({"model": name}).encode()
            assert (await ask(served, post("/v1/completions", body)))[0] == 200
        assert {meta.target_model for meta in sent(served)} == {"team/resnet.tar.gz"}
        named = [orjson.loads(meta.parameters or "{}").get("model") for meta in sent(served)]
        assert named == ["resnet"] * 3 + ["repository:team/resnet.tar.gz"] * 3 + [None] * 3
        _, index = await ask(served, post("/v2/repository/index", b"{}"))
        assert [row["name"] for row in index] == ["echo"] * 2 + ["resnet"] + ["repository"] * 2


async def test_all_target_models_are_served_under_their_own_names() -> None:
    async with door_site() as served:
        path = "/v2/models/densenet_onnx/infer"
        serve(served, MODELS, multi_model=True)
        assert (await ask(served, post(path, b"{}")))[0] == 200
        assert (await ask(served, post("/v2/models/team/second/infer", b"{}")))[0] == 200
        told = [(meta.target_model, meta.parameters) for meta in sent(served)]
        assert told == [
            ("densenet_onnx", json_of(model="densenet_onnx")),
            ("team/second", json_of(model="team/second")),
        ]
        late = routes(1, endpoint="late", outstanding_max=100)
        served.dispatcher.publish(late)
        _, index = await ask(served, post("/v2/repository/index", b"{}"))
        assert MODELS not in {row["name"] for row in index}


async def test_a_served_name_of_a_component_that_is_not_there_hides_nothing() -> None:
    async with door_site() as served:
        published = routes(1, model=MODEL, outstanding_max=100)
        [variant] = published.variants
        served.dispatcher.publish(
            dataclasses.replace(
                published,
                variants=(dataclasses.replace(variant, component="red"),),
                takes_components=True,
                served_names={"a_red": "red", "a_blue": "blue"},
            )
        )
        _, index = await ask(served, post("/v2/repository/index", b"{}"))
        states = {row["name"]: row["state"] for row in index}
        assert states["a_red"] == "READY"
        assert states["a_blue"] == "UNAVAILABLE"
        assert (await ask(served, post("/v2/models/a_red/infer", b"{}")))[0] == 200
        assert (await ask(served, post("/v2/models/a_blue/infer", b"{}")))[0] in (400, 404)


async def test_over_grpc_a_grant_is_for_the_endpoint_and_for_no_name_of_it() -> None:
    def grant_of(token: str) -> Grant:
        return Grant("operate", frozenset({token}))

    async with door_site(grant_of=grant_of) as served:
        serve(served, "densenet_onnx", "bank")
        message = ModelInferRequest(model_name="densenet_onnx").SerializeToString()
        for token, passes in (("echo", True), ("densenet_onnx", False), ("bank", False)):
            bearer = (("authorization", f"Bearer {token}"),)
            for method in ("ModelMetadata", "ModelConfig", "ModelStatistics"):
                asked = call(served, method, metadata=bearer, name="densenet_onnx")
                if passes:
                    await asked
                else:
                    assert (await status_of(asked))[0] == grpc.StatusCode.PERMISSION_DENIED
            infer = raw(served, "ModelInfer", message, metadata=bearer, timeout=60)
            load = call(served, "RepositoryModelLoad", metadata=bearer, model_name="densenet_onnx")
            if passes:
                assert await infer == message
                assert (await status_of(load))[0] == grpc.StatusCode.UNIMPLEMENTED
            else:
                assert (await status_of(infer))[0] == grpc.StatusCode.PERMISSION_DENIED
                assert (await status_of(load))[0] == grpc.StatusCode.PERMISSION_DENIED


def found(**names: str) -> ServedNames:
    served = ServedNames({"shop", "bank"})
    served.take("shop", {}, names)
    return served


SERVED = found(**{"a_1": "", "q/q": "", "l:1b": "", "bank:a": "", "t": "team/a", MODELS: ""})


def passes(endpoint: str, path: str, body: bytes = b"{}") -> bool:
    grant = Grant("operate", frozenset({endpoint}))
    checks = KeyAuthenticator(ScopedRing(grant), ManualClock(), served=SERVED)
    headers = [(b"authorization", f"Bearer {TOKEN}".encode())]
    try:
        checks.check_head("POST", path.encode(), b"", headers)
        checks.check("POST", path.encode(), b"", headers, body)
    except AwsError:
        return False
    return True


@pytest.mark.parametrize("name", ["a_1", "q/q", "l:1b", "t", "a_1:x", "unknown", "team/a"])
def test_over_http_a_grant_is_for_the_endpoint_and_for_no_name_of_it(name: str) -> None:
    body = json.dumps({"model": name}).encode()
    for path in (
        f"/v2/models/{name}/infer",
        f"/v2/models/{name}",
        f"/v2/repository/models/{name}/load",
        f"/v1/models/{name}",
        "/v1/chat/completions",
    ):
        assert passes("shop", path, body), path
        for other in ("bank", name.lower(), name.partition(":")[0], name.partition("/")[0]):
            assert not passes(other, path, body), (other, path)
    assert KEY


WORDS = "shop bank a_1 q l:1b l 1b t team a : %3A %2F infer load versions 1 ready models repository"
PARTS = st.lists(st.sampled_from([*WORDS.split(), "stats", "..", "q%2Fq", ""]), max_size=7)


@given(PARTS, st.sampled_from(["models", "repository/models"]), st.booleans())
def test_who_may_ask_is_decided_of_the_endpoint_that_answers(
    parts: list[str], room: str, models: bool
) -> None:
    """Two readers of one path must not find different endpoints in it."""
    names = {"a_1": "", "q/q": "", "l:1b": "", "t": "team/a"} | ({MODELS: ""} if models else {})
    served = found(**names)
    path = f"/v2/{room}/{'/'.join(parts)}".encode()
    split = parts_of(path)
    try:
        if room == "models":
            if len(split) < 2 or split[1:] == ["stats"]:
                return
            target: Any = model_target(split[1:], path, served)
        else:
            target = repository_target(split[2:], path, served)
    except CallerError:
        return
    assert asked_of("POST", path, (), served).endpoint == target.model.endpoint
