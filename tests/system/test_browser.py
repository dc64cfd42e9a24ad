"""A real browser against a server without credentials: what strangers' pages can make it do."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.kit import chromium
from tests.kit.chromium import BrowserPage
from tests.kit.http_servers import answering
from tests.kit.polling import wait_until
from tests.kit.python_models import python_model
from tests.kit.servers import Server, up

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(chromium.path() is None, reason="there is no Chromium"),
]

#: Both names lead to this machine, as a stranger's name server may say at any time.
FLAGS = ("--host-resolver-rules=MAP *.example 127.0.0.1",)

FORM = {
    "Action": "PutMetricData",
    "Version": "2010-08-01",
    "Namespace": "Stranger",
    "MetricData.member.1.MetricName": "x",
    "MetricData.member.1.Value": "1",
}

MODEL = """
    def model_fn(model_dir):
        return []

    def predict_fn(data, model):
        model.append(data)
        return len(model)
"""

CREATE = {
    "ModelName": "stranger",
    "PrimaryContainer": {"ModelDataUrl": "file:///tmp/stranger", "Image": "any"},
}


@pytest.fixture(scope="module")
def stranger_port() -> Iterator[int]:
    """An empty page, on a port of its own."""
    body = b"<!doctype html><title>stranger</title><iframe name=answer></iframe>"
    with answering(lambda seen: (200, {"content-type": "text/html"}, body)) as url:
        yield int(url.rpartition(":")[2])


@pytest.fixture(scope="module")
def browser() -> Iterator[BrowserPage]:
    with chromium.page(*FLAGS) as page:
        yield page


@pytest.fixture(scope="module")
def called(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], int]:
    """Calls the endpoint `called`, which answers how many calls it has had by then."""
    server.deploy("called", python_model(tmp_path_factory.mktemp("called") / "model", MODEL))
    return lambda: int(server.invoke("called", [1.0]))


def finished(page: BrowserPage, promise: str) -> object:
    """What the page's script gets: a value, or the text of its error."""
    page.value(
        f"window.done = null; ({promise}).then("
        "(got) => { window.done = [got]; }, (error) => { window.done = [String(error)]; }); null"
    )
    got = page.wait_for("window.done")
    return got[0]


def submit(page: BrowserPage, url: str) -> None:
    """Posts `FORM` into the page's frame, as a click on a button would."""
    page.value(
        "window.loads = 0;"
        "document.querySelector('iframe').addEventListener('load', () => { window.loads += 1; });"
        "(() => { const form = document.createElement('form');"
        f"form.action = {json.dumps(url)}; form.method = 'post'; form.target = 'answer';"
        f"for (const [name, value] of Object.entries({json.dumps(FORM)})) {{"
        "const field = document.createElement('input');"
        "field.name = name; field.value = value; form.append(field); }"
        "document.body.append(form); form.submit(); })(); null"
    )
    page.wait_for("window.loads > 0")


def namespaces(server: Server) -> set[str]:
    listed = server.client("cloudwatch").list_metrics()["Metrics"]
    return {metric["Namespace"] for metric in listed}


@pytest.mark.parametrize("name", ["page.example", "127.0.0.1", "localhost"])
def test_a_strangers_page_posts_nothing(
    server: Server, browser: BrowserPage, stranger_port: int, called: Callable[[], int], name: str
) -> None:
    """Neither by a form nor by a script, from another site or from another port of this one."""
    browser.open(f"http://{name}:{stranger_port}/")
    submit(browser, f"{server.url}/")
    assert "Stranger" not in namespaces(server)
    before = called()
    fetched = (
        f"fetch('{server.url}/endpoints/called/invocations',"
        " {method: 'POST', mode: 'no-cors', headers: {'content-type': 'text/plain'},"
        " body: '[1.0]'}).then((answer) => answer.type)"
    )
    assert finished(browser, fetched) == "opaque"
    assert called() == before + 1


def test_a_name_that_was_made_to_point_here_is_not_this_server(
    server: Server, browser: BrowserPage
) -> None:
    """The page then is of this server's own origin, and could read answers too."""
    browser.open(f"http://rebound.example:{server.port}/")
    asked = (
        "fetch('/', {method: 'POST', headers: {'content-type': 'application/x-amz-json-1.1',"
        f" 'x-amz-target': 'SageMaker.CreateModel'}}, body: JSON.stringify({json.dumps(CREATE)})"
        "}).then((answer) => answer.status)"
    )
    assert finished(browser, asked) == 421
    assert finished(browser, "fetch('/metrics').then((answer) => answer.status)") == 421
    assert server.client("sagemaker").list_models(NameContains="stranger")["Models"] == []


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_a_page_of_the_server_itself_may_call_it(
    server: Server, browser: BrowserPage, called: Callable[[], int], name: str
) -> None:
    browser.open(f"http://{name}:{server.port}/")
    asked = (
        "fetch('/endpoints/called/invocations', {method: 'POST', body: '[1.0]',"
        " headers: {'content-type': 'application/json'}}).then((answer) => answer.status)"
    )
    before = called()
    assert finished(browser, asked) == 200
    assert called() == before + 2


def test_a_link_that_a_person_follows_leads_here(
    server: Server, browser: BrowserPage, stranger_port: int
) -> None:
    browser.open(f"http://page.example:{stranger_port}/")
    browser.value(
        f"(() => {{ const link = document.createElement('a'); link.href = '{server.url}/metrics';"
        "document.body.append(link); setTimeout(() => link.click()); })(); null"
    )

    def followed() -> bool:
        try:
            history = browser.call("Page.getNavigationHistory")
        except AssertionError as refused:  # between the two pages there is none
            assert "Not attached to an active page" in str(refused)  # noqa: PT017
            return False
        return bool(history["entries"][history["currentIndex"]]["url"] == f"{server.url}/metrics")

    wait_until(followed, "the page behind the link", 60)
    browser.wait_for("document.readyState === 'complete'")
    assert "penstock" in browser.value("document.body.innerText")


def test_a_listed_page_reads_answers_and_errors_of_openais_door(
    browser: BrowserPage, stranger_port: int, tmp_path: Path
) -> None:
    """With the headers of OpenAI's client, for which the browser asks first."""
    listed = f"http://page.example:{stranger_port}"
    settings = tmp_path / "penstock.toml"
    settings.write_text(f'[listen]\norigins = ["{listed}"]\n')
    with up(tmp_path, "--config", str(settings)) as server:
        asked = (
            f"fetch('{server.url}/v1/chat/completions', {{method: 'POST', body: '{{}}', headers: {{"
            "'content-type': 'application/json', authorization: 'Bearer x', 'x-stainless-os': 'x'"
            "}}).then((answer) => answer.json().then((told) => "
            "[answer.status, told.error.code, !!answer.headers.get('x-request-id')]))"
        )
        browser.open(f"{listed}/")
        assert finished(browser, asked) == [400, "model_missing", True]
        versions = f"fetch('{server.url}/version').then((answer) => answer.status)"
        assert finished(browser, versions) == 200
        browser.open(f"http://other.example:{stranger_port}/")
        assert finished(browser, versions) == "TypeError: Failed to fetch"
