"""Workloads: rates, phases, clients, mixes, and that a seed repeats all of them."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from penstock.sim.workload import Arrival, Workload, WorkloadSpec


def times(spec: WorkloadSpec, *, seed: int = 1, length_s: float = 100.0) -> list[float]:
    return list(Workload(spec, seed, length_s).open())


def test_poisson_arrivals_have_their_rate() -> None:
    at = times(WorkloadSpec(arrivals="poisson", rate_rps=100.0))
    assert 9700 < len(at) < 10300
    assert at == sorted(at)
    assert at[-1] < 100.0
    gaps = sorted(later - earlier for earlier, later in pairwise(at))
    # Exponential gaps: the median is ln 2 of the mean.
    assert 0.0065 < gaps[len(gaps) // 2] < 0.0074


def test_a_rate_of_zero_brings_nobody() -> None:
    assert times(WorkloadSpec(arrivals="poisson")) == []


def test_on_off_arrivals_come_in_bursts() -> None:
    spec = WorkloadSpec(
        arrivals="on-off", rate_rps=1000.0, rate_off_rps=10.0, on_s_mean=1.0, off_s_mean=1.0
    )
    per_second = Counter(int(at) for at in times(spec))
    assert 30_000 < sum(per_second.values()) < 70_000
    assert sum(1 for second in range(100) if per_second[second] < 100) > 10
    assert sum(1 for second in range(100) if per_second[second] > 900) > 10


def test_a_trace_is_repeated_until_the_end() -> None:
    spec = WorkloadSpec(arrivals="trace", trace_s=(0.0, 0.25, 0.25), trace_repeat_s=1.0)
    assert times(spec, length_s=2.25) == [0.0, 0.25, 0.25, 1.0, 1.25, 1.25, 2.0]


def test_a_trace_without_repetition_ends_by_itself() -> None:
    assert times(WorkloadSpec(arrivals="trace", trace_s=(0.0, 0.25))) == [0.0, 0.25]


def test_clients_of_a_closed_loop_think_and_come_again() -> None:
    spec = WorkloadSpec(arrivals="closed-loop", clients=3, think_s_mean=0.5)
    workload = Workload(spec, 1, 10.0)
    first = workload.first()
    assert len(first) == 3
    assert first == sorted(first)
    assert list(workload.open()) == []
    again = workload.again(5.0)
    assert again is not None
    assert again > 5.0
    assert workload.again(10.0) is None


def test_clients_that_do_not_think_come_again_at_once() -> None:
    workload = Workload(WorkloadSpec(arrivals="closed-loop", clients=2), 1, 10.0)
    assert workload.first() == [0.0, 0.0]
    assert workload.again(5.0) == 5.0


def test_an_open_loop_has_no_clients_that_come_again() -> None:
    workload = Workload(WorkloadSpec(arrivals="poisson", rate_rps=1.0), 1, 10.0)
    assert workload.first() == []
    assert workload.again(5.0) is None


def test_one_seed_gives_one_workload() -> None:
    spec = WorkloadSpec(arrivals="poisson", rate_rps=10.0, rows=((1, 0.5), (4, 0.5)))
    runs = [Workload(spec, seed, 10.0) for seed in (1, 1, 2)]
    arrivals = [[(at, run.sample()) for at in run.open()] for run in runs]
    assert arrivals[0] == arrivals[1]
    assert arrivals[0] != arrivals[2]


def test_requests_that_are_all_alike_are_one_object() -> None:
    workload = Workload(WorkloadSpec(arrivals="poisson"), 1, 1.0)
    assert workload.sample() is workload.sample()
    assert workload.sample() == Arrival(
        rows=1, length=0, priority=0, deadline_s=None, variant=None, cancel_after_s=None
    )


def test_mixes_have_their_weights() -> None:
    spec = WorkloadSpec(
        arrivals="poisson",
        rows=((1, 3.0), (4, 1.0)),
        length=((16, 1.0),),
        priority=((0, 1.0), (1, 1.0)),
        deadline_s=((0, 1.0), (0.5, 1.0)),
        variant=(("", 1.0), ("green", 1.0)),
        cancel_fraction=0.1,
        cancel_after_s_mean=0.2,
    )
    workload = Workload(spec, 1, 1.0)
    drawn = [workload.sample() for _ in range(10_000)]
    assert 7300 < sum(1 for arrival in drawn if arrival.rows == 1) < 7700
    assert {arrival.length for arrival in drawn} == {16}
    assert {arrival.deadline_s for arrival in drawn} == {None, 0.5}
    assert {arrival.variant for arrival in drawn} == {None, "green"}
    gone = [arrival.cancel_after_s for arrival in drawn if arrival.cancel_after_s is not None]
    assert 900 < len(gone) < 1100
    assert 0.17 < sum(gone) / len(gone) < 0.23


def test_prompts_share_a_prefix_and_nothing_else() -> None:
    spec = WorkloadSpec(
        arrivals="poisson",
        length=((8, 1.0),),
        answer_tokens=((8, 1.0), (512, 1.0)),
        prefixes=3,
        prefix_tokens=100,
        prefix_skew=1.0,
    )
    workload = Workload(spec, 1, 1.0)
    drawn = [workload.sample() for _ in range(6000)]
    counts = Counter(arrival.prefix for arrival in drawn)
    # 1 : 1/2 : 1/3
    assert 3100 < counts[0] < 3450
    assert 900 < counts[2] < 1250
    assert {arrival.answer_tokens for arrival in drawn} == {8, 512}
    first, second = next(a for a in drawn if a.prefix == 0), next(a for a in drawn if a.prefix == 1)
    texts = [workload.prompt(n, arrival) for n, arrival in ((1, first), (2, first), (3, second))]
    assert [len(text) for text in texts] == [432, 432, 432]
    assert texts[0][:400] == texts[1][:400] != texts[2][:400]
    assert texts[0][400:] != texts[1][400:]
