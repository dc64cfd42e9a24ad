"""Ray Data: read_json, map_batches with the same compiled model in an actor for each core,
write_json.

`python transform_ray.py ARTIFACT`; asked with `rows` of a batch and `file`, all of which is read.
See transform_loop.py.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ["RAY_DATA_DISABLE_PROGRESS_BARS"] = "1"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
import numpy as np
import ray
from transform_loop import serve

NAMES = ("input_ids", "attention_mask", "token_type_ids")
PRECISION = "f32"


class PairModel:
    """One stream of one thread, as an actor."""

    def __init__(self, artifact: str) -> None:
        import openvino  # noqa: PLC0415 - in the actor
        from tokenizers import Tokenizer  # noqa: PLC0415

        self.tokenizer = Tokenizer.from_file(f"{artifact}/tokenizer.json")
        self.tokenizer.no_padding()
        self.request = (
            openvino.Core()
            .compile_model(
                f"{artifact}/model.xml",
                "CPU",
                {
                    "NUM_STREAMS": 1,
                    "INFERENCE_NUM_THREADS": 1,
                    "INFERENCE_PRECISION_HINT": PRECISION,
                },
            )
            .create_infer_request()
        )

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        pairs = list(zip(batch["text"].tolist(), batch["text_pair"].tolist(), strict=True))
        encodings = self.tokenizer.encode_batch(pairs)
        width = max(len(each.ids) for each in encodings)
        arrays = {name: np.zeros((len(pairs), width), dtype=np.int64) for name in NAMES}
        for at, one in enumerate(encodings):
            values = (one.ids, one.attention_mask, one.type_ids)
            for name, numbers in zip(NAMES, values, strict=True):
                arrays[name][at, : len(numbers)] = numbers
        outputs = self.request.infer(arrays)
        return {port.get_any_name(): np.array(array) for port, array in outputs.items()}


def main(artifact: str) -> None:
    cores = len(os.sched_getaffinity(0))
    # One more than actors take: with none left, nobody could read or write.
    ray.init(
        num_cpus=cores + 1, include_dashboard=False, log_to_driver=False, logging_level="error"
    )

    def run(asked: dict[str, Any]) -> dict[str, Any]:
        begun = time.perf_counter()
        with tempfile.TemporaryDirectory() as out:
            ray.data.read_json(asked["file"], lines=True).map_batches(
                PairModel,
                fn_constructor_args=(artifact,),
                batch_size=asked["rows"],
                concurrency=cores,
                num_cpus=1,
            ).write_json(out)
            written = sum(
                1 for path in Path(out).glob("*") for _ in path.open("rb") if path.is_file()
            )
        return {"s": time.perf_counter() - begun, "written": written}

    serve(run)


if __name__ == "__main__":
    main(sys.argv[1])
