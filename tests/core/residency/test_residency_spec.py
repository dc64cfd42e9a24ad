"""`core/residency/spec.py`: amounts of memory, and the settings that a host may have."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest
from tests.kit.core_residency import bytes_

from penstock.core.residency import NOTHING, Footprint, ResidencySpec
from penstock.errors import CallerError

# memory


def test_host_and_accelerator_are_added_and_subtracted_each_by_itself() -> None:
    assert bytes_(3, 5) + bytes_(1, 10) == bytes_(4, 15)
    assert bytes_(3, 5) - bytes_(1, 2) == bytes_(2, 3)


def test_a_difference_may_be_negative_because_it_is_a_balance() -> None:
    assert bytes_(3, 5) - bytes_(4, 7) == bytes_(-1, -2)


def test_an_amount_is_within_another_only_in_both_dimensions() -> None:
    assert bytes_(3, 4).within(bytes_(3, 4))
    assert bytes_(2, 3).within(bytes_(3, 4))
    assert not bytes_(4, 4).within(bytes_(3, 9))
    assert not bytes_(3, 5).within(bytes_(9, 4))


def test_the_larger_of_two_amounts_is_taken_in_each_dimension() -> None:
    assert bytes_(3, 5).at_least(bytes_(4, 2)) == bytes_(4, 5)
    assert bytes_(4, 2).at_least(bytes_(3, 5)) == bytes_(4, 5)


def test_nothing_is_no_byte_of_either_kind() -> None:
    assert Footprint(host_bytes=0, accelerator_bytes=0) == NOTHING


def test_an_amount_is_shown_with_its_unit() -> None:
    assert bytes_(3, 5).snapshot() == {"host_bytes": 3, "accelerator_bytes": 5}


def test_amounts_and_settings_do_not_change_once_they_are_made() -> None:
    with pytest.raises(FrozenInstanceError):
        bytes_(1).host_bytes = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        ResidencySpec(budget=bytes_(1)).loads_max = 3  # type: ignore[misc]


# settings


def test_only_a_budget_has_to_be_given() -> None:
    assert ResidencySpec(budget=bytes_(10)) == ResidencySpec(
        budget=bytes_(10),
        budget_running=None,  # while requests run, the same budget holds
        loads_max=2,
        keep=True,  # an idle model stays
        residency_s_min=None,  # follows from the time of its load
        failure_s=5.0,
        failure_s_max=300.0,
        crashes_max=3,
        quarantine_s=300.0,
        waiting_max=256,
        models_max=0,  # as many as memory holds
    )


def test_the_least_value_of_each_setting_is_accepted() -> None:
    least = ResidencySpec(
        budget=bytes_(1),
        budget_running=bytes_(1),
        loads_max=1,
        residency_s_min=0.0,
        failure_s=0.0,
        failure_s_max=0.0,
        crashes_max=1,
        quarantine_s=0.0,
        waiting_max=1,
        models_max=0,
    )
    assert (least.loads_max, least.crashes_max, least.waiting_max) == (1, 1, 1)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"loads_max": 0}, "loads_max 0: it is at least 1"),
        ({"residency_s_min": -0.1}, "residency_s_min -0.1: it is at least 0.0"),
        ({"failure_s": -0.1}, "failure_s -0.1: it is at least 0.0"),
        ({"failure_s": float("nan")}, "failure_s nan: it is at least 0.0"),
        ({"crashes_max": 0}, "crashes_max 0: it is at least 1"),
        ({"quarantine_s": -0.1}, "quarantine_s -0.1: it is at least 0.0"),
        ({"waiting_max": 0}, "waiting_max 0: it is at least 1"),
        ({"models_max": -1}, "models_max -1: it is at least 0"),
        ({"failure_s": 9.0, "failure_s_max": 8.0}, "failure_s_max 8.0 is below failure_s 9.0"),
        ({"budget": Footprint()}, "there must be memory"),
        ({"budget": bytes_(0, 5)}, "there must be memory"),
        ({"budget": bytes_(-1, 5)}, "there must be memory"),
        ({"budget": bytes_(10, -1)}, "there must be memory"),
        ({"budget_running": bytes_(9)}, "budget_running .* is below budget"),
        ({"budget": bytes_(5, 5), "budget_running": bytes_(9, 4)}, "budget_running .* is below"),
    ],
)
def test_a_spec_that_can_not_be_is_refused_with_what_is_wrong(
    wrong: dict[str, object], says: str
) -> None:
    with pytest.raises(CallerError, match=says) as caught:
        ResidencySpec(**({"budget": bytes_(10)} | wrong))  # type: ignore[arg-type]
    assert caught.value.code == "residency-spec"
