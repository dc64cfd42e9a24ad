"""A Hugging Face encoder directory as an artifact for one target."""

from __future__ import annotations

from pathlib import Path

from penstock.artifacts.description.description import ModelDescription
from penstock.compile.buckets import batching_of
from penstock.compile.contract import Compiled, Options, Say
from penstock.compile.encoder.encoder_graph import encoder_graph
from penstock.compile.encoder.encoder_plan import EncoderPlan, plan_encoder
from penstock.compile.proof.proof import prove
from penstock.compile.proof.samples import TextSamples
from penstock.compile.source.source import Source
from penstock.compile.source.tokenizer_files import open_tokenizer, write_tokenizer
from penstock.compile.targets import CompileTarget


def compile_encoder(
    source: Source, staging: Path, options: Options, target: CompileTarget, say: Say
) -> Compiled:
    """Raises the CallerErrors of planning, loading and lowering."""
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
        runtime="openvino",
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
    """sentence-transformers keeps the tokenizer beside the weights or at the top."""
    named = any((plan.root / name).is_file() for name in ("tokenizer.json", "vocab.txt"))
    return plan.root if named or plan.root == root else root
