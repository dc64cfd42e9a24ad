"""How a request for an inference component travels, door by door, and what each tells of it."""

from __future__ import annotations

import json
from typing import Any

import grpc
import orjson
import pytest
from tests.api.test_oip_grpc import call, raw, status_of
from tests.api.test_oip_http import ask
from tests.kit.doors import MODEL, DoorSite, door_site
from tests.kit.gateway import run
from tests.kit.http_clients import post
from tests.kit.polling import until

from penstock.core.deployment.deployment import CopyRoute, EndpointRoutes, VariantRoutes
from penstock.wire import frames
from penstock.wire.oip_messages import ModelInferRequest

pytestmark = pytest.mark.loop(by=run)

PLAIN, STREAM = "/endpoints/echo/invocations", "/endpoints/echo/invocations-response-stream"
HEADER = "X-Amzn-SageMaker-Inference-Component"
CHAT: dict[str, object] = {"task": "text-generation", "versions": ["2"]}


def pool(name: str, *copies: int, model: dict[str, object] | None = None) -> VariantRoutes:
    return VariantRoutes(
        name="main",
        weight=1.0,
        strategy="LEAST_OUTSTANDING_REQUESTS",
        copies=tuple(CopyRoute(copy=n, instance_id="i1", outstanding_max=100) for n in copies),
        model=model or {},
        component=name,
    )


def components(served: DoorSite) -> None:
    """Copies 1 of red and 2 of chat are on the one instance; blue has none."""
    pools = (pool("blue"), pool("chat", 2, model=CHAT), pool("red", 1, model=MODEL))
    routes = EndpointRoutes(endpoint="echo", variants=pools, takes_components=True)
    served.dispatcher.publish(routes)


def copies_asked(served: DoorSite) -> list[int]:
    return [invoke.copy for invoke in served.instance.invokes]


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


async def test_the_header_names_the_component_of_an_answer_and_of_a_stream() -> None:
    async with door_site() as served:
        components(served)
        for path, name in ((PLAIN, "red"), (STREAM, "chat"), (PLAIN, "chat")):
            client = await served.client()
            status, headers, _ = await client.ask(post(path, b"body", f"{HEADER}: {name}"))
            assert (status, headers["x-amzn-invoked-production-variant"]) == (200, "main")
            client.close()
        assert copies_asked(served) == [1, 2, 2]
        metas = {invoke.meta for invoke in served.instance.invokes}
        told = [frames.decode_request_meta(meta) for meta in metas]
        assert {one.target_model for one in told} == {None}, "a component is no target model"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (None, "Inference Component Name header is required for endpoints to which inference "
         "components are deployed. ListInferenceComponents names those of the endpoint: give one "
         "as InferenceComponentName, or name the model ENDPOINT:COMPONENT."),
        ("green", "Inference component green of endpoint echo not found. ListInferenceComponents "
         "names those of the endpoint."),
        ("red!", "1 validation error detected: Value 'red!' at 'inferenceComponentName' failed to "
         "satisfy constraint: Member must satisfy regular expression pattern: "
         "[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}"),
    ],
)  # fmt: skip
async def test_what_the_header_can_not_name_is_a_validation_error(
    name: str | None, message: str
) -> None:
    async with door_site() as served:
        components(served)
        client = await served.client()
        headers = [] if name is None else [f"{HEADER}: {name}"]
        status, answered, body = await client.ask(post(PLAIN, b"body", *headers))
        assert (status, answered["x-amzn-errortype"]) == (400, "ValidationError")
        assert orjson.loads(body) == {"Message": message}
        assert served.instance.invokes == []


async def test_an_endpoint_of_models_takes_no_component() -> None:
    async with door_site() as served:
        status, body = await ask(served, post(PLAIN, b"", f"{HEADER}: red"))
        assert (status, body) == (
            400,
            {
                "Message": "Inference Component Name header is not allowed for endpoints "
                "without inference components. Leave InferenceComponentName out."
            },
        )


async def test_at_zero_copies_a_component_refuses_as_aws_does_where_that_is_set() -> None:
    async with door_site(zero_capacity="refuse") as served:
        components(served)
        status, body = await ask(served, post(PLAIN, b"", f"{HEADER}: blue"))
        assert (status, body) == (
            400,
            {
                "Message": "Inference Component has no capacity to process this request. "
                "ApplicationAutoScaling may be in-progress (if configured) or try to increase "
                "the capacity by invoking UpdateInferenceComponentRuntimeConfig API."
            },
        )


async def test_a_held_request_is_answered_on_the_same_connection() -> None:
    async with door_site() as served:
        components(served)
        client = await served.client()
        client.write(post(PLAIN, b"42", f"{HEADER}: blue"))
        await until(lambda: served.dispatcher.snapshot()["waiting"] == 1)
        pools = (pool("blue", 7), pool("red", 1, model=MODEL))
        served.dispatcher.publish(
            EndpointRoutes(endpoint="echo", variants=pools, takes_components=True)
        )
        status, _, body = await client.answer()
        assert (status, body, copies_asked(served)) == (200, b"42", [7])


async def test_a_client_that_hangs_up_is_held_no_longer() -> None:
    async with door_site() as served:
        components(served)
        client = await served.client()
        client.write(post(PLAIN, b"42", f"{HEADER}: blue"))
        await until(lambda: served.dispatcher.snapshot()["waiting"] == 1)
        client.close()
        await until(lambda: served.dispatcher.snapshot()["waiting"] == 0)
        await until(lambda: served.dispatcher.in_flight == 0)


async def test_a_session_belongs_to_its_component() -> None:
    async with door_site() as served:
        components(served)
        client = await served.client()
        new = "X-Amzn-SageMaker-Session-Id: NEW_SESSION"
        _, headers, _ = await client.ask(
            post(PLAIN, b'{"requestType":"NEW_SESSION"}', f"{HEADER}: red", new)
        )
        session = headers["x-amzn-sagemaker-new-session-id"].partition(";")[0]
        inside = f"X-Amzn-SageMaker-Session-Id: {session}"
        assert (await ask(served, post(PLAIN, b"1", f"{HEADER}: red", inside)))[0] == 200
        status, body = await ask(served, post(PLAIN, b"1", f"{HEADER}: chat", inside))
        assert (status, "is not known" in body["Message"]) == (400, True)
        assert copies_asked(served) == [1]


async def test_openais_api_names_it_in_the_path_or_in_the_model() -> None:
    async with door_site() as served:
        components(served)
        path = "/endpoints/echo/inference-components/chat/openai/v1/chat/completions"
        small = b'{"model": "echo:chat"}'
        large = json.dumps({"messages": "x" * 200_000, "model": "echo:chat"}).encode()
        for request in (
            post(path, b"{}"),
            post("/v1/chat/completions", small),
            post("/v1/chat/completions", large),
            post("/endpoints/echo/openai/v1/chat/completions", b"{}", f"{HEADER}: chat"),
        ):
            assert (await ask(served, request))[0] == 200
        assert copies_asked(served) == [2, 2, 2, 2]
        metas = {invoke.meta for invoke in served.instance.invokes}
        [told] = [frames.decode_request_meta(meta) for meta in metas]
        assert (told.target_model, told.parameters) == (None, '{"operation":"chat"}')
        for request in (
            post("/v1/chat/completions", b'{"model": "echo"}'),
            post("/endpoints/echo/openai/v1/chat/completions", b"{}"),
        ):
            status, body = await ask(served, request)
            assert (status, body["error"]["code"]) == (400, "component_required")


async def test_openais_list_has_the_components_that_speak_it() -> None:
    async with door_site() as served:
        components(served)
        for path, ids in (
            ("/v1/models", ["echo:chat"]),
            ("/endpoints/echo/openai/v1/models", ["echo:chat"]),
            ("/endpoints/echo/inference-components/chat/openai/v1/models", ["echo:chat"]),
            ("/endpoints/echo/inference-components/red/openai/v1/models", []),
        ):
            _, body = await ask(served, get(path))
            assert [one["id"] for one in body["data"]] == ids, path
        assert (await ask(served, get("/v1/models/echo:chat")))[0] == 200
        for unknown in ("echo", "echo:red", "echo:green"):
            assert (await ask(served, get(f"/v1/models/{unknown}")))[0] == 404


async def test_over_http_the_open_inference_protocol_has_components_as_models() -> None:
    async with door_site() as served:
        components(served)
        path = "/v2/models/echo:red"
        assert (await ask(served, post(f"{path}/infer", b"{}")))[0] == 200
        assert (await ask(served, post(f"{path}/versions/3/infer", b"{}")))[0] == 200
        assert (await ask(served, post("/v2/models/echo:chat/generate", b"{}")))[0] == 200
        assert copies_asked(served) == [1, 1, 2]
        assert (await ask(served, post(f"{path}/versions/2/infer", b"{}")))[0] == 404
        assert (await ask(served, get(f"{path}/ready")))[0] == 200
        assert (await ask(served, get("/v2/models/echo:blue/ready")))[0] == 503
        assert (await ask(served, get("/v2/models/echo:green/ready")))[0] == 404
        status, body = await ask(served, get(path))
        assert (status, body["name"], body["inputs"][0]["name"]) == (200, "echo:red", "x")
        assert (await ask(served, get(f"{path}/config")))[1]["max_batch_size"] == 8
        status, body = await ask(served, post("/v2/models/echo/infer", b"{}"))
        assert (status, "Component Name header is required" in body["error"]) == (400, True)


async def test_statistics_are_those_of_the_component() -> None:
    async with door_site() as served:
        components(served)
        for name in ("red", "red", "chat"):
            await ask(served, post(f"/v2/models/echo:{name}/infer", b"{}"))
        await until(lambda: served.dispatcher.in_flight == 0)
        served.registry.collect(1_700_000_000)
        counts = {}
        for name in ("echo", "echo:red", "echo:chat", "echo:blue"):
            _, body = await ask(served, get(f"/v2/models/{name}/stats"))
            [row] = body["model_stats"]
            counts[row["name"]] = row["inference_stats"]["success"]["count"]
        assert counts == {"echo": 3, "echo:red": 2, "echo:chat": 1, "echo:blue": 0}


async def test_the_index_has_each_component_and_whether_it_is_ready() -> None:
    async with door_site() as served:
        components(served)
        _, rows = await ask(served, post("/v2/repository/index", b""))
        assert [(row["name"], row["state"]) for row in rows] == [
            ("echo", "READY"),
            ("echo:blue", "UNAVAILABLE"),
            ("echo:chat", "READY"),
            ("echo:red", "READY"),  # in two versions
            ("echo:red", "READY"),
        ]
        _, rows = await ask(served, post("/v2/repository/index", b'{"ready": true}'))
        assert [row["name"] for row in rows] == ["echo", "echo:chat", *["echo:red"] * 2]
        status, body = await ask(served, post("/v2/repository/models/echo:red/unload", b""))
        assert (status, "through endpoints" in body["error"]) == (400, True)


async def test_over_grpc_the_same_names_are_known() -> None:
    async with door_site() as served:
        components(served)
        message = ModelInferRequest(model_name="echo:red", id="7").SerializeToString()
        assert await raw(served, "ModelInfer", message, timeout=60) == message
        assert copies_asked(served) == [1]

        async def ready(name: str) -> bool:
            return bool((await call(served, "ModelReady", name=name)).ready)

        answers: dict[str, Any] = {n: await ready(f"echo:{n}") for n in ("red", "blue", "no")}
        assert answers == {"red": True, "blue": False, "no": False}
        assert (await call(served, "ModelMetadata", name="echo:red")).inputs[0].name == "x"
        for name, code in (
            ("echo", grpc.StatusCode.INVALID_ARGUMENT),
            ("echo:green", grpc.StatusCode.INVALID_ARGUMENT),
        ):
            message = ModelInferRequest(model_name=name).SerializeToString()
            assert (await status_of(raw(served, "ModelInfer", message)))[0] == code


async def test_a_deadline_that_ends_while_it_is_held_is_grpcs_own() -> None:
    async with door_site(request_timeout_s=0.05) as served:
        components(served)
        message = ModelInferRequest(model_name="echo:blue").SerializeToString()
        code, details = await status_of(raw(served, "ModelInfer", message))
        assert (code, "Component blue of endpoint echo" in details) == (
            grpc.StatusCode.DEADLINE_EXCEEDED,
            True,
        )
