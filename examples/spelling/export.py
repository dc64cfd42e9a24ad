"""From the trained model to the artifact: Hugging Face's form, `penstock compile`, figures.

Serves `train.py`. The run fails before anything is written when the shipped artifact loses accuracy
against the model it was made of, or when batch mates change more than one answer in a hundred:
kernels round differently for one row and for many, and a tie is a tie.
"""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from classical import Classical
from decode import TOKENS_NEW_MAX, Corrector, correct
from judge import examples_of_failure, figures
from pairs import Corpus, Pair
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast, T5ForConditionalGeneration

from penstock.artifacts.description import model_yaml

TARGET = "cpu-int8"
#: Names of the ways to answer, in metrics.json.
EXACT, SHIPPED = "fp32", "int8 (shipped)"
EXACT_LOSS_MAX = 0.01
CLASSICAL_TEXTS = 200_000
TUNING_PAIRS = 2000
#: Kernels add up in another order for more rows, so an answer in the balance may tip; rarely.
MATES_QUERIES, MATES_CHANGED_MAX = 300, 0.01
PARITY_TEXTS = 100
Way = Callable[[list[str]], list[str]]
Sets = dict[str, tuple[Pair, ...]]
_PACKAGES = ("torch", "transformers", "openvino", "tokenizers", "symspellpy", "numpy")


def write_source(
    model: T5ForConditionalGeneration, tokenizer: Tokenizer, folder: Path, *, tokens_max: int
) -> None:
    """The model as a Hugging Face directory, which is what `penstock compile` reads."""
    model.generation_config.max_new_tokens = TOKENS_NEW_MAX
    model.save_pretrained(folder)
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="</s>",
        unk_token="<unk>",
        model_max_length=tokens_max,
    )
    wrapped.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)


def export_artifact(
    model: T5ForConditionalGeneration,
    tokenizer: Tokenizer,
    corpus: Corpus,
    *,
    out: Path,
    tokens_max: int,
    facts: dict[str, Any],
) -> None:
    """Writes `artifact/`, `metrics.json` and `config.json` (the shape, in Hugging Face's form)."""
    sets: Sets = {
        "held_out": corpus.held_out,
        "new_words": corpus.new_words,
        "handwritten": corpus.handwritten,
    }
    spellers = _classical(corpus)
    with tempfile.TemporaryDirectory() as made:
        source, artifact = Path(made) / "spelling", Path(made) / "artifact"
        write_source(model, tokenizer, source, tokens_max=tokens_max)
        _compile(source, artifact, tokens_max, Path(made) / "samples.txt", corpus)
        corrector = Corrector(artifact)
        ways: dict[str, Way] = {
            "unchanged": lambda texts: texts,
            **{f"symspell, {name}": _each(speller) for name, (_, speller) in spellers.items()},
            EXACT: lambda texts: correct(model, tokenizer, texts),
            SHIPPED: corrector.answers,
        }
        measured = _measured(ways, corrector, sets)
        _refuse_if_worse(measured)
        sizes = _install(artifact, out / "artifact")
        shutil.copy(source / "config.json", out / "config.json")
    read = [len(tokenizer.encode(pair.typed).ids) for pair in corpus.held_out]
    measured["tokens_mean"]["read"] = round(sum(read) / len(read), 1)
    metrics = {
        **facts,
        "queries": {name: len(pairs) for name, pairs in sets.items()},
        "words": len(corpus.known),
        "symspell_distance": {name: distance for name, (distance, _) in spellers.items()},
        **measured,
        "size_bytes": sizes,
        "versions": {"python": platform.python_version(), **{p: version(p) for p in _PACKAGES}},
    }
    text = json.dumps(metrics, indent=2, ensure_ascii=False)
    (out / "metrics.json").write_text(text + "\n", encoding="utf-8")
    print(f"shipped: {sizes}, {sum(sizes.values()):,} bytes in all")


def _measured(ways: dict[str, Way], corrector: Corrector, sets: Sets) -> dict[str, Any]:
    """Everything that depends on answers."""
    typed = {name: [pair.typed for pair in pairs] for name, pairs in sets.items()}
    answers = {way: {name: run(typed[name]) for name in sets} for way, run in ways.items()}
    results = {
        way: {name: figures(given[name], pairs) for name, pairs in sets.items()}
        for way, given in answers.items()
    }
    print(json.dumps(results, indent=1), flush=True)
    shipped = answers[SHIPPED]
    alike = zip(shipped["held_out"], answers[EXACT]["held_out"], strict=True)
    written = [len(tokens) for tokens in corrector.tokens(typed["held_out"])]
    return {
        "results": results,
        "int8_answers_as_fp32": round(sum(a == b for a, b in alike) / len(written), 4),
        "answers_changed_by_batch_mates": _changed_by_mates(
            corrector, sets["held_out"][:MATES_QUERIES]
        ),
        "tokens_mean": {"written": round(sum(written) / len(written), 1)},
        "failures": {
            name: examples_of_failure(shipped[name], pairs) for name, pairs in sets.items()
        },
    }


def _classical(corpus: Corpus) -> dict[str, tuple[int, Callable[[str], str]]]:
    """SymSpell with the vocabulary of the training queries, set up on training pairs."""
    texts = corpus.clean(CLASSICAL_TEXTS, "classical")
    return Classical(texts, corpus.known).best(corpus.training(-1, TUNING_PAIRS))


def _each(speller: Callable[[str], str]) -> Callable[[list[str]], list[str]]:
    return lambda texts: [speller(text) for text in texts]


def _compile(source: Path, out: Path, tokens_max: int, samples: Path, corpus: Corpus) -> None:
    texts = [pair.typed for pair in corpus.training(-2, PARITY_TEXTS)]
    samples.write_text("\n".join(texts) + "\n", encoding="utf-8")
    command = [
        *(sys.executable, "-m", "penstock", "compile", str(source), "--output", str(out)),
        *("--target", TARGET, "--name", "spelling", "--tokens-max", str(tokens_max)),
        *("--rows-max", "16", "--samples", str(samples), "--measure-s", "0"),
        # Wide: what counts are whole answers, on thousands of queries, see _refuse_if_worse.
        *("--tolerance", "1.0"),
    ]
    subprocess.run(command, check=True)


def _changed_by_mates(corrector: Corrector, pairs: Sequence[Pair]) -> int:
    """How many answers differ between a query alone and the same query in a full decode batch."""
    texts = [pair.typed for pair in pairs]
    alone = [corrector.answers([text])[0] for text in texts]
    return sum(a != b for a, b in zip(alone, corrector.answers(texts), strict=True))


def _refuse_if_worse(measured: dict[str, Any]) -> None:
    results, mates = measured["results"], measured["answers_changed_by_batch_mates"]
    loss = results[EXACT]["held_out"]["exact"] - results[SHIPPED]["held_out"]["exact"]
    if loss > EXACT_LOSS_MAX:
        raise SystemExit(f"{TARGET} loses {loss:.4f} of exact matches; {EXACT_LOSS_MAX} is allowed")
    if mates > MATES_QUERIES * MATES_CHANGED_MAX:
        raise SystemExit(f"batch mates changed {mates} of {MATES_QUERIES} answers")


def _install(made: Path, folder: Path) -> dict[str, int]:
    """Puts the artifact in its place; its files and their sizes."""
    description = model_yaml.load(made)
    assert description.generation is not None
    served = replace(
        description,
        threads_per_lane=1,  # steps are so short that a second thread costs more than it does
        generation=replace(description.generation, tokens_new_max=TOKENS_NEW_MAX),
    )
    (made / model_yaml.FILE_NAME).write_text(model_yaml.dump(served), encoding="utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(made, folder)
    return {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
