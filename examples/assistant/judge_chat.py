"""Compiles what `train_chat.py` made, measures it on held-out questions, writes `chat/`.

    PYTHONPATH=examples/assistant/pipeline/code \\
        python examples/assistant/judge_chat.py --source build/assistant-chat

Questions are phrased in ways, and about products, that training never met. The answers of the
served artifact (INT8 weights, the platform's engine) stand beside those of the FP32 source.
Figures go to `metrics.json` under "chat".
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from catalogue import make_catalogue
from dialogues import Dialogues, Scene, Turn
from files import keep, write_metrics
from judge import Verdict, judged
from served import Served
from tokenizers import Tokenizer
from tokens import END, PAD, rendered
from torch.nn import functional
from transformers import LlamaForCausalLM

HERE = Path(__file__).resolve().parent
QUESTIONS = 600
ROWS = 16
#: The run stops before anything is written when the shipped model is right less often than this.
RIGHT_MIN = 0.85
#: What of the compiled folder is kept.
KEPT = (
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
    "chat_template.jinja", "model.yaml", "openvino_model.xml", "openvino_model.bin",
)  # fmt: skip
_PACKAGES = ("torch", "transformers", "openvino", "openvino-genai", "tokenizers")
Asked = list[tuple[Scene, Turn]]


def main() -> None:
    arguments = _arguments()
    torch.set_num_threads(1)
    supply = Dialogues(make_catalogue(), "judge", held_out=True).scenes(1)
    asked = [(scene, scene.turns[0]) for scene in islice(supply, arguments.questions)]
    model = LlamaForCausalLM.from_pretrained(arguments.source, dtype=torch.float32).eval()
    tokenizer = Tokenizer.from_file(str(arguments.source / "tokenizer.json"))
    tokenizer.no_padding()
    with tempfile.TemporaryDirectory() as made:
        artifact = Path(made) / "chat"
        compile_artifact(arguments.source, artifact)
        shipped = served_answers(artifact, asked)
        exact = torch_answers(model, tokenizer, asked)
        trained = json.loads((arguments.source / "training.json").read_text(encoding="utf-8"))
        figures = {
            **trained,
            "questions": len(asked),
            "weights": sum(each.numel() for each in model.parameters()),
            "perplexity_fp32": round(perplexity(model, tokenizer, asked), 4),
            "int8 (shipped)": shares(asked, shipped),
            "fp32": shares(asked, exact),
            "same_answer_int8_fp32": round(
                sum(a == b for a, b in zip(shipped, exact, strict=True)) / len(asked), 4
            ),
            "by_intent_int8": by_intent(asked, shipped),
        }
        show_failures(asked, shipped)
        print(json.dumps(figures, indent=2))
        if figures["int8 (shipped)"]["right"] < RIGHT_MIN:
            raise SystemExit(f"less than {RIGHT_MIN} of the answers are right: nothing is written")
        figures["size_bytes"] = keep(artifact, arguments.out / "chat", KEPT)
    figures["versions"] = {
        "python": platform.python_version(), **{name: version(name) for name in _PACKAGES}
    }  # fmt: skip
    write_metrics(arguments.out / "metrics.json", "chat", figures)


def compile_artifact(source: Path, artifact: Path) -> None:
    command = [
        sys.executable, "-m", "penstock", "compile", str(source), "-o", str(artifact),
        "--target", "cpu-int8", "--name", "assistant-chat",
    ]  # fmt: skip
    subprocess.run(command, check=True)


def served_answers(artifact: Path, asked: Asked) -> list[str]:
    engine = Served(artifact)
    found: list[str] = []
    for start in range(0, len(asked), ROWS):
        part = asked[start : start + ROWS]
        found += engine.answers([scene.messages(turn) for scene, turn in part])
    return found


def torch_answers(model: Any, tokenizer: Tokenizer, asked: Asked) -> list[str]:
    """Greedy answers of transformers in FP32."""
    found: list[str] = []
    for start in range(0, len(asked), ROWS):
        prompts = [_prompt(tokenizer, *each) for each in asked[start : start + ROWS]]
        width = max(map(len, prompts))
        ids = torch.tensor([[PAD] * (width - len(each)) + each for each in prompts])
        mask = torch.tensor([[0] * (width - len(each)) + [1] * len(each) for each in prompts])
        with torch.inference_mode():
            written = model.generate(
                input_ids=ids, attention_mask=mask, do_sample=False, max_new_tokens=160,
                eos_token_id=END, pad_token_id=PAD,
            )  # fmt: skip
        for row in written[:, width:].tolist():
            end = row.index(END) if END in row else len(row)
            found.append(tokenizer.decode(row[:end]))
    return found


def perplexity(model: Any, tokenizer: Tokenizer, asked: Asked) -> float:
    """Of the good answers, by token."""
    total, count = 0.0, 0
    for scene, turn in asked[:200]:
        prompt = _prompt(tokenizer, scene, turn)
        answer = [*tokenizer.encode(turn.answer.text).ids, END]
        with torch.inference_mode():
            logits = model(input_ids=torch.tensor([prompt + answer])).logits[0]
        said = logits[len(prompt) - 1 : -1]
        total += float(functional.cross_entropy(said, torch.tensor(answer), reduction="sum"))
        count += len(answer)
    return math.exp(total / count)


def _prompt(tokenizer: Tokenizer, scene: Scene, turn: Turn) -> list[int]:
    ids: list[int] = tokenizer.encode(rendered(scene.messages(turn)) + "<|assistant|>").ids
    return ids


def shares(asked: Asked, answers: Sequence[str]) -> dict[str, float]:
    verdicts = _verdicts(asked, answers)
    parts = {
        "only_listed_names": [each.names for each in verdicts],
        "right_prices": [each.prices for each in verdicts],
        "right_ratings": [each.ratings for each in verdicts],
        "what_was_asked": [each.asked for each in verdicts],
        "right": [each.right for each in verdicts],
    }
    return {name: round(sum(found) / len(found), 4) for name, found in parts.items()}


def by_intent(asked: Asked, answers: Sequence[str]) -> dict[str, float]:
    right: Counter[str] = Counter()
    for (_, turn), verdict in zip(asked, _verdicts(asked, answers), strict=True):
        right[turn.intent] += verdict.right
    counts = Counter(turn.intent for _, turn in asked)
    return {intent: round(right[intent] / counts[intent], 3) for intent in sorted(counts)}


def _verdicts(asked: Asked, answers: Sequence[str]) -> list[Verdict]:
    return [judged(*each, answer) for each, answer in zip(asked, answers, strict=True)]


def show_failures(asked: Asked, answers: Sequence[str], count: int = 12) -> None:
    for (scene, turn), answer in zip(asked, answers, strict=True):
        verdict = judged(scene, turn, answer)
        if count and not verdict.right:
            count -= 1
            messages = scene.messages(turn)
            print("---", turn.intent, verdict)
            for message in (*messages, {"role": "said", "content": answer}):
                print(f"  {message['role']}: {message['content']}")
            print("  good:", turn.answer.text)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--source", type=Path, required=True, help="what train_chat.py wrote")
    parser.add_argument("--out", type=Path, default=HERE, help="where chat/ and figures go")
    parser.add_argument("--questions", type=int, default=QUESTIONS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
