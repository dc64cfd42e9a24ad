"""Texts as counts of letter triples, each triple at a place that its hash names."""

import zlib

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        texts = pb_utils.get_input_tensor_by_name(request, "text").as_numpy().reshape(-1)
        counts = np.zeros((len(texts), 256), np.float32)
        for row, text in enumerate(texts):
            padded = b" %b " % text.lower()
            for at in range(len(padded) - 2):
                counts[row, zlib.crc32(padded[at : at + 3]) % 256] += 1
        return pb_utils.InferenceResponse([pb_utils.Tensor("counts", counts)])
