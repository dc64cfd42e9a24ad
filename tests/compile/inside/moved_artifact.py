"""`python moved_artifact.py FOLDER compile|load`: an INT8 artifact, made in one process and loaded
in another, which may have another processor. Prints one line of JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from penstock.artifacts.detection.detect import detect
from penstock.compile.build import compile_model
from penstock.compile.contract import Options
from penstock.instance.loading.proof_here import proof_here
from penstock.runtimes.base import LoadContext
from penstock.runtimes.loader import load_tensor_runtime


def compiled(folder: Path) -> dict[str, object]:
    import tiny_models  # brings PyTorch, which loading does without

    texts = folder / "texts.txt"
    texts.write_text("\n".join(f"{text} {at}" for at in range(12) for text in tiny_models.TEXTS))
    tiny_models.save(folder / "source", "bert", id2label={0: "buy", 1: "track", 2: "return"})
    options = Options(target="cpu-int8", calibration=texts, measure_s=0.0, threads=1)
    compile_model(folder / "source", folder / "out", options)
    made = json.loads((folder / "out" / "provenance.json").read_text())
    return dict(made["choices"])


def loaded(folder: Path) -> dict[str, object]:
    root = folder / "out"
    context = LoadContext(
        model_dir=root,
        description=detect(root).description,
        endpoint_name="moved",
        variant_name="all",
        cores=1.0,
        memory_bytes_max=0,
        cache_dir=folder / "cache",
    )
    runtime = load_tensor_runtime(context)
    try:
        found = proof_here(context, runtime)
    finally:
        runtime.close()
    return found.to_dict() if found is not None else {}


if __name__ == "__main__":
    step = {"compile": compiled, "load": loaded}[sys.argv[2]]
    print(json.dumps(step(Path(sys.argv[1]))))
