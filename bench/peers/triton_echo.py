"""The echo on Triton with a Python model, by nvidia-pytriton: `triton_echo.py HTTP_PORT GRPC_PORT`.

Settings in the environment: ROWS, the largest batch (1: none are formed); WAIT_US, how long one may
wait to be filled; INSTANCES of the model.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

ROWS = int(os.environ["ROWS"])


@batch
def echo(x: Any) -> list[Any]:
    return [x]


if __name__ == "__main__":
    ports = TritonConfig(
        http_address="127.0.0.1",
        http_port=int(sys.argv[1]),
        grpc_address="127.0.0.1",
        grpc_port=int(sys.argv[2]),
        allow_metrics=False,
    )
    waits = DynamicBatcher(max_queue_delay_microseconds=int(os.environ["WAIT_US"]))
    with Triton(config=ports) as triton:
        triton.bind(
            model_name="echo",
            infer_func=[echo] * int(os.environ["INSTANCES"]),
            inputs=[Tensor(name="x", dtype=np.float32, shape=(4,))],
            outputs=[Tensor(name="y", dtype=np.float32, shape=(4,))],
            config=ModelConfig(max_batch_size=ROWS, batcher=waits),
            strict=False,
        )
        triton.serve()
