"""Defaults of SageMaker's Hugging Face toolkit: a pipeline of `transformers` for the model's task.

The task is HF_TASK, else it follows from the configuration's architecture. A request is
`{"inputs": ..., "parameters": {...}}`, an image, a sound, or CSV with a header; the answer is what
the pipeline gives, as JSON, CSV, NPY or an image. What fails for a request is answered 400, as
there. Source: handler_service.py, decoder_encoder.py and transformers_utils.py of
sagemaker-huggingface-inference-toolkit.
"""

from __future__ import annotations

import base64
import csv
import io
import json
import os
from pathlib import Path
from typing import Any, Final

from penstock.errors import ModelError, PenstockError
from penstock.runtimes.toolkits import bodies

_IMAGE: Final = "huggingface-pytorch-inference:2.6.0-transformers4.51.3-cpu-py312-ubuntu22.04"
#: End of an architecture's name -> task; the longest end that fits counts.
_TASKS: Final = {
    "TapasForQuestionAnswering": "table-question-answering",
    "ForQuestionAnswering": "question-answering",
    "ForTokenClassification": "token-classification",
    "ForSequenceClassification": "text-classification",
    "ForMultipleChoice": "multiple-choice",
    "ForMaskedLM": "fill-mask",
    "ForCausalLM": "text-generation",
    "GPT2LMHeadModel": "text-generation",
    "ForConditionalGeneration": "text2text-generation",
    "MTModel": "text2text-generation",
    "EncoderDecoderModel": "text2text-generation",
    "T5WithLMHeadModel": "text2text-generation",
    "ForImageClassification": "image-classification",
    "ForObjectDetection": "object-detection",
    "ForAudioClassification": "audio-classification",
    "ForCTC": "automatic-speech-recognition",
}
_IMAGES: Final = (
    "image/jpeg", "image/png", "image/tiff", "image/bmp", "image/gif", "image/webp",
    "image/x-image",
)  # fmt: skip
_SOUNDS: Final = ("audio/x-flac", "audio/mpeg", "audio/wave", "audio/ogg", "audio/x-audio")
_READS: Final = (*bodies.ARRAYS, *_IMAGES, *_SOUNDS)
_WRITES: Final = (*bodies.ARRAYS, *_IMAGES)
_WITHOUT_CSV: Final = ("zero-shot-classification", "table-question-answering")


def default_model_fn(model_dir: str) -> Any:
    """The pipeline of the model in `model_dir`."""
    task = _task(Path(model_dir))
    transformers = bodies.library("transformers", _IMAGE)
    torch = bodies.library("torch", _IMAGE)
    code = os.environ.get("HF_TRUST_REMOTE_CODE", "").lower() in ("y", "yes", "t", "true", "1")
    try:
        return transformers.pipeline(
            task=task,
            model=model_dir,
            device=0 if torch.cuda.is_available() else -1,
            trust_remote_code=code,
        )
    except KeyError as error:
        if task not in str(error):
            raise
        raise ModelError(
            "task-unknown",
            f"transformers {transformers.__version__} has no pipeline for the task {task!r}",
            hint="Give HF_TASK another task, or the model an Image with a version that has it.",
        ) from None


def _task(folder: Path) -> str:
    """Raises ModelError (`task-unknown`)."""
    if given := os.environ.get("HF_TASK", ""):
        return given
    config = folder / "config.json"
    named: Any = []
    if config.is_file():
        named = json.loads(config.read_bytes()).get("architectures") or []
    architecture = str(named[0]) if named else ""
    ends = [end for end in _TASKS if architecture.endswith(end)]
    if ends:
        return _TASKS[max(ends, key=len)]
    raise ModelError(
        "task-unknown",
        f"the architecture {architecture!r} of config.json does not say what the model is for"
        if architecture
        else "config.json, whose `architectures` say what the model is for, names none",
        hint="Set HF_TASK in the model's Environment, for example text-classification, or define "
        "model_fn.",
    )


def default_input_fn(data: Any, content_type: str) -> Any:
    """What JSON holds; an object with `inputs` for all other types."""
    kind = bodies.media_type(content_type)
    if kind in _IMAGES:
        image = bodies.library("PIL.Image", _IMAGE)
        try:
            return {"inputs": image.open(io.BytesIO(data)).convert("RGB")}
        except OSError as error:
            raise _bad(f"the body is no image: {error}") from None
    if kind in _SOUNDS:
        return {"inputs": bytes(data)}
    if kind == bodies.CSV:
        return _of_csv(data)
    if kind == bodies.JSON:
        try:
            return json.loads(data)
        except ValueError as error:
            raise _bad(f"the body is not JSON: {error}") from None
    if kind == bodies.NPY:
        return bodies.array_of(data, kind)
    raise bodies.unsupported(content_type, _READS)


def _of_csv(text: str) -> dict[str, Any]:
    if os.environ.get("HF_TASK") in _WITHOUT_CSV:
        raise _bad(f"CSV can't hold a request of the task {os.environ['HF_TASK']}: send JSON")
    header = next(iter(text.splitlines()), "").lower()
    if not any(name in header for name in ("question", "context", "inputs")):
        raise _bad("the CSV needs a header: inputs, or question and context")
    rows = list(csv.DictReader(io.StringIO(text)))
    if rows and "inputs" in rows[0]:
        return {"inputs": [row["inputs"] for row in rows]}
    return {"inputs": rows}


def default_predict_fn(data: Any, model: Any) -> Any:
    """Calls the pipeline; what it raises is answered 400, as the toolkit does."""
    parameters: Any = None
    inputs = data
    if isinstance(data, dict):
        inputs = data.pop("inputs", data)
        parameters = data.pop("parameters", None)
    elif isinstance(data, list | str):
        raise _bad('the body is JSON, but no object with "inputs"')
    try:
        return model(inputs, **parameters) if parameters is not None else model(inputs)
    except PenstockError:
        raise
    except Exception as error:
        raise ModelError(
            "model-code-failed",
            f"the pipeline failed on this request: {type(error).__name__}: {str(error)[:1000]}",
            hint="Compare inputs and parameters with what the pipeline of this task takes.",
            original_status=400,
        ) from error


def default_output_fn(prediction: Any, accept: str) -> tuple[bytes, str]:
    kind = bodies.accepted(accept, _WRITES)
    try:
        if kind == bodies.JSON:
            return _json(prediction), kind
        if kind == bodies.CSV:
            return _csv(prediction), kind
        if kind == bodies.NPY:
            return bodies.npy_of(prediction), kind
        return _image(prediction, kind), kind
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        raise bodies.unwritable(kind, error) from None


def _json(prediction: Any) -> bytes:
    return json.dumps(
        prediction, ensure_ascii=False, allow_nan=False, default=_listed, separators=(",", ":")
    ).encode()


def _listed(value: Any) -> Any:
    if hasattr(value, "isoformat"):
        return str(value)
    if hasattr(value, "save") and hasattr(value, "convert"):
        return base64.b64encode(_image(value, "image/png")).decode()
    return bodies.listed(value)


def _csv(prediction: Any) -> bytes:
    rows = prediction if isinstance(prediction, list) else [prediction]
    stream = io.StringIO()
    writer = csv.DictWriter(stream, rows[0].keys())
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue().encode()


def _image(value: Any, kind: str) -> bytes:
    form = "PNG" if kind == "image/x-image" else kind.partition("/")[2].upper()
    with io.BytesIO() as out:
        value.save(out, format=form)
        return out.getvalue()


def _bad(words: str) -> ModelError:
    return ModelError(
        "bad-input",
        words,
        hint='Send {"inputs": ...}, with "parameters": {...} where the pipeline has some.',
        original_status=400,
    )
