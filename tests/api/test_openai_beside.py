"""What OpenAI's door has beside OpenAI's own paths: those of vLLM, TEI and Cohere, and other
servers' pages."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from tests.kit.doors import DoorSite, door_site
from tests.kit.gateway import fail_with, routes, run
from tests.kit.http_clients import post
from tests.kit.polling import until
from tests.kit.streams import MODEL, HeldStream, end, first, operations, whole

from penstock import __version__
from penstock.errors import CallerError
from penstock.wire.aws.errors import AwsError

pytestmark = pytest.mark.loop(by=run)

CROSS: dict[str, object] = {
    "runtime": "openvino", "task": "text-regression", "scores_pairs": True, "tokens_max": 64,
}  # fmt: skip
PAGE = "https://console.example.com"


def get(path: str, *headers: str, method: str = "GET") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


@pytest.mark.parametrize(
    ("path", "operation"),
    [
        ("/rerank", "rerank"),
        ("/v1/rerank", "rerank"),
        ("/v2/rerank", "rerank"),
        ("/endpoints/echo/openai/rerank", "rerank"),
        ("/endpoints/echo/openai/v1/rerank", "rerank"),
        ("/endpoints/echo/openai/v2/rerank", "rerank"),
        ("/score", "score"),
        ("/v1/score", "score"),
        ("/tokenize", "tokenize"),
        ("/detokenize", "detokenize"),
        ("/endpoints/echo/openai/detokenize", "detokenize"),
    ],
)
@pytest.mark.parametrize("body", [b'{"model":"echo"}', b"{}"], ids=["named", "alone"])
async def test_a_path_of_other_servers_leads_to_the_model_that_is_named_or_alone(
    path: str, operation: str, body: bytes
) -> None:
    async with door_site(model=CROSS) as served:
        served.instance.on_invoke = whole(b"[]")
        client = await served.client()
        status, headers, answer = await client.ask(post(path, body))
        assert (status, answer) == (200, b"[]")
        assert headers["x-request-id"] == headers["x-amzn-requestid"]
        assert operations(served.instance.invokes) == [("openai", {"operation": operation})]


async def test_a_body_without_a_model_is_refused_where_several_answer_or_none() -> None:
    async with door_site(model=CROSS) as served:
        client = await served.client()
        served.dispatcher.publish(routes(1, model=CROSS, endpoint="other"))
        for path in ("/rerank", "/score", "/tokenize"):
            status, _, body = await client.ask(post(path, b"{}"))
            error = orjson.loads(body)["error"]
            assert (status, error["code"], error["param"]) == (400, "model_missing", "model")
        status, _, body = await client.ask(post("/v1/chat/completions", b"{}"))
        assert (status, orjson.loads(body)["error"]["code"]) == (400, "model_missing")
    async with door_site(model=MODEL) as served:
        client = await served.client()
        served.instance.on_invoke = whole(b"{}")
        assert (await client.ask(post("/rerank", b"{}")))[0] == 400
        assert (await client.ask(post("/tokenize", b"{}")))[0] == 200
        large = b'{"prompt":"%b"}' % (b"x" * 200_000)
        assert (await client.ask(post("/tokenize", large)))[0] == 200


async def test_health_and_version_are_the_servers_and_health_an_endpoints_too() -> None:
    async with door_site(model=MODEL) as served:
        client = await served.client()
        status, _, body = await client.ask(get("/health"))
        assert (status, body) == (200, b"")
        status, headers, body = await client.ask(get("/version"))
        assert (status, orjson.loads(body)) == (200, {"version": __version__})
        assert headers["content-type"] == "application/json"
        assert (await client.ask(get("/endpoints/echo/openai/health")))[0] == 200
        assert (await client.ask(get("/endpoints/nobody/openai/health")))[0] == 404
        served.dispatcher.publish(routes(model=MODEL))
        assert (await client.ask(get("/endpoints/echo/openai/health")))[0] == 503
        assert (await client.ask(post("/health")))[0] == 405
        for path in ("/healthy", "/versionssss/openai/rerank", "/rerank/"):
            assert (await client.ask(get(path)))[0] == 404


SPECIAL = {"eos_token": "</s>", "bos_token": "<s>", "unk_token": None, "pad_token": None}
WRITES = {"task": "text-generation", "generation": {"special_tokens": SPECIAL}}


async def test_a_tokenizers_special_tokens_are_told_as_at_vllm() -> None:
    async with door_site(model={"runtime": "x", "lanes": 1, **WRITES}) as served:
        client = await served.client()
        paths = ("/tokenizer_info", "/v1/tokenizer_info", "/endpoints/echo/openai/tokenizer_info")
        for path in paths:
            status, _, body = await client.ask(get(path))
            told = {"tokenizer_class": "TokenizersBackend", **SPECIAL}
            assert (status, orjson.loads(body)) == (200, told)
        assert (await client.ask(get("/endpoints/nobody/openai/tokenizer_info")))[0] == 404
        served.dispatcher.publish(routes(1, model=CROSS, endpoint="other"))
        status, _, body = await client.ask(get("/tokenizer_info"))
        assert (status, orjson.loads(body)["error"]["code"]) == (400, "model_missing")
        assert (await client.ask(get(paths[2])))[0] == 200
        assert (await client.ask(get("/endpoints/other/openai/tokenizer_info")))[0] == 404


async def models(served: DoorSite) -> list[dict[str, Any]]:
    client = await served.client()
    cards = orjson.loads((await client.ask(get("/v1/models")))[2])["data"]
    for card in cards:
        card.pop("created")
    return list(cards)


@pytest.mark.parametrize(
    ("model", "more"),
    [
        (CROSS, {"max_model_len": 64}),
        ({"task": "feature-extraction", "tokens_max": 512}, {"max_model_len": 512}),
        ({"task": "text-generation", "generation": {"context_tokens_max": 4096}},
         {"max_model_len": 4096}),
        ({"task": "text-generation"}, {}),
        ({"pipeline": {}}, {}),
        ({"task": "text-classification", "tokens_max": 512}, None),
        ({"task": "pair-classification", "tokens_max": 512}, None),
        ({"pipeline": {}, "platform": "ensemble"}, None),
        ({"task": "tensor"}, None),
    ],
)  # fmt: skip
async def test_models_lists_what_answers_with_its_length_where_that_is_known(
    model: dict[str, object], more: dict[str, int] | None
) -> None:
    async with door_site(model={"runtime": "x", "lanes": 1, **model}) as served:
        card = {"id": "echo", "object": "model", "owned_by": "penstock"}
        assert await models(served) == ([] if more is None else [card | more])


def allowed(headers: dict[str, str]) -> dict[str, str]:
    wanted = ("vary", "access-control-")
    return {name: value for name, value in headers.items() if name.startswith(wanted)}


async def test_a_listed_page_may_read_answers_streams_and_errors() -> None:
    async with door_site(model=MODEL, origins=(PAGE,)) as served:
        client = await served.client()
        origin = f"Origin: {PAGE}"
        expected = {
            "access-control-allow-origin": PAGE,
            "vary": "origin",
            "access-control-expose-headers": "x-request-id, retry-after, retry-after-ms, "
            "x-should-retry",
        }
        ask = post("/v1/chat/completions", b'{"model":"echo"}', origin)
        served.instance.on_invoke = whole(b"{}")
        assert allowed((await client.ask(ask))[1]) == expected
        served.instance.on_invoke = fail_with(CallerError("bad-input", "no"))
        status, headers, _ = await client.ask(ask)
        assert (status, allowed(headers)) == (400, expected)
        for path in ("/v1/models", "/health", "/version"):
            assert allowed((await client.ask(get(path, origin)))[1]) == expected
        assert allowed((await client.ask(get("/v1/models")))[1]) == {}
        told = served.instance.on_invoke = HeldStream()
        client.write(ask)
        await until(lambda: told.idents)
        told.send(first(told.idents[0], b"data: 1\n\n"))
        head = await client.reader.readuntil(b"\r\n\r\n")
        assert f"access-control-allow-origin: {PAGE}\r\n".encode() in head
        told.send(end(told.idents[0]))


async def test_a_browser_learns_before_that_a_listed_page_may_send() -> None:
    asks = (
        f"Origin: {PAGE}",
        "Access-Control-Request-Method: POST",
        "Access-Control-Request-Headers: authorization,content-type,x-stainless-lang",
    )
    async with door_site(model=MODEL, origins=(PAGE,)) as served:
        client = await served.client()
        for path in ("/v1/chat/completions", "/rerank", "/endpoints/echo/openai/v1/completions"):
            client.write(get(path, *asks, method="OPTIONS"))
            status, headers, _ = await client.answer(head=True)
            assert status == 204
            assert allowed(headers) == {
                "access-control-allow-origin": PAGE,
                "vary": "origin",
                "access-control-expose-headers": "x-request-id, retry-after, retry-after-ms, "
                "x-should-retry",
                "access-control-allow-methods": "GET, HEAD, POST",
                "access-control-allow-headers": "authorization,content-type,x-stainless-lang",
                "access-control-max-age": "7200",
            }
        other = ("Origin: https://elsewhere.example", *asks[1:])
        status, headers, _ = await client.ask(get("/v1/models", *other, method="OPTIONS"))
        assert (status, allowed(headers)) == (403, {})
        assert served.instance.invokes == []


async def test_without_a_listed_page_nothing_is_allowed_and_any_is_any() -> None:
    async with door_site(model=MODEL) as served:
        client = await served.client()
        own = "Origin: http://localhost"
        assert allowed((await client.ask(get("/v1/models", own)))[1]) == {}
        preflight = get("/v1/models", own, "Access-Control-Request-Method: GET", method="OPTIONS")
        assert (await client.ask(preflight))[0] == 405
    async with door_site(model=MODEL, origins=("*",)) as served:
        client = await served.client()
        headers = (await client.ask(get("/v1/models", f"Origin: {PAGE}")))[1]
        assert headers["access-control-allow-origin"] == "*"
        assert "vary" not in headers


class _NoKeys:
    """Lets nobody in."""

    def check(self, method: str, path: bytes, query: bytes, headers: Any, body: bytes) -> None:
        self.check_head(method, path, query, headers)

    def check_head(self, method: str, path: bytes, query: bytes, headers: Any) -> None:
        raise AwsError("UnrecognizedClientException", "The token is invalid.", status=403)


async def test_a_page_with_a_wrong_key_reads_that_it_is_wrong() -> None:
    async with door_site(model=MODEL, origins=(PAGE,), authenticator=_NoKeys()) as served:
        client = await served.client()
        ask = post("/v1/chat/completions", b'{"model":"echo"}', f"Origin: {PAGE}")
        status, headers, _ = await client.ask(ask)
        assert (status, headers["access-control-allow-origin"]) == (401, PAGE)
