"""Service times: affine in rows and padded tokens, noise of mean 1."""

from __future__ import annotations

from penstock.sim.workload import ServiceSpec, ServiceTimes


def test_a_constant_service_time_ignores_rows_and_seed() -> None:
    service = ServiceTimes(ServiceSpec(base_s=0.25), 1)
    assert [service.run_s(rows, 0) for rows in (1, 8)] == [0.25, 0.25]


def test_rows_and_tokens_of_the_bucket_cost_time() -> None:
    service = ServiceTimes(ServiceSpec(base_s=1.0, row_s=0.5, token_s=0.25), 1)
    assert service.run_s(1, 0) == 1.5
    assert service.run_s(4, 8) == 1.0 + 4 * (0.5 + 8 * 0.25)


def test_noise_is_lognormal_and_keeps_the_mean() -> None:
    service = ServiceTimes(ServiceSpec(base_s=2.0, sigma=0.5), 1)
    drawn = sorted(service.run_s(1, 0) for _ in range(20_000))
    assert 1.97 < sum(drawn) / len(drawn) < 2.03
    # The median of a lognormal of mean 1 and sigma 0.5 is exp(-0.125).
    assert 1.74 < drawn[10_000] < 1.79


def test_one_seed_gives_one_sequence() -> None:
    spec = ServiceSpec(base_s=1.0, sigma=1.0)
    runs = [ServiceTimes(spec, seed) for seed in (1, 1, 2)]
    drawn = [[run.run_s(1, 0) for _ in range(5)] for run in runs]
    assert drawn[0] == drawn[1]
    assert drawn[0] != drawn[2]


def test_measured_runs_stand_in_for_the_formula() -> None:
    """Between two sizes in proportion, beyond the last at its time per row."""
    spec = ServiceSpec(measured=((2, 16, 1.0), (4, 16, 2.0), (2, 64, 3.0)))
    service = ServiceTimes(spec, 1)
    assert [service.run_s(rows, 16) for rows in (1, 2, 3, 4, 8)] == [1.0, 1.0, 1.5, 2.0, 4.0]
    assert [service.run_s(2, bucket) for bucket in (0, 16, 17, 999)] == [1.0, 1.0, 3.0, 3.0]


def test_the_first_run_of_a_size_may_take_a_time_of_its_own() -> None:
    service = ServiceTimes(ServiceSpec(base_s=1.0, first_runs=((2, 9.0), (4, 5.0))), 1)
    assert [service.run_s(rows, 0) for rows in (1, 2, 2, 3, 4, 4)] == [
        1.0, 9.0, 1.0, 1.0, 5.0, 1.0
    ]  # fmt: skip


def test_measured_noise_is_drawn_as_it_was() -> None:
    service = ServiceTimes(ServiceSpec(base_s=2.0, noise=(0.5, 1.5)), 1)
    assert {service.run_s(1, 0) for _ in range(50)} == {1.0, 3.0}
