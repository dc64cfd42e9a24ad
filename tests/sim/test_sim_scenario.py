"""Scenario files: what they may say, and that a mistake names its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.core.batching.batcher import BatchSpec
from penstock.core.deployment.deployment import CopyRoute, EndpointRoutes, VariantRoutes
from penstock.core.request.admission import AdmissionSpec
from penstock.errors import CallerError
from penstock.sim.scenario import Scenario, VariantScenario, WorkerDeath, load_scenario
from penstock.sim.workload import ServiceSpec, WorkloadSpec

SMALL = """
about = "one copy"
seed = 1
length_s = 2

[[variants]]
name = "blue"

[workload]
arrivals = "poisson"
rate_rps = 10
"""


def load(tmp_path: Path, text: str) -> Scenario:
    path = tmp_path / "example.toml"
    path.write_text(text)
    return load_scenario(path)


def test_what_a_small_file_does_not_say_has_defaults(tmp_path: Path) -> None:
    assert load(tmp_path, SMALL) == Scenario(
        name="example",
        about="one copy",
        seed=1,
        length_s=2.0,
        variants=(VariantScenario(name="blue"),),
        batching=BatchSpec(),
        admission=AdmissionSpec(),
        workload=WorkloadSpec(arrivals="poisson", rate_rps=10.0),
        service=ServiceSpec(),
        faults=(),
    )


def test_every_table_is_read(tmp_path: Path) -> None:
    scenario = load(
        tmp_path,
        SMALL
        + """
rows = 2
deadline_s = [[0, 1], [0.5, 3]]

[batching]
rows_max = 4
queue_wait_s_max = 1
buckets = [16, 64]
latency_s_p99_max = 0.25
runs_measured = [[1, 16, 0.5], [4, 64, 2]]

[admission]
in_flight_max = 9
queue_wait_s_max = 0.5

[service]
base_s = 1

[[faults]]
at_s = 1
copy = 1
""",
    )
    assert scenario.batching == BatchSpec(
        rows_max=4,
        queue_wait_s_max=1.0,
        buckets=(16, 64),
        latency_s_p99_max=0.25,
        runs_measured=((1, 16, 0.5), (4, 64, 2.0)),
    )
    assert scenario.admission == AdmissionSpec(in_flight_max=9, queue_wait_s_max=0.5)
    assert scenario.service == ServiceSpec(base_s=1.0)
    assert scenario.faults == (WorkerDeath(at_s=1.0, copy=1, back_after_s=1.0),)
    assert scenario.workload.rows == ((2, 1.0),)
    assert scenario.workload.deadline_s == ((0, 1.0), (0.5, 3.0))


def test_copies_are_numbered_through_all_variants(tmp_path: Path) -> None:
    text = SMALL.replace(
        'name = "blue"',
        """name = "blue"
copies = 2

[[variants]]
name = "green"
weight = 3
strategy = "RANDOM"
outstanding_max = 5""",
    )
    assert load(tmp_path, text + "[batching]\nlanes = 2\n").routes() == EndpointRoutes(
        endpoint="example",
        variants=(
            VariantRoutes(
                name="blue",
                weight=1.0,
                strategy="LEAST_OUTSTANDING_REQUESTS",
                copies=(
                    CopyRoute(copy=1, instance_id="i-1", outstanding_max=2050),
                    CopyRoute(copy=2, instance_id="i-2", outstanding_max=2050),
                ),
                model={"lanes": 2},
            ),
            VariantRoutes(
                name="green",
                weight=3.0,
                strategy="RANDOM",
                copies=(CopyRoute(copy=3, instance_id="i-3", outstanding_max=5),),
                model={"lanes": 2},
            ),
        ),
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("seed = 1", "sed = 1"), "seed is None; It must be given. Is sed meant to be it?"),
        (
            ("seed = 1", "seed = 1\nsed = 1"),
            "unknown key sed; Did you mean seed? The keys here are",
        ),
        (("seed = 1", ""), "seed is None; It must be given."),
        (("seed = 1", 'seed = "1"'), "seed is '1'; It must be an integer."),
        (("seed = 1", "seed = true"), "seed is True; It must be an integer."),
        (("length_s = 2", "length_s = 0"), "length_s: not valid; allowed: more"),
        (('"poisson"', '"never"'), "workload.arrivals is 'never'; It must be one of 'poisson'"),
        (
            ("rate_rps = 10", "rows = [[1, 0]]"),
            "workload.rows is [[1, 0]]; It must be an integer, or a list of pairs of an integer",
        ),
        (("rate_rps = 10", "rows = []"), "workload.rows is []; It must be an integer, or a list"),
        (("rate_rps = 10", "rows = [[1]]"), "workload.rows is [[1]]; It must be an integer, or"),
        (("rate_rps = 10", "rows = [[1.5, 1]]"), "workload.rows is [[1.5, 1]]; It must be an"),
        (("rate_rps = 10", "rows = 2"), "workload.rows: not valid"),
        (("rate_rps = 10", "trace_s = [2, 1]"), "workload.trace_s: not valid"),
        (
            ("rate_rps = 10", "[batching]\nruns_measured = [[1, 2]]"),
            "batching.runs_measured[0] is [1, 2]; It must be a list of an integer, an integer, a",
        ),
        (
            ("rate_rps = 10", "[batching]\nruns_measured = [[1, 2, 'a']]"),
            "batching.runs_measured[0][2] is 'a'; It must be a number.",
        ),
        (("rate_rps = 10", "trace_s = 1"), "workload.trace_s is 1; It must be a list."),
        (
            ("rate_rps = 10", "cancel_fraction = 0.5"),
            "workload.cancel_after_s_mean: not valid; allowed: more than 0",
        ),
        (
            ('name = "blue"', 'name = "blue"\nstrategy = "FIRST"'),
            "variants[0].strategy is 'FIRST'; It must be one of 'RANDOM', 'LEAST",
        ),
        (
            ('name = "blue"', 'name = "blue"\nkinds = ["a", "b"]'),
            "variants.kinds: not valid; allowed: kinds and speeds one for each copy",
        ),
        (
            ('name = "blue"', 'name = "blue"\nspeeds = [0]'),
            "variants.speeds: not valid; allowed: above 0",
        ),
        (('name = "blue"', 'name = "blue"\ncopies = 0'), "variants: not valid"),
        (("[workload]", "[batching]\nlanes = 0\n[workload]"), "batching.lanes is 0; allowed: at"),
        (("[workload]", "batching = 1\n[workload]"), "unknown key variants[0].batching; The keys"),
        (("[[variants]]", "service = 1\n[[variants]]"), "service is 1; It must be a mapping."),
        (
            ("[workload]", "[[faults]]\nat_s = 1\ncopy = 2\n[workload]"),
            "faults.copy: not valid; allowed: 1 to 1",
        ),
        (
            ("[workload]", '[[faults]]\nat_s = 1\ncopy = 1\nkind = "flood"\n[workload]'),
            "faults[0].kind is 'flood'; It must be one of 'copy-lost', 'copy-hung'.",
        ),
        (
            ("[workload]", "[[faults]]\nat_s=1\ncopy=1\n[[faults]]\nat_s=2\ncopy=1\n[workload]"),
            "faults: a copy that is lost must be back before",
        ),
    ],
)
def test_a_mistake_names_its_place(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    with pytest.raises(CallerError) as caught:
        load(tmp_path, SMALL.replace(*change))
    assert caught.value.code == "invalid-scenario"
    assert f"{caught.value.message}; {caught.value.hint}".startswith(f"example.toml: {message}")


def test_a_file_that_is_not_toml_or_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CallerError, match=r"example\.toml"):
        load(tmp_path, "=")
    with pytest.raises(CallerError, match="No such file"):
        load_scenario(tmp_path / "none.toml")


def test_copies_have_kinds_and_speeds_by_number(tmp_path: Path) -> None:
    """Variants that name none are on one kind, as fast as the service times say."""
    text = SMALL.replace(
        'name = "blue"',
        'name = "blue"\ncopies = 2\nkinds = ["a", "b"]\nspeeds = [2, 0.5]\n'
        '[[variants]]\nname = "green"',
    )
    scenario = load(tmp_path, text)
    told = {one.copy: one.kind for each in scenario.routes().variants for one in each.copies}
    assert told == {1: "a", 2: "b", 3: ""}
    assert scenario.speeds() == {1: 2.0, 2: 0.5, 3: 1.0}
