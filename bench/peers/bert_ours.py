"""An artifact of `penstock compile` in the runtime that serves it, without a server: bert_loop.py.

`python bert_ours.py ARTIFACT`
"""

from __future__ import annotations

import functools
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
from bert_loop import serve

from penstock.artifacts.detection import detect
from penstock.runtimes.base import LoadContext
from penstock.runtimes.openvino.runtime import OpenVinoRuntime


def main(folder: str) -> None:
    found = detect.detect(Path(folder))
    with tempfile.TemporaryDirectory() as cache:
        runtime = OpenVinoRuntime(
            LoadContext(
                model_dir=found.root,
                description=found.description,
                endpoint_name="bert",
                variant_name="all",
                cores=float(len(os.sched_getaffinity(0))),
                memory_bytes_max=0,
                cache_dir=Path(cache),
            )
        )

        def run(lane: int, ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
            return runtime.run(lane, {"input_ids": ids, "attention_mask": mask})["logits"]

        serve(*(functools.partial(run, lane) for lane in range(runtime.lanes)))


if __name__ == "__main__":
    main(sys.argv[1])
