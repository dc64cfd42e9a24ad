"""A Hugging Face encoder directory as an artifact for one target.

The graph takes token ids and returns logits or one vector per text.

Pooling, dense layers and normalisation are part of the graph, so that the runtime returns one
vector per text, not one per token. Loading never runs a repository's own code.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from penstock.artifacts.description.description import ModelDescription, TensorSpec
from penstock.compile.contract import Compiled, Options, Say
from penstock.compile.encoder.encoder_plan import Dense, EncoderPlan, plan_encoder
from penstock.compile.graphs.torch_graph import TorchGraph
from penstock.compile.libraries import first_line, need
from penstock.compile.proof.proof import batching_of, prove
from penstock.compile.proof.samples import TextSamples
from penstock.compile.source.source import Source
from penstock.compile.source.tokenizer_files import open_tokenizer, write_tokenizer
from penstock.compile.targets import CompileTarget
from penstock.errors import CallerError
from penstock.runtimes.openvino.record import RECORD as OPENVINO

_ACTIVATIONS = ("Identity", "Tanh", "ReLU", "GELU", "Sigmoid", "")


def encoder_graph(plan: EncoderPlan, *, trust: bool) -> TorchGraph:
    """Loads the weights into a graph.

    Raises CallerError: `weights-incomplete`, `weights-damaged`, `architecture-unsupported`.
    """
    backbone = _loaded(plan, trust=trust)
    dense = [_dense(layer, trust=trust) for layer in plan.dense]
    module = _module(backbone, dense, plan)
    names = ["input_ids", "attention_mask", *(["token_type_ids"] if plan.token_types else [])]
    rows = np.full((2, min(7, plan.tokens_max)), max(0, plan.vocabulary - 1), dtype=np.int64)
    mask = np.ones_like(rows)
    mask[1, rows.shape[1] // 2 + 1 :] = 0  # so that tracing does not drop the mask as unused
    example = {name: np.zeros_like(rows) for name in names}
    example.update(input_ids=rows, attention_mask=mask)
    return TorchGraph(
        module,
        tuple(TensorSpec(name=name, dtype="INT64", shape=(-1, -1)) for name in names),
        ("embedding" if plan.task == "feature-extraction" else "logits",)
        if plan.is_classifier or plan.task == "feature-extraction"
        else ("last_hidden_state",),
        example,
    )


def _loaded(plan: EncoderPlan, *, trust: bool) -> Any:
    transformers, torch = need("transformers"), need("torch")
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    kind = (
        transformers.AutoModelForSequenceClassification
        if plan.is_classifier
        else transformers.AutoModel
    )
    has_safe = next(plan.root.glob("*.safetensors"), None) is not None
    try:
        model, found = kind.from_pretrained(
            str(plan.root),
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=has_safe or not trust,
            dtype=torch.float32,
            output_loading_info=True,
        )
    except CallerError:
        raise
    except Exception as error:  # transformers raises many kinds for files that do not fit
        raise CallerError(
            "weights-damaged",
            f"transformers can't load {plan.root.name}: {first_line(error)[:400]}",
            hint="Check that config.json belongs to these weights.",
        ) from None
    # Sentence encoders are saved without a pooler, and nothing here reads it.
    lacking = [name for name in sorted(found["missing_keys"]) if "pooler." not in name]
    if plan.is_classifier:
        lacking = sorted(found["missing_keys"])
    lacking += [str(each) for each in sorted(map(str, found.get("mismatched_keys") or ()))]
    if lacking:
        raise CallerError(
            "weights-incomplete",
            f"{plan.root.name} lacks {len(lacking)} tensors of its architecture, among them "
            f"{', '.join(lacking[:3])}: they would be random numbers",
            hint="Copy the whole fine-tuned model; a base model has no classification head.",
        )
    return model.eval()


def _dense(layer: Dense, *, trust: bool) -> Any:
    torch = need("torch")
    if layer.activation not in _ACTIVATIONS:
        raise CallerError(
            "pooling-unsupported",
            f"{layer.folder.name}: the activation {layer.activation!r} is not one of "
            f"{', '.join(_ACTIVATIONS[:-1])}",
        )
    safe = layer.folder / "model.safetensors"
    if safe.is_file():
        weights = need("safetensors.torch").load_file(str(safe))
    elif trust and (layer.folder / "pytorch_model.bin").is_file():
        weights = torch.load(
            str(layer.folder / "pytorch_model.bin"), map_location="cpu", weights_only=True
        )
    else:
        raise CallerError(
            "weights-missing",
            f"{layer.folder.name} has no model.safetensors",
            hint="Save the model again with a present sentence-transformers.",
        )
    matrix = weights["linear.weight"].float()
    linear = torch.nn.Linear(matrix.shape[1], matrix.shape[0], bias=layer.bias)
    linear.load_state_dict(
        {name.removeprefix("linear."): value.float() for name, value in weights.items()}
    )
    activation = getattr(torch.nn, layer.activation or "Identity")()
    return torch.nn.Sequential(linear, activation)


def _module(backbone: Any, dense: list[Any], plan: EncoderPlan) -> Any:
    torch = need("torch")
    base: Any = torch.nn.Module
    embedding = plan.embedding

    class EncoderGraph(base):  # type: ignore[misc]
        answers_fp32 = True

        def __init__(self) -> None:
            super().__init__()
            self.backbone = backbone
            self.dense = torch.nn.ModuleList(dense)

        def _answer(self, hidden: Any, mask: Any) -> Any:
            if embedding is None:
                return hidden
            if embedding.pooling == "cls":
                vectors = hidden[:, 0]
            else:
                weights = mask.unsqueeze(-1).to(hidden.dtype)
                vectors = (hidden * weights).sum(1) / weights.sum(1).clamp(min=1.0)
            for layer in self.dense:
                vectors = layer(vectors)
            if embedding.normalize:
                # not F.normalize: its clamp by 1e-12 is 0 in FP16
                length = vectors.float().pow(2).sum(1, keepdim=True).clamp(min=1e-12).sqrt()
                vectors = vectors.float() / length
            return vectors

        def _ask(self, input_ids: Any, attention_mask: Any, **more: Any) -> Any:
            answer = self.backbone(input_ids=input_ids, attention_mask=attention_mask, **more)
            if plan.is_classifier:
                logits = answer.logits.float()
                return logits.sigmoid() if plan.sigmoid else logits
            return self._answer(answer.last_hidden_state, attention_mask).float()

    class Single(EncoderGraph):
        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            return self._ask(input_ids, attention_mask)

    class Pair(EncoderGraph):
        def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> Any:
            return self._ask(input_ids, attention_mask, token_type_ids=token_type_ids)

    return (Pair if plan.token_types else Single)().eval()


def compile_encoder(
    source: Source, staging: Path, options: Options, target: CompileTarget, say: Say
) -> Compiled:
    """Compiles it. Raises the CallerErrors of planning, loading and lowering."""
    plan = plan_encoder(source.root, options)
    tokenizer = write_tokenizer(
        _tokenizer_home(source.root, plan),
        staging,
        tokens_max=plan.tokens_max,
        vocabulary=plan.vocabulary,
        pad_id=plan.pad_id,
    )
    say(f"loading {source.path.name}: {plan.task}, up to {plan.tokens_max} tokens")
    graph = encoder_graph(plan, trust=options.trust)
    samples = TextSamples(
        open_tokenizer(staging / tokenizer.file),
        graph.inputs,
        tokens_max=plan.tokens_max,
        pad_id=tokenizer.pad_id,
        pairs=plan.pairs,
    )
    description = ModelDescription(
        runtime=OPENVINO.name,
        task=plan.task,
        inputs=graph.inputs,
        outputs=graph.outputs,
        labels=plan.labels,
        tokenizer=None if plan.task == "tensor" else tokenizer,
        embedding=plan.embedding,
        batching=batching_of(0 if plan.task == "tensor" else plan.tokens_max, options.rows_max),
    )
    compiled = prove(
        graph,
        description,
        samples.make(options),
        staging,
        options,
        target,
        say,
        filled=samples.filled,
    )
    if plan.task == "tensor":
        (staging / tokenizer.file).unlink()
    compiled.source_bytes = source.size
    compiled.notes[:0] = plan.notes
    return compiled


def _tokenizer_home(root: Path, plan: EncoderPlan) -> Path:
    """The tokenizer's folder; sentence-transformers keeps it beside the weights or at the top."""
    named = any((plan.root / name).is_file() for name in ("tokenizer.json", "vocab.txt"))
    return plan.root if named or plan.root == root else root
