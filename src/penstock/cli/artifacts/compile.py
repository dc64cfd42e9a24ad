"""`penstock compile`: a source model as an artifact for one chip or for several, proven equal."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli import options as shared
from penstock.cli.output import note, print_json, print_table


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileFlags:
    """Fields of `compile.contract.Options` that have an option each."""

    task: Annotated[
        str, typer.Option("--task", help="What it is served as, where its files leave that open.")
    ] = ""
    name: Annotated[str, typer.Option("--name", help="The model's own name.")] = ""
    description: Annotated[
        Path | None,
        typer.Option("--description", help="model.yaml for a graph file: task, labels, heads."),
    ] = None
    tokenizer: Annotated[
        Path | None, typer.Option("--tokenizer", help="tokenizer.json for a graph file.")
    ] = None
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", help="TorchScript: NAME:DTYPE:SHAPE, as ids:INT64:-1,-1."),
    ] = None
    calibration: Annotated[
        Path | None,
        typer.Option("--calibration", help="Texts, one per line: cpu-int8 quantises activations."),
    ] = None
    samples: Annotated[
        Path | None, typer.Option("--samples", help="Texts (or .npz) to compare answers on.")
    ] = None
    tokens_max: Annotated[
        int, typer.Option("--tokens-max", min=0, help="Cut longer texts; 0: as the model says.")
    ] = 0
    rows_max: Annotated[
        int, typer.Option("--rows-max", min=1, max=4096, help="Rows in a batch.")
    ] = 32
    tolerance: Annotated[
        float | None, typer.Option("--tolerance", help="Largest difference allowed.")
    ] = None
    trust: Annotated[
        bool, typer.Option("--trust", help="Load pickle files: they can run any program.")
    ] = False
    measure_s: Annotated[
        float, typer.Option("--measure-s", min=0.0, help="Time for each measured shape; 0: none.")
    ] = 1.0
    threads: Annotated[
        int, typer.Option("--threads", min=0, help="Threads to measure with; 0: all cores.")
    ] = 0


_NO_FLAGS = CompileFlags()


def compile_(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SRC",
            help="Hugging Face directory, exported program (.pt2), TorchScript or ONNX file.",
        ),
    ],
    out: Annotated[Path, typer.Option("--output", "-o", help="Folder to make.")],
    target: Annotated[
        str,
        typer.Option(
            "--target",
            help="cpu-fp32, cpu-bf16, cpu-int8, cuda-fp32, cuda-fp16, cuda-bf16, or auto: what "
            "is measured to be fastest on this processor, within its tolerance.",
        ),
    ] = "auto",
    chips: Annotated[
        list[str] | None,
        typer.Option(
            "--for",
            help="avx2, avx512, vnni, bf16, amx: a build for processors with it; may be repeated. "
            "The instance that loads the model takes the best that its processor can run.",
        ),
    ] = None,
    flags: CompileFlags = _NO_FLAGS,
    json_: shared.Json = False,
) -> None:
    """Compile a model for a chip; leaves nothing where its answers are not the source's."""
    from penstock.compile.build import compile_model  # noqa: PLC0415 - numpy and more
    from penstock.compile.builds import compile_builds  # noqa: PLC0415 - as above
    from penstock.compile.contract import Options  # noqa: PLC0415

    given = asdict(flags) | {"inputs": tuple(flags.inputs or ())}
    options = Options(target=target, **given)
    if chips:
        report = compile_builds(source, out, options, chips, say=note)
    else:
        report = compile_model(source, out, options, say=note)
    if json_:
        print_json(report)
        return
    for build in report.get("builds", ()):
        note(f"build {build['folder']}, for processors with {build['needs']}:")
        _show(build["report"])
    if not chips:
        _show(report)
    note(f"wrote {out}; deploy it with: penstock deploy NAME {out}")


def _show(report: dict[str, Any]) -> None:
    from penstock.compile.report import auto_rows, parity_rows, timing_rows  # noqa: PLC0415 - as above

    print_table(
        f"{report['task']} for {report['target']}, against {report['before']}",
        ("", "value", "limit"),
        parity_rows(report),
    )
    if "auto" in report:
        print_table(
            f"auto on {report['instruction_set']}: {report['auto']['chosen']}",
            ("candidate", "speed", "mean difference"),
            auto_rows(report),
        )
    if report["timings"]:
        there = f"; after on {report['accelerator']}" if "accelerator" in report else ""
        print_table(
            f"a batch (rows x tokens), {report['threads']} threads, {report['processor']}, "
            f"{report['instruction_set']}{there}",
            ("batch", "before", "after", "rows before", "rows after", "ratio"),
            timing_rows(report),
        )
    for line in report["notes"]:
        note(f"note: {line}")
