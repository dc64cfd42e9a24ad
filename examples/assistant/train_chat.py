"""Trains the shop's language model, a small Llama, and writes its Hugging Face directory.

    PYTHONPATH=examples/assistant/pipeline/code \\
        python examples/assistant/train_chat.py --source build/assistant-chat

Dialogues are made as they are needed, none is seen twice; the tokenizer is learned from the first
of them. About 20 minutes on one free CPU core with BF16 instructions. `judge_chat.py` compiles what
comes out and measures it. `--checkpoint FILE` with `--seconds N` trains in parts.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from branches import Batch, Read, read
from catalogue import make_catalogue
from dialogues import Dialogues, Scene, Turn
from prompt import product_line
from tokenizers import Tokenizer
from tokens import END, PAD, rendered, train_tokenizer, write_tokenizer
from torch import Tensor
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM

SEED = 7
STEPS = 1900
SCENES, TURNS = 4, 4  #: of a step
SCENES_PER_GROUP = 128  # made at once and sorted by length
SAVE_STEPS = 200
TOKENIZER_SCENES = 3000
#: Muon turns each matrix's gradient into equal steps in all directions; embeddings and norms take
#: AdamW.
RATE_MAX, EMBEDDING_RATE_MAX = 2e-3, 3e-3
#: (share of all steps, share of the highest rate), straight lines between.
RATE_POINTS = ((0.0, 0.0), (0.03, 1.0), (0.5, 1.0), (1.0, 0.0))
TOKENS_MAX = 1024
#: Heads of this layer are shown where in the products' lines the next word of the answer stands.
HINT_LAYER, HINT_HEADS, HINT_WEIGHT = 3, 2, 0.3


def config_of(vocabulary: int) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=256,
        intermediate_size=704,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=TOKENS_MAX,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        pad_token_id=PAD,
        bos_token_id=None,
        eos_token_id=END,
    )


def main() -> None:
    arguments = _arguments()
    torch.manual_seed(arguments.seed)
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    tokenizer = _tokenizer(arguments)
    model = LlamaForCausalLM(config_of(tokenizer.get_vocab_size()))
    training = Training(model, tokenizer, arguments)
    done = training.run()
    write_source(model, tokenizer, arguments.source)
    told = {"seed": arguments.seed, "steps": training.step, "training_s": round(training.spent_s)}
    (arguments.source / "training.json").write_text(json.dumps(told), encoding="utf-8")
    if not done:
        print(f"stopped after {training.step} of {arguments.steps} steps")


def _tokenizer(arguments: argparse.Namespace) -> Tokenizer:
    """Learned from dialogues, or that of the run which goes on."""
    path = arguments.checkpoint
    if path is not None and path.exists():
        return Tokenizer.from_str(torch.load(path, weights_only=True)["tokenizer"])
    supply = Dialogues(make_catalogue(), f"tokenizer {arguments.seed}")
    first = islice(supply.scenes(), TOKENIZER_SCENES)
    return train_tokenizer(text for scene in first for text in _texts(scene))


def write_source(model: LlamaForCausalLM, tokenizer: Tokenizer, folder: Path) -> None:
    """The model as a Hugging Face directory, which is what `penstock compile` reads."""
    defaults = model.generation_config
    defaults.max_new_tokens = 160
    # What a request gets that names no temperature: at 1 a small model invents prices.
    defaults.do_sample, defaults.temperature, defaults.top_p = True, 0.1, 0.9
    model.save_pretrained(folder)
    write_tokenizer(tokenizer, folder, tokens_max=TOKENS_MAX)


class Training:
    """Muon and AdamW with warm-up, plateau and decay; every step has dialogues of its own."""

    def __init__(
        self, model: LlamaForCausalLM, tokenizer: Tokenizer, arguments: argparse.Namespace
    ) -> None:
        self._model, self._tokenizer, self._arguments = model, tokenizer, arguments
        matrices = [p for name, p in model.named_parameters() if "proj" in name]
        others = [p for name, p in model.named_parameters() if "proj" not in name]
        self._optimizers = (
            torch.optim.Muon(matrices, lr=RATE_MAX, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(others, lr=EMBEDDING_RATE_MAX, betas=(0.9, 0.98), weight_decay=0.0),
        )
        half = arguments.precision == "bf16"
        #: what runs forward and backward: the weights rounded, with gradients of its own
        self._twin = copy.deepcopy(model).to(torch.bfloat16) if half else model
        if half:  # rounded rates would turn far places by wrong angles
            self._twin.model.rotary_emb.inv_freq = model.model.rotary_emb.inv_freq.clone()
        self._catalogue = make_catalogue()
        self._group = -1
        self._batches: list[list[Scene]] = []
        self.step = 0
        self.spent_s = 0.0
        path = arguments.checkpoint
        if path is not None and path.exists():
            state = torch.load(path, weights_only=True)
            model.load_state_dict(state["model"])
            for optimizer, kept in zip(self._optimizers, state["optimizers"], strict=True):
                optimizer.load_state_dict(kept)
            self.step, self.spent_s = state["step"], state["spent_s"]
        self._round()

    def run(self) -> bool:
        """Returns whether all steps are done; the model is left ready to answer."""
        begun = time.monotonic()
        losses: list[tuple[float, float]] = []
        while (
            self.step < self._arguments.steps and time.monotonic() - begun < self._arguments.seconds
        ):
            losses.append(self._one_step())
            if self.step % 50 == 0:
                loss, look = np.mean(losses[-50:], axis=0)
                spent = self.spent_s + time.monotonic() - begun
                print(
                    f"step {self.step}: loss {loss:.4f}, look {look:.3f}, {spent:.0f} s", flush=True
                )
            if self.step % SAVE_STEPS == 0:
                self._save(self.spent_s + time.monotonic() - begun)
        self.spent_s += time.monotonic() - begun
        self._save(self.spent_s)
        self._model.eval()
        return bool(self.step == self._arguments.steps)

    def _save(self, spent_s: float) -> None:
        if self._arguments.checkpoint is None:
            return
        state = {
            "tokenizer": self._tokenizer.to_str(),
            "model": self._model.state_dict(),
            "optimizers": [each.state_dict() for each in self._optimizers],
            "step": self.step,
            "spent_s": spent_s,
        }
        path = self._arguments.checkpoint
        torch.save(state, path.with_suffix(".new"))
        path.with_suffix(".new").replace(path)
        write_source(self._model, self._tokenizer, self._arguments.source)

    def _one_step(self) -> tuple[float, float]:
        done = self.step / self._arguments.steps
        share = max(float(np.interp(done, *zip(*RATE_POINTS, strict=True))), 1e-3)
        for optimizer, rate in zip(self._optimizers, (RATE_MAX, EMBEDDING_RATE_MAX), strict=True):
            for group in optimizer.param_groups:
                group["lr"] = share * rate
        batch = batch_of(self._tokenizer, self._scenes())
        self._twin.zero_grad(set_to_none=True)
        loss, look = self._loss(batch)
        (loss + HINT_WEIGHT * look).backward()
        for exact, rounded in self._both():
            exact.grad = None if rounded.grad is None else rounded.grad.float()
        torch.nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
        for optimizer in self._optimizers:
            optimizer.step()
        self._round()
        self.step += 1
        return float(loss.detach()), float(look.detach())

    def _both(self) -> Iterator[tuple[Tensor, Tensor]]:
        return zip(self._model.parameters(), self._twin.parameters(), strict=True)

    @torch.no_grad()
    def _round(self) -> None:
        for exact, rounded in self._both():
            rounded.copy_(exact)

    def _loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Of the answers' tokens, and of where the hinted heads look."""
        seen: Read = read(self._twin, batch, layer_shown=HINT_LAYER)
        kept = batch.labels >= 0
        logits = functional.linear(seen.hidden[kept], self._twin.model.embed_tokens.weight)
        loss = functional.cross_entropy(logits.float(), batch.labels[kept])
        row, branch, at = (batch.places >= 0).nonzero(as_tuple=True)
        looked = seen.looked[row, :HINT_HEADS, branch, at, batch.places[row, branch, at]].float()
        return loss, -torch.log(looked.mean(dim=1) + 1e-4).mean()

    def _scenes(self) -> list[Scene]:
        """Scenes of like length, so that little is padding; the batches come in random order."""
        group, at = divmod(self.step, SCENES_PER_GROUP // SCENES)
        if group != self._group:
            supply = Dialogues(self._catalogue, f"training {self._arguments.seed} {group}")
            scenes = list(islice(supply.scenes(TURNS), SCENES_PER_GROUP))
            scenes.sort(key=_size)
            starts = range(0, len(scenes), SCENES)
            self._batches = [scenes[start : start + SCENES] for start in starts]
            random.Random(group).shuffle(self._batches)
            self._group = group
        return self._batches[at]


def _size(scene: Scene) -> int:
    return max(
        sum(len(each["content"]) for each in turn.history) + len(turn.answer.text)
        for turn in scene.turns
    )


def _texts(scene: Scene) -> Iterator[str]:
    for turn in scene.turns:
        for message in scene.messages(turn):
            yield message["content"]
        yield turn.answer.text


@dataclass(frozen=True, slots=True)
class Branch:
    ids: list[int]
    labels: list[int]
    places: list[int]


def batch_of(tokenizer: Tokenizer, scenes: list[Scene]) -> Batch:
    begins, branches = [], []
    for scene in scenes:
        begin = rendered(scene.messages(scene.turns[0])[:1])
        encoded = tokenizer.encode(begin)
        places = _token_at(encoded.offsets, len(begin))
        begins.append(encoded.ids)
        branches.append([_branch(tokenizer, scene, turn, begin, places) for turn in scene.turns])
    sizes = [len(ids) for ids in begins]
    width = max(len(each.ids) for row in branches for each in row)
    shape = (len(scenes), len(branches[0]), width)
    begin_ids = np.full((len(scenes), max(sizes)), PAD, dtype=np.int64)
    ids = np.full(shape, PAD, dtype=np.int64)
    labels, places_of = np.full(shape, -100, dtype=np.int64), np.full(shape, -1, dtype=np.int64)
    for row, (first, made) in enumerate(zip(begins, branches, strict=True)):
        begin_ids[row, : len(first)] = first
        for at, branch in enumerate(made):
            end = len(branch.ids)
            ids[row, at, :end] = branch.ids
            labels[row, at, :end] = branch.labels
            places_of[row, at, :end] = branch.places
    tensors = (
        torch.from_numpy(each) for each in (begin_ids, np.array(sizes), ids, labels, places_of)
    )
    return Batch(*tensors)


def _branch(
    tokenizer: Tokenizer, scene: Scene, turn: Turn, begin: str, places: list[int]
) -> Branch:
    """Everything behind the beginning; labels are the tokens of the answer and its end."""
    asked = tokenizer.encode(rendered(scene.messages(turn)[1:]) + "<|assistant|>").ids
    answer = tokenizer.encode(turn.answer.text)
    ids = [*asked, *answer.ids]
    labels = [-100] * (len(asked) - 1) + [*answer.ids, END]
    copied = _copied_from(scene, turn, begin)
    found = [
        places[copied[end - 1]] if end and copied[end - 1] >= 0 else -1 for _, end in answer.offsets
    ]
    return Branch(ids, labels, [-1] * (len(asked) - 1) + [*found, -1])


def _copied_from(scene: Scene, turn: Turn, begin: str) -> list[int]:
    """For each letter of the answer the letter of the beginning that it repeats, or -1."""
    letters = [-1] * len(turn.answer.text)
    for start, end, number in turn.answer.copied:
        line = product_line(number, scene.products[number - 1])
        inside = line.find(turn.answer.text[start:end])
        if inside >= 0:
            base = begin.index(line) + inside
            letters[start:end] = range(base, base + end - start)
    return letters


def _token_at(offsets: list[tuple[int, int]], size: int) -> list[int]:
    """The token that each letter belongs to."""
    found = [0] * size
    for token, (start, end) in enumerate(offsets):
        found[start:end] = [token] * (end - start)
    return found


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--source", type=Path, required=True, help="folder for the trained model")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--precision", choices=("bf16", "f32"), default="bf16")
    parser.add_argument("--checkpoint", type=Path, help="kept now and then and at the end")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    return parser.parse_args()


if __name__ == "__main__":
    main()
