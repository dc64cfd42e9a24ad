"""What a request for metrics would cost is known before it begins: beyond the bound it is refused
before the work, and what is large takes turns beside everybody else."""

from __future__ import annotations

import asyncio
import tracemalloc
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.api.test_cloudwatch_operations import DAY_S, T0, OperationsContext

from penstock.api.cloudwatch import get_metric_data as module
from penstock.api.cloudwatch import queries as large
from penstock.api.cloudwatch.operations import OPERATIONS
from penstock.metrics.series.reading import read_statistic
from penstock.metrics.series.series import metric_key
from penstock.metrics.series.statistics import StatisticSet
from penstock.wire.aws.errors import AwsError

METRICS = 200


@pytest.fixture
def context() -> OperationsContext:
    """200 metrics, one datapoint each."""
    made = OperationsContext()
    for number in range(METRICS):
        fill(made, f"M{number}", 1)
    return made


def fill(context: OperationsContext, name: str, minutes: int) -> None:
    for minute in range(minutes):
        context.store.put(
            metric_key("Shop", name, {}), T0 - 60 * minute, StatisticSet.of(1.0), now=T0
        )


def query(number: int) -> dict[str, Any]:
    metric = {"Namespace": "Shop", "MetricName": f"M{number}"}
    stat = {"Metric": metric, "Period": 60, "Stat": "Sum"}
    return {"Id": f"m{number}", "MetricStat": stat, "ReturnData": False}


async def ask(
    context: OperationsContext, *formulas: str, days: float = 69.0, metrics: int = METRICS
) -> Any:
    queries = [query(number) for number in range(metrics)]
    queries += [{"Id": f"e{n}", "Expression": text} for n, text in enumerate(formulas)]
    return await OPERATIONS["GetMetricData"](
        context,
        {
            "MetricDataQueries": queries,
            "StartTime": datetime.fromtimestamp(T0 - days * DAY_S, UTC),
            "EndTime": datetime.fromtimestamp(T0 + 60, UTC),
        },
    )


async def refused(*args: Any, **kwargs: Any) -> str:
    with pytest.raises(AwsError) as caught:
        await ask(*args, **kwargs)
    assert caught.value.code == "ValidationError"
    return str(caught.value)


@pytest.mark.parametrize(
    "formula", ["FILL(METRICS(), 0)", "SUM(FILL(METRICS(), REPEAT))", "STDDEV(FILL(METRICS(), 0))"]
)
def test_filling_too_much_is_refused_before_a_datapoint_is_read(
    context: OperationsContext, formula: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = []

    async def read(*args: Any, **kwargs: Any) -> Any:
        reads.append(args)
        return await read_statistic(*args, **kwargs)

    monkeypatch.setattr(module, "read_statistic", read)
    tracemalloc.start()
    try:
        told = asyncio.run(refused(context, formula))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "The request computes more than 1,000,000 datapoints. Ask for fewer" in told
    assert (reads, peak < 100 * 1024 * 1024) == ([], True)


def test_reading_too_much_is_refused_before_a_datapoint_is_read(
    context: OperationsContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "POINTS_READ_MAX", 800)
    monkeypatch.delattr(module, "read_statistic")
    fill(context, "M7", 802)
    told = asyncio.run(refused(context, "m7", days=10.0))
    assert "The request reads 802 datapoints at once, more than 800." in told
    spread = query(7) | {"Id": "p", "ReturnData": True}
    spread["MetricStat"] = spread["MetricStat"] | {"Stat": "p99"}  # each is unpacked
    with pytest.raises(AwsError, match="reads 3,208 datapoints at once"):
        asyncio.run(
            OPERATIONS["GetMetricData"](
                context,
                {
                    "MetricDataQueries": [spread],
                    "StartTime": datetime.fromtimestamp(T0 - 10 * DAY_S, UTC),
                    "EndTime": datetime.fromtimestamp(T0 + 60, UTC),
                },
            )
        )


def test_nested_reductions_are_refused_before_a_datapoint_is_read(
    context: OperationsContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(module, "read_statistic")
    for number in range(METRICS):
        fill(context, f"M{number}", 100)
    nested = "STDDEV([STDDEV(METRICS()), STDDEV(METRICS() * 2), STDDEV([m1, m2])])"
    told = asyncio.run(refused(context, *[nested] * 30, days=1.0))
    assert "The request computes more than 1,000,000 datapoints" in told


def test_what_nothing_is_read_for_may_still_depend_on_what_is_there(
    context: OperationsContext,
) -> None:
    """Over no datapoint this formula is a number, which would be refused."""
    answer = asyncio.run(ask(context, "IF(SUM(m1) > 0, m1, 0)", days=10.0))
    (result,) = answer["MetricDataResults"]
    assert result["Values"] == [1.0]


async def test_small_requests_never_wait_for_large_ones(
    context: OperationsContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight large ones begin first, and their thread stands still: plain and small ones go by."""
    go = asyncio.Event()
    beside = large.beside

    async def held(work: Any, *, large: bool) -> Any:
        if large:
            await go.wait()
        return await beside(work, large=large)

    monkeypatch.setattr(module, "beside", held)
    monkeypatch.setattr(module, "SMALL_MAX", METRICS)
    waiting = [asyncio.create_task(ask(context, "SUM(METRICS())", days=10.0)) for _ in range(8)]
    await asyncio.sleep(0)
    for formulas in ((), ("m1 + m2",)):
        answer = await ask(context, *formulas, "m1", days=0.05, metrics=3)
        assert answer["MetricDataResults"][-1]["Values"] == [1.0]
    assert not any(one.done() for one in waiting)
    go.set()
    for answer in await asyncio.gather(*waiting):
        assert answer["MetricDataResults"][0]["Values"] == [float(METRICS)]


def test_large_ones_take_turns(context: OperationsContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """What they hold in memory is held once."""
    running = most = 0
    fetch = module._MetricReader._fetch

    async def counted(reader: Any, *args: Any) -> Any:
        nonlocal running, most
        running += 1
        most = max(most, running)
        found = await fetch(reader, *args)
        running -= 1
        return found

    monkeypatch.setattr(module._MetricReader, "_fetch", counted)
    monkeypatch.setattr(module, "SMALL_MAX", METRICS)

    async def story() -> None:
        await asyncio.gather(*(ask(context, "SUM(METRICS())", days=10.0) for _ in range(4)))

    asyncio.run(story())
    assert most == 1


def pages_of(context: OperationsContext, queries: list[dict[str, Any]]) -> list[Any]:
    """All pages of the last ten days, the results of each."""
    pages: list[Any] = []
    params = {
        "MetricDataQueries": queries,
        "StartTime": datetime.fromtimestamp(T0 - 10 * DAY_S, UTC),
        "EndTime": datetime.fromtimestamp(T0 + 60, UTC),
    }
    while True:
        answer = asyncio.run(OPERATIONS["GetMetricData"](context, params))
        pages.append(answer["MetricDataResults"])
        if "NextToken" not in answer:
            return pages
        params["NextToken"] = answer["NextToken"]


def test_what_is_too_much_for_one_page_comes_in_several(
    context: OperationsContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred metrics of a week are no abuse; nothing is read twice on the way."""
    monkeypatch.setattr(module, "POINTS_READ_MAX", 1_000)
    for number in range(4):
        fill(context, f"M{number}", 400)
    reads: list[str] = []

    async def read(store: Any, metric: Any, *args: Any, **kwargs: Any) -> Any:
        reads.append(metric.name)
        return await read_statistic(store, metric, *args, **kwargs)

    monkeypatch.setattr(module, "read_statistic", read)
    pages = pages_of(context, [query(number) | {"ReturnData": True} for number in range(4)])
    shown = [[(one["Id"], len(one["Values"])) for one in page] for page in pages]
    assert shown == [[("m0", 400), ("m1", 400)], [("m2", 400), ("m3", 400)]]
    assert reads == ["M0", "M1", "M2", "M3"]


def test_a_page_reads_no_more_than_it_shows(
    context: OperationsContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "DATAPOINTS_MAX", 600)
    for number in range(4):
        fill(context, f"M{number}", 400)
    pages = pages_of(context, [query(number) | {"ReturnData": True} for number in range(4)])
    shown = [[(one["Id"], len(one["Values"]), one["StatusCode"]) for one in page] for page in pages]
    assert shown == [
        [("m0", 400, "Complete"), ("m1", 200, "PartialData")],
        [("m1", 200, "Complete"), ("m2", 400, "Complete")],
        [("m3", 400, "Complete")],
    ]


def test_formulas_are_whole_whatever_comes_in_pages_beside_them(
    context: OperationsContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "POINTS_READ_MAX", 1_000)
    for number in range(5):
        fill(context, f"M{number}", 400)
    queries = [query(number) | {"ReturnData": True} for number in range(5)]
    queries.insert(3, {"Id": "e", "Expression": "m0 + m3"})
    pages = pages_of(context, queries)
    shown = [[(one["Id"], len(one["Values"])) for one in page] for page in pages]
    assert shown == [
        [("m0", 400), ("m1", 400), ("m2", 400), ("e", 400), ("m3", 400)],
        [("m4", 400)],
    ]
    with pytest.raises(AwsError, match="reads 2,000 datapoints at once, more than 1,000"):
        pages_of(context, [*queries, {"Id": "all", "Expression": "SUM(METRICS())"}])
