"""The assistant's page in a real browser: what a person types, and what then stands there."""

from __future__ import annotations

import http.client
import importlib.util
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.kit import chromium
from tests.kit.polling import wait_until
from tools.free_port import free_port

for package in ("faiss", "bm25s", "openvino_genai"):
    pytest.importorskip(package, reason="the example's requirements are not installed")

from tests.examples.assistant_site import ASSISTANT, AssistantSite, scripted  # noqa: E402

pytestmark = [pytest.mark.system, pytest.mark.integration]
needs_chromium = pytest.mark.skipif(chromium.path() is None, reason="there is no Chromium")

QUESTION = "a red tent under $200"
FOCUSED = "document.activeElement.id === 'question'"
DONE = "document.querySelectorAll('.made').length === {}"


def page_module() -> Any:
    spec = importlib.util.spec_from_file_location("page", ASSISTANT / "web" / "server.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class ServedPage:
    """The page's server, in front of a platform."""

    def __init__(self, platform: str) -> None:
        self.server = page_module().serve(platform, 0)
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def post(self, body: bytes, headers: dict[str, str]) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("POST", "/ask", body, headers)
        status = connection.getresponse().status
        connection.close()
        return status

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AssistantSite]:
    folder = tmp_path_factory.mktemp("assistant_web")
    made = AssistantSite(folder, scripted(folder / "chat"), ASSISTANT / "embed")
    yield made
    made.close()


@pytest.fixture(scope="module")
def served(site: AssistantSite) -> Iterator[ServedPage]:
    made = ServedPage(site.server.url)
    yield made
    made.close()


@pytest.fixture
def page(served: ServedPage) -> Iterator[chromium.Page]:
    with chromium.page() as shown:
        shown.look(width=1000, height=900)
        shown.open(served.url)
        yield shown
        assert shown.errors == []


def ask(page: chromium.Page, question: str, answers: int = 1) -> None:
    """Types into the field that has the focus by itself, and waits for the answer's end."""
    page.wait_for(FOCUSED)
    page.type(question)
    page.press("Enter")
    page.wait_for(DONE.format(answers))


@needs_chromium
def test_cards_stand_behind_the_sentence_that_names_them(page: chromium.Page) -> None:
    ask(page, QUESTION)
    assert page.texts(".mine p") == [QUESTION]
    order = page.value("[...document.querySelector('.theirs').children].map((e) => e.className)")
    assert order == ["", "cards", "", "cards", "", "made"]
    first, second, last = page.texts(".theirs > p")
    names = page.texts(".card .name")
    assert first == f"Take the {names[0]}1."
    assert second == f"Or else the {names[1]}2 ."
    assert last.strip() == "Bye"


@needs_chromium
def test_a_card_has_price_stock_picture_and_link(page: chromium.Page) -> None:
    ask(page, QUESTION)
    assert [price[:1] for price in page.texts(".card .price")] == ["$", "$"]
    assert len(page.texts(".card .stock")) == 2
    page.wait_for("[...document.images].every((each) => each.complete && each.naturalWidth > 0)")
    links = page.value("[...document.querySelectorAll('.card')].map((each) => each.href)")
    assert ["/products/p" in link for link in links] == [True, True]
    assert page.count(".waiting") == 0


@needs_chromium
def test_text_streams_and_escape_ends_the_answer_everywhere(
    page: chromium.Page, site: AssistantSite
) -> None:
    page.wait_for(FOCUSED)
    page.type("an endless red tent")
    page.press("Enter")
    length = "(document.querySelector('.theirs p')?.textContent.length ?? 0)"
    seen = page.wait_for(f"{length} > 5 && {length}")
    page.wait_for(f"{length} > {seen + 50}")
    assert page.value("document.getElementById('stop').hidden") is False
    page.press("Escape")
    page.wait_for("document.querySelector('.notice')?.textContent === 'Stopped.'")
    wait_until(lambda: site.outstanding() == 0, "nothing is left", 60)
    ask(page, QUESTION)


@needs_chromium
def test_a_conversation_goes_on_about_what_was_named(page: chromium.Page) -> None:
    ask(page, QUESTION)
    ask(page, "Which of them is cheaper?", answers=2)
    names = page.texts(".card .name")
    assert names[:2] == names[2:]
    page.press("ArrowUp")
    assert page.value("document.getElementById('question').value") == "Which of them is cheaper?"


@needs_chromium
def test_a_dead_catalogue_is_told_and_the_text_is_whole(
    page: chromium.Page, site: AssistantSite
) -> None:
    site.catalogue.kill()
    try:
        ask(page, QUESTION)
        assert page.texts(".notice") == [
            "Prices, pictures and links are missing: the catalogue does not answer."
        ]
        assert "Bye" in " ".join(page.texts(".theirs > p"))
        assert page.texts(".card.missing .stock") == ["details are not there now"] * 2
    finally:
        site.catalogue.start()


@needs_chromium
def test_what_comes_from_outside_is_text_and_never_markup(page: chromium.Page) -> None:
    ask(page, "<img src=x onerror=document.title='x'> tent")
    assert page.texts(".mine p") == ["<img src=x onerror=document.title='x'> tent"]
    assert page.count(".mine img") == 0
    assert page.value("document.title") == "Shopping assistant"


@needs_chromium
def test_the_keyboard_reaches_examples_and_cards(page: chromium.Page) -> None:
    page.wait_for(FOCUSED)
    page.value("document.activeElement.blur()")
    for _ in range(20):
        page.press("Tab")
        if page.value("document.activeElement.closest('#examples') !== null"):
            break
    page.press("Enter")
    page.wait_for(DONE.format(1))
    page.wait_for(FOCUSED)
    assert page.value(
        "[...document.querySelectorAll('.mark')].every((each) => each.tabIndex === 0)"
    )


@needs_chromium
@pytest.mark.parametrize(("width", "dark"), [(1100, False), (1100, True), (360, False)])
def test_it_fits_wide_and_narrow_light_and_dark(
    page: chromium.Page, tmp_path: Path, width: int, dark: bool
) -> None:
    page.look(width=width, height=800, dark=dark)
    ask(page, QUESTION)
    assert page.value("document.documentElement.scrollWidth <= innerWidth")
    ground = page.value("getComputedStyle(document.body).backgroundColor")
    assert (sum(int(each) for each in ground[4:-1].split(",")) < 300) is dark
    page.picture(tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size > 10_000


@needs_chromium
def test_a_platform_that_is_gone_is_said_with_a_way_to_ask_again() -> None:
    lonely = ServedPage(f"http://127.0.0.1:{free_port()}")
    try:
        with chromium.page() as shown:
            shown.open(lonely.url)
            shown.wait_for(FOCUSED)
            shown.type(QUESTION)
            shown.press("Enter")
            shown.wait_for("document.querySelector('.failed button') !== null")
            [failed] = shown.texts(".failed")
            assert failed.startswith("There is no answer: the platform does not answer.")
    finally:
        lonely.close()


def test_pages_of_other_sites_and_other_names_get_nothing(served: ServedPage) -> None:
    body = json.dumps({"question": QUESTION}).encode()
    sent = {"content-type": "application/json"}
    assert served.post(body, sent) == 200
    assert served.post(body, {"content-type": "text/plain"}) == 404
    assert served.post(body, sent | {"host": "elsewhere.example"}) == 404
    assert served.post(b"[]", sent) == 400
    assert served.post(b"x" * 300_000, sent) == 413
