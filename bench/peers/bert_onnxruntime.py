"""The same classifier exported to ONNX, in ONNX Runtime's FP32: see bert_loop.py.

`python bert_onnxruntime.py MODEL.onnx`; all graph optimisations are on, as they are by default.
"""

from __future__ import annotations

import os
import sys

import numpy as np
import onnxruntime
from bert_loop import serve


def main(path: str) -> None:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = len(os.sched_getaffinity(0))
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def run(ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        (logits,) = session.run(["logits"], {"input_ids": ids, "attention_mask": mask})
        return np.asarray(logits)

    serve(run)


if __name__ == "__main__":
    main(sys.argv[1])
