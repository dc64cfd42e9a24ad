"""Completes a text letter by letter. The text so far stays here; each letter is a call."""

import asyncio

import numpy as np
import triton_python_backend_utils as pb_utils

LETTERS = "\0 abcdefghijklmnopqrstuvwxyz"
LETTERS_MAX = 40


class TritonPythonModel:
    async def execute(self, requests):
        return await asyncio.gather(*(self.answer(request) for request in requests))

    async def answer(self, request):
        texts = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy().reshape(-1)
        try:
            made = await asyncio.gather(*(self.completed(text.decode()) for text in texts))
        except pb_utils.TritonModelException as error:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error)))
        suggestions = np.array([[text] for text in made], dtype=object)
        return pb_utils.InferenceResponse([pb_utils.Tensor("SUGGESTION", suggestions)])

    async def completed(self, text):
        for _ in range(LETTERS_MAX):
            number = 0
            for letter in text[-3:].lower():
                number = number * len(LETTERS) + max(1, LETTERS.find(letter))
            asked = pb_utils.InferenceRequest(
                model_name="next_letter",
                requested_output_names=["scores"],
                inputs=[pb_utils.Tensor("last", np.array([[number]], np.int64))],
            )
            got = await asked.async_exec()
            if got.has_error():
                raise pb_utils.TritonModelException(got.error().message())
            scores = pb_utils.get_output_tensor_by_name(got, "scores").as_numpy()
            best = LETTERS[int(scores.argmax())]
            if best == "\0":
                break
            text += best
        return text
