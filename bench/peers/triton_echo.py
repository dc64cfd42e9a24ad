"""The echo on Triton with a Python model and dynamic batching, by nvidia-pytriton."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig


@batch
def echo(x: Any) -> list[Any]:
    return [x]


if __name__ == "__main__":
    port = int(sys.argv[1])
    ports = TritonConfig(
        http_address="127.0.0.1",
        http_port=port,
        grpc_address="127.0.0.1",
        grpc_port=port + 1,
        allow_metrics=False,
    )
    with Triton(config=ports) as triton:
        triton.bind(
            model_name="echo",
            infer_func=echo,
            inputs=[Tensor(name="x", dtype=np.float32, shape=(4,))],
            outputs=[Tensor(name="y", dtype=np.float32, shape=(4,))],
            config=ModelConfig(
                max_batch_size=64, batcher=DynamicBatcher(max_queue_delay_microseconds=0)
            ),
            strict=False,
        )
        triton.serve()
