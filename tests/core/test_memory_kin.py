"""What models of one kind took corrects what is expected of the next."""

from __future__ import annotations

from penstock.core.memory_kin import KinMemory

MIB = 2**20


def test_without_experience_the_rule_stands() -> None:
    assert KinMemory().corrected("openvino", 100 * MIB) == 100 * MIB


def test_the_largest_of_the_last_loads_corrects_the_rule_with_a_tenth_of_headroom() -> None:
    kin = KinMemory()
    for peak in (150, 200, 120):
        kin.learn("openvino", estimated_bytes=100 * MIB, peak_bytes=peak * MIB)
    assert kin.corrected("openvino", 10 * MIB) == 22 * MIB


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


def test_a_correction_has_bounds() -> None:
    kin = KinMemory()
    kin.learn("tiny", estimated_bytes=1, peak_bytes=1000)
    kin.learn("none", estimated_bytes=1000, peak_bytes=0)
    assert (kin.corrected("tiny", 100), kin.corrected("none", 100)) == (800, 25)


def test_a_rule_that_expects_nothing_is_not_corrected() -> None:
    kin = KinMemory()
    kin.learn("process", estimated_bytes=0, peak_bytes=10)
    assert kin.corrected("process", 7) == 7
