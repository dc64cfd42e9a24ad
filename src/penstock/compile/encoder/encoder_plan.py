"""How to serve a Hugging Face encoder directory, read from its JSON files alone.

It decides task, labels, pooling, length and inputs, and loads nothing. Where the files leave a
choice, it chooses as sentence-transformers and transformers would, and says so in `notes`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.artifacts.description.description import Embedding
from penstock.artifacts.detection.huggingface import stated_lengths
from penstock.compile.contract import Options
from penstock.compile.source.source import read_json, transformer_folder
from penstock.errors import CallerError

#: Encoder families with tested graphs -> positions that can't be used: RoBERTa and its relatives
#: count from the padding id + 1. DeBERTa puts distances into logarithmic buckets with a ceiling,
#: and at the largest distance the logarithm's last bit decides: libraries disagree there
#: (measured).
FAMILIES = {
    "albert": 0,
    "bert": 0,
    "camembert": 2,
    "deberta-v2": 1,
    "distilbert": 0,
    "electra": 0,
    "mpnet": 2,
    "roberta": 2,
    "xlm-roberta": 2,
}
#: BERT's positions. Encoders with longer contexts are cut here unless `tokens_max` is larger.
TOKENS_MAX = 512
_TEXT_TASKS = (
    "text-classification",
    "pair-classification",
    "text-regression",
    "feature-extraction",
    "tensor",
)
#: Tasks whose requests may have two texts.
_OF_PAIRS = ("pair-classification", "text-regression")
_POOLINGS = {"mean_tokens": "mean", "cls_token": "cls", "mean": "mean", "cls": "cls"}
_BACKBONES = ("Model", "ForMaskedLM", "ForPreTraining")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dense:
    """A layer after pooling, as in sentence-transformers."""

    folder: Path
    activation: str  #: the class name: Tanh, Identity ...
    bias: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderPlan:
    """How to load and to serve one encoder."""

    root: Path  #: folder with config.json and weights
    task: str  #: one of _TEXT_TASKS
    is_classifier: bool  #: whether the checkpoint has a classification head
    labels: tuple[str, ...]
    embedding: Embedding | None
    dense: tuple[Dense, ...]
    tokens_max: int
    vocabulary: int
    pad_id: int | None
    pairs: bool  #: whether it was trained on two texts at a time
    sigmoid: bool  #: whether its output goes through a sigmoid, into 0 to 1
    token_types: bool  #: whether the graph takes token_type_ids, for two texts
    notes: tuple[str, ...]


def plan_encoder(root: Path, options: Options) -> EncoderPlan:
    """The plan. Raises CallerError: `architecture-unsupported`, `task-unsupported`,
    `pooling-unsupported`, `tokens-max-invalid`, `source-damaged`."""
    home = transformer_folder(root)
    config = read_json(home / "config.json")
    family = str(config.get("model_type", ""))
    architecture = _architecture(config)
    if family not in FAMILIES:
        raise _unsupported(f"model_type {family!r} ({architecture or 'no architecture named'})")
    notes: list[str] = []
    is_classifier = architecture.endswith("ForSequenceClassification")
    labels: tuple[str, ...] = ()
    embedding: Embedding | None = None
    dense: tuple[Dense, ...] = ()
    if is_classifier:
        task, labels = _classifier_task(config, options, notes)
    elif (root / "modules.json").is_file() or architecture.endswith(_BACKBONES):
        task = _backbone_task(options)
        embedding, dense = _modules(root, notes)
    else:
        raise _unsupported(f"{architecture or 'a model without a named architecture'}")
    return EncoderPlan(
        root=home,
        task=task,
        is_classifier=is_classifier,
        labels=labels,
        embedding=embedding if task == "feature-extraction" else None,
        dense=dense if task == "feature-extraction" else (),
        tokens_max=_tokens_max(home, config, family, options),
        vocabulary=_integer(config, "vocab_size"),
        pad_id=config.get("pad_token_id") if type(config.get("pad_token_id")) is int else None,
        pairs=task == "pair-classification" or "sentence_transformers" in config,
        sigmoid=is_classifier and task == "text-regression" and _is_sigmoid(config),
        token_types=task in _OF_PAIRS and _segments(config) > 1,
        notes=tuple(notes),
    )


def _architecture(config: dict[str, Any]) -> str:
    names = config.get("architectures")
    return str(names[0]) if isinstance(names, list) and names else ""


def _classifier_task(
    config: dict[str, Any], options: Options, notes: list[str]
) -> tuple[str, tuple[str, ...]]:
    labels = _labels(config)
    kind = config.get("problem_type")
    if kind == "multi_label_classification" and options.task != "tensor":
        raise CallerError(
            "task-unsupported",
            "several labels may hold at once (problem_type multi_label_classification), and a "
            "text classifier here answers one",
            hint="Compile it with --task tensor: it then takes token ids and answers its logits.",
        )
    # sentence-transformers marks its cross-encoders; they were trained on pairs
    is_pair = "sentence_transformers" in config
    is_regression = kind == "regression" or len(labels) == 1
    task = "pair-classification" if is_pair else "text-classification"
    task = "text-regression" if is_regression else task
    if options.task:
        task = _checked_task(options.task)
    if task == "text-regression" and labels == tuple(f"LABEL_{at}" for at in range(len(labels))):
        labels = ()  # default names say nothing about a number
    if task == "tensor":
        labels = ()
    if is_pair:
        notes.append("trained on pairs of texts (a cross-encoder): requests give two texts each")
    return task, labels


def _labels(config: dict[str, Any]) -> tuple[str, ...]:
    names = config.get("id2label")
    if not isinstance(names, dict):
        return tuple(f"LABEL_{at}" for at in range(_integer(config, "num_labels") or 2))
    if set(names) != {str(at) for at in range(len(names))}:
        raise CallerError(
            "source-damaged",
            f"config.json: id2label has the keys {', '.join(sorted(names)[:10])}",
            hint="They must be 0, 1, 2 ... in the order of the logits.",
        )
    return tuple(str(names[str(at)]) for at in range(len(names)))


def _backbone_task(options: Options) -> str:
    task = options.task or "feature-extraction"
    if task not in ("feature-extraction", "tensor"):
        raise CallerError(
            "task-unsupported",
            f"the checkpoint has no head for {task!r}",
            hint="It can be compiled as feature-extraction (one vector per text) or tensor.",
        )
    return task


def _checked_task(task: str) -> str:
    allowed = tuple(name for name in _TEXT_TASKS if name != "feature-extraction")
    if task not in allowed:
        raise CallerError(
            "task-unsupported",
            f"a classifier can't be served as {task!r}",
            hint=f"Use one of: {', '.join(allowed)}.",
        )
    return task


def _is_sigmoid(config: dict[str, Any]) -> bool:
    """A cross-encoder with one output has a sigmoid, unless its configuration says otherwise."""
    settings = config.get("sentence_transformers")
    if not isinstance(settings, dict) or _integer(config, "num_labels") > 1:
        return False
    named = settings.get("activation_fn") or config.get("sbert_ce_default_activation_function")
    kind = str(named or "Sigmoid").rpartition(".")[2]
    if kind not in ("Sigmoid", "Identity"):
        raise CallerError(
            "task-unsupported",
            f"the cross-encoder's activation {kind!r} is not one of Sigmoid, Identity",
            hint="Export the whole model with torch.export and compile that.",
        )
    return kind == "Sigmoid"


def _segments(config: dict[str, Any]) -> int:
    family = config.get("model_type")
    if family in ("bert", "albert", "electra"):
        return _integer(config, "type_vocab_size") if "type_vocab_size" in config else 2
    return _integer(config, "type_vocab_size")


def _modules(root: Path, notes: list[str]) -> tuple[Embedding, tuple[Dense, ...]]:
    """Pooling with normalisation, and dense layers, from sentence-transformers' files."""
    if not (root / "modules.json").is_file():
        if (root / "1_Pooling" / "config.json").is_file():
            pooling = _pooling(root / "1_Pooling" / "config.json")
            return Embedding(pooling=pooling, normalize=(root / "2_Normalize").is_dir()), ()
        notes.append("no modules.json of sentence-transformers: mean pooling, vectors of length 1")
        return Embedding(pooling="mean", normalize=True), ()
    pooling, normalize, dense = "mean", False, []
    for module in json.loads((root / "modules.json").read_bytes()):
        kind = str(module.get("type", "")).rpartition(".")[2]
        folder = root / str(module.get("path", ""))
        if kind == "Pooling":
            pooling = _pooling(folder / "config.json")
        elif kind == "Normalize":
            normalize = True
        elif kind == "Dense":
            settings = read_json(folder / "config.json")
            activation = str(settings.get("activation_function", "")).rpartition(".")[2]
            dense.append(
                Dense(folder=folder, activation=activation, bias=settings.get("bias") is not False)
            )
        elif kind not in ("Transformer", "Dropout"):
            raise CallerError(
                "pooling-unsupported",
                f"modules.json has a module {kind!r}, which is not one of Transformer, Pooling, "
                "Dense, Normalize",
                hint="Export the whole model with torch.export and compile that.",
            )
    return Embedding(pooling=pooling, normalize=normalize), tuple(dense)


def _pooling(path: Path) -> str:
    settings = read_json(path)
    named = settings.get("pooling_mode")
    modes = [named] if isinstance(named, str) else []
    modes += [
        key.removeprefix("pooling_mode_")
        for key, value in settings.items()
        if key.startswith("pooling_mode_") and value is True
    ]
    if len(modes) != 1 or modes[0] not in _POOLINGS:
        raise CallerError(
            "pooling-unsupported",
            f"{path.parent.name}: pooling by {' and '.join(modes) or 'nothing'}",
            hint="Mean and CLS pooling are understood; export another with torch.export.",
        )
    return _POOLINGS[modes[0]]


def _tokens_max(home: Path, config: dict[str, Any], family: str, options: Options) -> int:
    positions = _integer(config, "max_position_embeddings") or TOKENS_MAX
    positions -= FAMILIES[family]
    if options.tokens_max > positions:
        raise CallerError(
            "tokens-max-invalid",
            f"--tokens-max {options.tokens_max}: the model has positions for {positions} tokens",
            hint="Give at most that many.",
        )
    stated = stated_lengths(home, read_json)
    return options.tokens_max or int(min([positions, *stated, TOKENS_MAX]))


def _integer(config: dict[str, Any], key: str) -> int:
    value = config.get(key)
    return value if type(value) is int and value > 0 else 0


def _unsupported(what: str) -> CallerError:
    return CallerError(
        "architecture-unsupported",
        f"{what} is not an architecture that is compiled from its weights",
        hint=f"Encoders of {', '.join(FAMILIES)} with a sequence classification head or none, and "
        "T5, mT5 and BART, are. Any other: export it with torch.export and compile the .pt2 file.",
    )
