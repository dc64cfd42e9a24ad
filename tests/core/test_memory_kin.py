"""What models of one kind took corrects what is expected of the next."""

from __future__ import annotations

from penstock.core.models.memory_need import KinMemory


def test_without_experience_the_rule_stands() -> None:
    assert KinMemory().corrected("openvino", 100) == 100


def test_of_models_of_about_one_size_the_largest_counts_with_a_tenth_of_headroom() -> None:
    kin = KinMemory()
    for peak in (150, 200, 120):
        kin.learn("openvino", estimated_bytes=100, peak_bytes=peak)
    assert (kin.corrected("openvino", 51), kin.corrected("openvino", 199)) == (220, 220)


def test_models_that_take_less_than_the_rule_says_make_room_for_more() -> None:
    kin = KinMemory()
    kin.learn("openvino", estimated_bytes=100, peak_bytes=20)
    assert kin.corrected("openvino", 100) == 22


def test_of_another_size_only_what_came_on_top_of_the_rule_is_expected() -> None:
    kin = KinMemory()
    kin.learn("openvino", estimated_bytes=10, peak_bytes=130)
    assert kin.corrected("openvino", 1000) == 1120
    assert kin.corrected("openvino", 20) == 140  # twice the size is another size


def test_a_model_of_another_size_is_never_expected_below_the_rule() -> None:
    kin = KinMemory()
    kin.learn("openvino", estimated_bytes=1000, peak_bytes=10)
    assert kin.corrected("openvino", 100) == 100


def test_one_kind_teaches_nothing_about_another() -> None:
    kin = KinMemory()
    kin.learn("openvino", estimated_bytes=100, peak_bytes=300)
    assert kin.corrected("python", 100) == 100


def test_what_was_long_ago_is_forgotten() -> None:
    kin = KinMemory()
    kin.learn("openvino", estimated_bytes=100, peak_bytes=700)
    for _ in range(16):
        kin.learn("openvino", estimated_bytes=100, peak_bytes=100)
    assert kin.corrected("openvino", 100) == 110


def test_what_a_model_of_the_very_size_keeps_is_known_and_of_another_is_not() -> None:
    kin = KinMemory()
    assert kin.kept("openvino", 100) is None
    kin.learn("openvino", estimated_bytes=100, peak_bytes=150, kept_bytes=90)
    kin.learn("openvino", estimated_bytes=100, peak_bytes=150, kept_bytes=80)
    assert kin.kept("openvino", 104) == 90
    assert kin.kept("openvino", 96) == 90
    assert kin.kept("openvino", 105) is None
    assert kin.kept("openvino", 95) is None
    assert kin.kept("onnxruntime", 100) is None


def test_what_was_known_is_forgotten_with_the_loads_that_told_it() -> None:
    kin = KinMemory()
    kin.learn("openvino", estimated_bytes=100, peak_bytes=150, kept_bytes=90)
    for _ in range(16):
        kin.learn("openvino", estimated_bytes=1000, peak_bytes=1500, kept_bytes=900)
    assert kin.kept("openvino", 100) is None
