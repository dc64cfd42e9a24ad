"""`/metrics` of a server with several processes: of all, and of one that is named."""

from __future__ import annotations

import asyncio

import pytest
from tests.metrics.test_metrics_registry import answer

from penstock.errors import CallerError
from penstock.metrics.counts.registry import MetricRegistry
from penstock.metrics.page.pages import MetricPages
from penstock.metrics.page.prometheus import PrometheusPage

OF_ALL = PrometheusPage(MetricRegistry())


async def other(process: str, accept: str) -> tuple[bytes, str] | None:
    return None if process == "silent" else (process.encode(), accept)


def several() -> MetricPages:
    return MetricPages(OF_ALL, "control", names=lambda: ["gateway-1", "silent"], others=other)


def test_who_names_no_process_or_this_one_gets_the_sum() -> None:
    for process in ("", "control"):
        body, content_type = asyncio.run(several().render(process))
        assert b"penstock_build_info" in body
        assert content_type.startswith("text/plain")


def test_a_process_makes_its_own_page_in_the_format_that_was_asked_for() -> None:
    assert asyncio.run(several().render("gateway-1", "text/html")) == (b"gateway-1", "text/html")


@pytest.mark.parametrize("process", ["gateway-9", "silent", "../control"])
def test_a_process_that_is_not_there_or_silent_is_told_with_those_there_are(process: str) -> None:
    with pytest.raises(CallerError) as caught:
        asyncio.run(several().render(process))
    assert (caught.value.code, caught.value.status) == ("process-not-found", 404)
    assert caught.value.hint == "There are: control, gateway-1, silent."


def test_a_server_of_one_process_has_no_others() -> None:
    pages = MetricPages(OF_ALL, "gateway")
    assert asyncio.run(pages.render("gateway"))[0].startswith(b"#")
    with pytest.raises(CallerError):
        asyncio.run(pages.render("gateway-1"))


def test_rows_of_one_of_several_carry_its_name() -> None:
    registry = MetricRegistry()
    answer(registry.recorder("shop", "main"))
    registry.collect(1_700_000_000)
    page = PrometheusPage(registry, gateway="gateway-2").render()[0].decode()
    rows = [line for line in page.splitlines() if line.startswith("penstock_")]
    assert rows
    assert all('gateway="gateway-2"' in row for row in rows)
