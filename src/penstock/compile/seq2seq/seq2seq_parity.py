"""Compares a compiled encoder-decoder model with its source: the same inputs, token by token.

Both generate answers of their own, with all inputs in one batch. Then both are fed the source's
answers, once alone and once in a batch, so that the logits of every token are compared.

Differences are counted in *spreads*: standard deviations of the source's logits at that step. A
softmax depends on nothing else, and a constant added to all logits has no effect. Feeding the
source's tokens to both (teacher forcing) keeps one early difference from spoiling all later steps.
The arithmetic on the two tables of logits is pure.

Users only see a different token. The source itself says how bad one is: by how much it prefers its
own token to ours (the *loss*). Where the source hardly decides, another token is no disagreement,
so agreement is counted where its first choice leads by at least half of the largest allowed loss.

The source also says how large a difference may be: it runs once more in the artifact's number
format (BF16, or with its weights rounded to INT8), and a correct artifact differs about as much. So
a model that amplifies rounding is not refused for that, and in any other model a wrong scale shows
up below any constant bound. A constant bounds the cost of the format itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from penstock.artifacts.description.description import ModelDescription
from penstock.clock import SystemClock
from penstock.compile import contract
from penstock.compile.contract import Tolerance
from penstock.compile.libraries import need
from penstock.compile.proof.proof import load_context
from penstock.runtimes.loader import load_seq2seq_model
from penstock.runtimes.openvino.runtime import ROUNDED_GROUP
from penstock.runtimes.processor import instruction_set_here
from penstock.runtimes.seq2seq.decoding import DecodeLoop, DecodingJob
from penstock.runtimes.seq2seq.model import Seq2SeqModel
from penstock.runtimes.seq2seq.request import GenerationRequest

Logits = Sequence[np.ndarray]  #: one array [steps, vocabulary] per answer

#: Bound of an artifact's mean difference over that of its format. Correct artifacts had 0.9 to 1.1
#: (T5, mT5, BART, mBART, Marian, t5-small), one with a single layer at twice its scale 2.2 to 25.
_MEAN_RATIO = 1.5
#: Bound of the largest loss, in root mean squares of the format's difference: correct artifacts
#: reach 6 over hundreds of steps with two rounded logits each.
_LOSS_RATIO = 8.0
_MEAN_SHARE = 1 / 6  #: mean difference over the caller's largest loss, as in `targets`
#: Differences below these are never an error: they are smaller than rounding.
_LEAST = Tolerance(difference_max=0.05, difference_mean=0.005, agreement_min=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenParity:
    """The artifact beside the source, over all steps of all answers."""

    steps: int
    agreement: float  #: share of equal tokens, over all steps
    agreement_decided: float | None  #: the same over steps that the source decides; None = none
    loss_max: float  #: in spreads; inf if a logit is not a number
    difference_mean: float  #: mean difference of logits, in spreads
    difference_rms: float


def compare_steps(reference: Logits, ours: Logits, *, margin: float) -> TokenParity:
    """`margin`: the source decides a step if its first choice leads by this many spreads."""
    errors, losses, decided, equal = [], [], [], []
    for theirs, mine in zip(reference, ours, strict=True):
        for step in range(len(theirs)):
            usable = np.isfinite(theirs[step])  # forbidden tokens are -inf in some families
            wanted = theirs[step][usable].astype(np.float64)
            given = mine[step][usable].astype(np.float64)
            spread = float(wanted.std()) or 1.0
            first, second = np.sort(np.partition(wanted, -2)[-2:])[::-1]
            if np.isfinite(given).all():
                error = (given - wanted) / spread
                errors.append(error - error.mean())
                chosen = int(given.argmax())
                losses.append((first - wanted[chosen]) / spread)
            else:  # no parity, whatever the other steps give
                errors.append(np.full_like(wanted, np.inf))
                chosen = -1
                losses.append(float("inf"))
            decided.append((first - second) / spread >= margin)
            equal.append(chosen == int(wanted.argmax()))
    if not errors:
        return TokenParity(
            steps=0, agreement=0.0, agreement_decided=None, loss_max=float("inf"),
            difference_mean=float("inf"), difference_rms=float("inf"),
        )  # fmt: skip
    flat, same, clear = np.concatenate(errors), np.array(equal), np.array(decided)
    return TokenParity(
        steps=len(losses),
        agreement=float(same.mean()),
        agreement_decided=float(same[clear].mean()) if clear.any() else None,
        loss_max=float(np.max(losses)),
        difference_mean=float(np.abs(flat).mean()),
        difference_rms=float(np.sqrt((flat**2).mean())),
    )


def tolerance_for(rounded: TokenParity, ceiling: Tolerance) -> Tolerance:
    """The tolerance of an artifact whose source differs by `rounded` in the artifact's format."""
    return Tolerance(
        difference_max=min(
            ceiling.difference_max,
            max(_LEAST.difference_max, _LOSS_RATIO * rounded.difference_rms),
        ),
        difference_mean=min(
            ceiling.difference_mean,
            max(_LEAST.difference_mean, _MEAN_RATIO * rounded.difference_mean),
        ),
        agreement_min=ceiling.agreement_min,
    )


def tolerance_asked(loss_max: float, ceiling: Tolerance) -> Tolerance:
    """The tolerance of a caller who gives the largest loss."""
    return Tolerance(
        difference_max=loss_max,
        difference_mean=loss_max * _MEAN_SHARE,
        agreement_min=ceiling.agreement_min,
    )


_RANDOM_LENGTHS = (1, 3, 9, 17, 40)
_TOKENS_NEW = 16

#: Explains the figures of `StepsCompared.record` in the report.
MEASURE = (
    "Every token of the source's answers, with the source's tokens fed to both. A spread is the "
    "standard deviation of the source's logits at a step. Largest: by how much the source prefers "
    "its own token to ours. Mean: of the logits' differences. Agreement: equal tokens, where the "
    "source's first choice leads by half of the largest loss allowed. The tolerance is derived "
    "from what the number format costs the source itself in PyTorch."
)


#: Most that a number format may cost, by precision. FP32 with another order of additions differs
#: by 1e-5. The others bound what users see; the tolerance of an artifact is mostly far
#: smaller: `tolerance_for`.
CEILINGS = {
    "f32": Tolerance(difference_max=1e-2, difference_mean=1e-3, agreement_min=1.0),
    "f16": Tolerance(difference_max=0.5, difference_mean=0.1, agreement_min=0.98),
    "bf16": Tolerance(difference_max=1.0, difference_mean=0.3, agreement_min=0.97),
    "int8": Tolerance(difference_max=1.0, difference_mean=0.3, agreement_min=0.95),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsCompared:
    """The artifact beside the source, both fed with the source's tokens."""

    forced: TokenParity
    tolerance: Tolerance
    format: TokenParity | None = field(default=None)  #: the source in the artifact's number format

    def record(self) -> contract.Parity:
        """The parity in the form of every compile's report."""
        return contract.Parity(
            unit="loss of a token, in spreads",
            samples=self.forced.steps,
            difference_max=self.forced.loss_max,
            difference_mean=self.forced.difference_mean,
            agreement=self.forced.agreement_decided,
            tolerance=self.tolerance,
            measure=MEASURE,
        )

    def notes(self, precision: str) -> list[str]:
        """What the number format costs the source itself, for people."""
        if self.format is None:
            return []
        return [
            f"in {precision.upper()} the source itself differs by "
            f"{self.format.difference_mean:.2g} spreads on average and writes "
            f"{self.format.agreement:.1%} of its tokens"
        ]


def judged(
    reference: Logits,
    ours: Sequence[Logits],
    *,
    precision: str,
    loss_max: float | None,
    rounded: Callable[[], Logits],
) -> StepsCompared:
    """
    Args:
        ours: the artifact's logits; several times, where it was run in several ways.
        loss_max: the caller's bound, instead of the one derived from the format's effect.
        rounded: runs the source in the artifact's number format. FP32 needs no such run.
    """
    tolerance, cost = CEILINGS[precision], None
    if precision != "f32":
        cost = compare_steps(reference, rounded(), margin=0.0)
        tolerance = tolerance_for(cost, CEILINGS[precision])
    if loss_max is not None:
        tolerance = tolerance_asked(loss_max, CEILINGS[precision])
    forced = compare_steps(
        [*reference] * len(ours), [*chain(*ours)], margin=tolerance.difference_max / 2
    )
    return StepsCompared(forced=forced, tolerance=tolerance, format=cost)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seq2SeqParity(StepsCompared):
    answers: int  #: number of answers compared
    same: int  #: answers that are equal in every token under greedy search
    token_agreement: float  #: tokens before an answer's first difference, as a share of all

    @property
    def agreement(self) -> float:
        return self.same / self.answers

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"agreement": self.agreement}


def compare(
    model: Any,
    folder: Path,
    description: ModelDescription,
    samples: list[str] | None,
    *,
    precision: str,
    loss_max: float | None = None,
) -> Seq2SeqParity:
    """Compares the two. It leaves `model` in the artifact's number format, since a copy of large
    weights would cost too much memory.

    `loss_max`: the caller's bound, instead of the one derived from the format's effect.
    """
    sources = _sources(folder, description, samples)
    generation = description.generation
    assert generation is not None
    wanted = [_reference(model, source) for source in sources]
    fed = [[generation.decoder_start_id, *answer[:-1]] for answer in wanted]
    reference = _forced_source(model, sources, fed)
    compiled = load_seq2seq_model(load_context(folder, description, 2.0))
    try:
        alone = [_forced(compiled, [at], [to])[0] for at, to in zip(sources, fed, strict=True)]
        mates: list[np.ndarray] = []
        for start in range(0, len(sources), compiled.rows_max):
            part = slice(start, start + compiled.rows_max)
            mates += _forced(compiled, sources[part], fed[part])
        given = generate(compiled, description, sources, GenerationRequest(
            max_new_tokens=_TOKENS_NEW))  # fmt: skip
    finally:
        compiled.close()

    def rounded() -> Logits:
        to_format(model, precision)
        return _forced_source(model, sources, fed)

    steps = judged(
        reference, [alone, mates], precision=precision, loss_max=loss_max, rounded=rounded
    )
    equal = [_equal_tokens(a, b) for a, b in zip(wanted, given, strict=True)]
    return Seq2SeqParity(
        forced=steps.forced,
        tolerance=steps.tolerance,
        format=steps.format,
        answers=len(sources),
        same=sum(a == b for a, b in zip(wanted, given, strict=True)),
        token_agreement=sum(equal) / max(1, sum(map(len, wanted))),
    )


def to_format(model: Any, precision: str) -> None:
    """Rounds the source like the artifact: to BF16, arithmetic included; or the weights to INT8,
    and their inputs if the runtime rounds those on this processor."""
    torch = need("torch")
    if precision in ("bf16", "f16"):  # FP16: programs for GPUs
        model.to(torch.bfloat16 if precision == "bf16" else torch.float16)
        return
    seen, rounds = set(), instruction_set_here().rounds_activations
    for module in model.modules():
        if not isinstance(module, torch.nn.Linear | torch.nn.Embedding):
            continue
        if rounds and isinstance(module, torch.nn.Linear):
            module.register_forward_pre_hook(_rounded_inputs)
        weight = module.weight.data
        if weight.data_ptr() in seen:  # tied to a weight that is rounded already
            continue
        seen.add(weight.data_ptr())
        scales = weight.abs().amax(dim=1, keepdim=True) / 127.0
        scales[scales == 0.0] = 1.0
        weight.copy_((weight / scales).round_().clamp_(-127, 127) * scales)


def _rounded_inputs(module: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """A layer's input in groups of `ROUNDED_GROUP`, each rounded to multiples of its largest
    magnitude / 127."""
    value, *others = inputs
    width = value.shape[-1]
    groups = value.reshape(-1, ROUNDED_GROUP if width % ROUNDED_GROUP == 0 else width)
    scales = groups.abs().amax(dim=1, keepdim=True) / 127.0
    scales[scales == 0.0] = 1.0
    return ((groups / scales).round() * scales).reshape(value.shape), *others


def generate(
    compiled: Seq2SeqModel,
    description: ModelDescription,
    sources: list[list[int]],
    request: GenerationRequest,
) -> list[list[int]]:
    """Token ids of every answer; all sources share the decode batch."""
    generation = description.generation
    assert generation is not None
    loop = DecodeLoop(
        compiled, SystemClock(), start_id=generation.decoder_start_id, eos_ids=generation.eos_ids
    )
    answers: dict[int, Any] = {}
    for at, source in enumerate(sources):
        loop.add(DecodingJob(source, request, partial(answers.__setitem__, at)))
    while loop.busy:
        loop.turn()
    for outcome in answers.values():
        if isinstance(outcome, Exception):
            raise outcome
    return [answers[at] for at in range(len(sources))]


def _sources(
    folder: Path, description: ModelDescription, samples: list[str] | None
) -> list[list[int]]:
    tokenizer = description.tokenizer
    assert tokenizer is not None
    import tokenizers  # noqa: PLC0415 - heavy

    reader = tokenizers.Tokenizer.from_file(str(folder / tokenizer.file))
    reader.enable_truncation(max_length=tokenizer.tokens_max)
    if samples:
        return [reader.encode(text).ids for text in samples]
    generation = description.generation
    assert generation is not None
    special = {tokenizer.pad_id, generation.decoder_start_id, *generation.eos_ids}
    largest = reader.get_vocab_size()
    ids = [each for each in range(largest) if each not in special] or [0]
    random = np.random.default_rng(0)
    lengths = [min(length, tokenizer.tokens_max) for length in _RANDOM_LENGTHS]
    return [random.choice(ids, length).tolist() for length in lengths for _ in range(2)]


def _reference(model: Any, source: list[int]) -> list[int]:
    """The greedy answer of `generate` of transformers, without the decoder's start token."""
    torch = need("torch")
    with torch.inference_mode():
        ids = model.generate(
            torch.tensor([source]), attention_mask=torch.ones(1, len(source), dtype=torch.long),
            max_new_tokens=_TOKENS_NEW, num_beams=1, do_sample=False, no_repeat_ngram_size=0,
            min_length=0, forced_bos_token_id=None, forced_eos_token_id=None,
        )  # fmt: skip
    return list(ids[0, 1:].tolist())


def _forced_source(model: Any, sources: list[list[int]], fed: list[list[int]]) -> list[np.ndarray]:
    """Logits [steps, vocabulary] of each source's answer, computed by the source."""
    torch = need("torch")
    with torch.inference_mode():
        return [
            model(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([tokens]))
            .logits[0]
            .float()
            .numpy()
            for source, tokens in zip(sources, fed, strict=True)
        ]


def _forced(
    compiled: Seq2SeqModel, sources: list[list[int]], fed: list[list[int]]
) -> list[np.ndarray]:
    """The same from the artifact, all sources in one batch; finished rows run on unused."""
    count = len(sources)
    compiled.prefill(sources, [(row,) for row in range(count)], 0)
    steps: list[list[np.ndarray]] = [[] for _ in sources]
    for at in range(max(map(len, fed))):
        for row, tokens in enumerate(fed):
            compiled.rows.ids[row] = tokens[min(at, len(tokens) - 1)]
        logits = compiled.step(count)
        for row, tokens in enumerate(fed):
            if at < len(tokens):
                steps[row].append(logits[row].copy())
    return [np.array(each) for each in steps]


def _equal_tokens(wanted: list[int], given: list[int]) -> int:
    """Number of equal tokens before the first difference."""
    for at, (one, other) in enumerate(zip(wanted, given, strict=False)):
        if one != other:
            return at
    return min(len(wanted), len(given))
