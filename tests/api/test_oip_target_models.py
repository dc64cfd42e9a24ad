"""How a request for `endpoint:target` travels, door by door; what can't be one is refused here."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import grpc
import pytest
from tests.api.test_oip_grpc import call, raw, status_of
from tests.api.test_oip_http import ask
from tests.kit.doors import MODEL, DoorSite, door_site
from tests.kit.gateway import routes, run
from tests.kit.http_clients import post

from penstock.core.deployment.deployment import EndpointRoutes
from penstock.core.request.grants import Grant
from penstock.wire import frames
from penstock.wire.oip_messages import ModelInferRequest

pytestmark = pytest.mark.loop(by=run)


def multi_model(published: EndpointRoutes) -> EndpointRoutes:
    variants = (dataclasses.replace(one, multi_model=True) for one in published.variants)
    return dataclasses.replace(published, variants=tuple(variants))


def host(served: DoorSite, *loaded: str) -> None:
    """Its one copy is a host now, and has these models."""
    served.dispatcher.publish(multi_model(routes(1, model=MODEL, outstanding_max=100)))
    event = {"event": "models-changed", "copy": 1, "loaded": list(loaded), "free_bytes": 1}
    served.dispatcher.on_event("i1", event)


def sent(served: DoorSite) -> list[frames.RequestMeta]:
    return [frames.decode_request_meta(one.meta) for one in served.instance.invokes]


async def test_over_http_the_host_is_told_target_and_version_and_the_body_stays_as_it_is() -> None:
    async with door_site() as served:
        host(served)
        path = "/v2/models/echo%3Ateam/a"
        assert await ask(served, post(f"{path}/infer", b'{"inputs":[]}')) == (
            200,
            {"inputs": []},
        )
        await ask(served, post(f"{path}/versions/2/infer", b"{}"))
        await ask(served, post("/v2/models/echo:b/generate", b"{}"))
        await ask(served, post(f"{path}/infer", b"{}"))  # what was learned of the first
        oip = frames.RequestMeta(target_model="team/a", door="oip")
        assert sent(served) == [
            oip,
            oip._replace(parameters='{"version":"2"}'),
            frames.RequestMeta(
                content_type="application/json", target_model="b", door="oip",
                parameters='{"operation":"generate"}',
            ),
            oip,
        ]  # fmt: skip


async def test_over_grpc_the_message_stays_as_it_is_and_its_head_names_target_and_version() -> None:
    async with door_site() as served:
        host(served)
        for version in ("", "2"):
            request = ModelInferRequest(model_name="echo:team/a", model_version=version, id="7")
            message = request.SerializeToString()
            assert await raw(served, "ModelInfer", message, timeout=60) == message
        meta = frames.RequestMeta(
            content_type="application/x-oip-grpc", target_model="team/a", door="oip-grpc"
        )
        assert sent(served) == [meta, meta._replace(parameters='{"version":"2"}')]


async def test_over_openais_api_the_body_or_a_header_names_the_target() -> None:
    async with door_site() as served:
        host(served)
        small = b'{"model": "echo:team/a"}'
        large = json.dumps({"messages": "x" * 200_000, "model": "echo:team/a"}).encode()
        header = "X-Amzn-SageMaker-Target-Model: team/a"
        for path, body, headers in (
            ("/v1/completions", small, ()),
            ("/v1/completions", large, ()),
            ("/endpoints/echo/openai/v1/completions", b"{}", (header,)),
        ):
            assert (await ask(served, post(path, body, *headers)))[0] == 200
        [first, second, third] = sent(served)
        assert first == second == third
        assert (first.target_model, first.door) == ("team/a", "openai")
        assert first.parameters == '{"operation":"completions"}'


async def test_a_prefix_id_and_a_target_bind_one_request_together() -> None:
    async with door_site() as served:
        host(served, "a")
        path, header = "/v1/completions", "X-Amzn-SageMaker-Prefix-Aware-Id: p"
        assert (await ask(served, post(path, b'{"model": "echo:a"}', header)))[0] == 200
        assert sent(served)[0].target_model == "a"


async def test_the_endpoint_alone_is_told_that_a_target_is_missing() -> None:
    async with door_site() as served:
        host(served)
        for path in ("/v2/models/echo/infer", "/v1/completions"):
            status, answer = await ask(served, post(path, b'{"model": "echo"}'))
            assert (status, "needs a TargetModel" in json.dumps(answer)) == (400, True)
        message = ModelInferRequest(model_name="echo").SerializeToString()
        code, details = await status_of(raw(served, "ModelInfer", message))
        assert (code, "TargetModel" in details) == (grpc.StatusCode.INVALID_ARGUMENT, True)
        assert not served.instance.invokes


async def test_a_target_that_is_none_is_refused_by_every_door() -> None:
    async with door_site() as served:
        host(served)
        assert (await ask(served, post("/v2/models/echo:/infer")))[0] == 400
        assert (await ask(served, post("/v2/models/echo:%C3%A4/infer")))[0] == 400
        assert (await ask(served, post("/v1/completions", b'{"model": "echo:"}')))[0] == 400
        for method in ("ModelMetadata", "ModelConfig", "ModelStatistics"):
            code, _ = await status_of(call(served, method, name="echo:"))
            assert code == grpc.StatusCode.INVALID_ARGUMENT
        message = ModelInferRequest(model_name="echo:").SerializeToString()
        code, _ = await status_of(raw(served, "ModelInfer", message))
        assert code == grpc.StatusCode.INVALID_ARGUMENT
        assert not (await call(served, "ModelReady", name="echo:")).ready
        assert not served.instance.invokes


async def test_a_version_that_is_longer_than_any_is_not_passed_on() -> None:
    async with door_site() as served:
        host(served)
        message = ModelInferRequest(model_name="echo:a", model_version="1" * 65)
        code, _ = await status_of(raw(served, "ModelInfer", message.SerializeToString()))
        assert code == grpc.StatusCode.INVALID_ARGUMENT


async def test_what_is_not_loaded_in_time_is_not_ready_and_what_is_loaded_was_only_slow() -> None:
    def silent(*_: Any) -> None:
        pass

    async with door_site() as served:
        host(served, "warm")
        served.instance.on_invoke = silent
        hurry = "x-penstock-deadline-ms: 50"
        told = {}
        for model in ("cold", "warm"):
            request = post("/endpoints/echo/invocations", b"", hurry,
                           f"X-Amzn-SageMaker-Target-Model: {model}")  # fmt: skip
            client = await served.client()
            status, headers, _ = await client.ask(request)
            told[model] = (status, headers["x-amzn-errortype"])
            client.close()
        assert told == {
            "cold": (429, "ModelNotReadyException"),
            "warm": (503, "ServiceUnavailable"),
        }


async def test_without_a_control_plane_hosts_cannot_be_asked_and_that_is_said() -> None:
    async with door_site() as served:
        host(served, "a")
        status, answer = await ask(served, post("/v2/repository/models/echo:a/load"))
        assert (status, "error" in answer) == (400, True)
        _, index = await ask(served, post("/v2/repository/index"))
        assert [row["name"] for row in index] == ["echo", "echo"], "in two versions"


async def test_keys_load_by_scope_and_reach_the_target_models_of_their_endpoint_only() -> None:
    def grant_of(token: str) -> Grant:
        scope, _, endpoint = token.partition("@")
        return Grant(scope, frozenset({endpoint}) if endpoint else frozenset())

    denied = grpc.StatusCode.PERMISSION_DENIED
    async with door_site(grant_of=grant_of) as served:
        host(served)
        load = {"method": "RepositoryModelLoad", "model_name": "echo:a"}

        async def code_of(token: str, method: str, **fields: Any) -> Any:
            metadata = (("authorization", f"Bearer {token}"),)
            code, _ = await status_of(call(served, method, metadata=metadata, **fields))
            return code

        assert await code_of("invoke", **load) == denied
        assert await code_of("operate@bank", **load) == denied
        # Past the door, where this server has nobody to load it.
        assert await code_of("operate@echo", **load) == grpc.StatusCode.INVALID_ARGUMENT
        named = {"method": "ModelMetadata", "name": "echo:a"}
        assert await code_of("invoke@bank", **named) == denied
        assert await code_of("invoke@echo", **named) == grpc.StatusCode.INVALID_ARGUMENT
        message = ModelInferRequest(model_name="echo:a").SerializeToString()
        bearer = (("authorization", "Bearer invoke@echo"),)
        assert await raw(served, "ModelInfer", message, metadata=bearer, timeout=60) == message
        bearer = (("authorization", "Bearer invoke@a"),)
        code, _ = await status_of(raw(served, "ModelInfer", message, metadata=bearer))
        assert code == denied
