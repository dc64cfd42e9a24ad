"""Which candidate `--target auto` takes: literal figures, as a processor could show them."""

from __future__ import annotations

from penstock.compile.auto import CompileCandidate, Tried, candidates, choose

FP32 = CompileCandidate(target="cpu-fp32")
BF16 = CompileCandidate(target="cpu-bf16")
WEIGHTS = CompileCandidate(target="cpu-int8")
FULL = CompileCandidate(target="cpu-int8", activations=True)


def tried(
    candidate: CompileCandidate, speedup: float | None, mean: float, refused: str = ""
) -> Tried:
    return Tried(
        candidate=candidate, speedup=speedup, difference_mean=mean, difference_max=mean * 5,
        refused=refused,
    )  # fmt: skip


def chosen(*each: Tried) -> CompileCandidate | None:
    best = choose(each)
    return best.candidate if best is not None else None


def test_the_fastest_is_chosen() -> None:
    """With VNNI and AMX: INT8 arithmetic beats everything."""
    assert FULL is chosen(
        tried(FP32, 1.5, 0.0), tried(BF16, 4.0, 0.001), tried(WEIGHTS, 4.2, 0.002),
        tried(FULL, 6.0, 0.01),
    )  # fmt: skip


def test_a_tie_breaks_on_accuracy() -> None:
    """With AVX2 alone INT8 arithmetic gains nothing: FP32 is as fast, and exact."""
    assert FP32 is chosen(tried(FP32, 1.50, 0.0), tried(WEIGHTS, 1.52, 0.002))
    assert FP32 is chosen(tried(FP32, 1.52, 0.0), tried(FULL, 1.45, 0.01))


def test_what_is_refused_is_never_chosen_however_fast() -> None:
    fast = tried(FULL, 9.0, 0.2, refused="mean difference 0.2 (0.03 allowed)")
    assert chosen(tried(FP32, 1.5, 0.0), fast) is FP32
    assert chosen(fast) is None


def test_nothing_timed_is_a_tie_of_all() -> None:
    assert FP32 is chosen(tried(WEIGHTS, None, 0.002), tried(FP32, None, 0.0))


def test_equal_in_both_is_the_more_exact_format() -> None:
    assert FP32 is chosen(tried(FP32, 1.0, 0.0), tried(BF16, 1.0, 0.0))


def test_candidates_are_what_the_processor_and_the_caller_have() -> None:
    assert candidates(bf16=True, calibrated=True) == (FP32, BF16, WEIGHTS, FULL)
    assert candidates(bf16=False, calibrated=False) == (FP32, WEIGHTS)
