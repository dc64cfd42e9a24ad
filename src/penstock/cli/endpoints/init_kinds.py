"""The files that `penstock init` writes, by kind: code that serves a file of that kind as it is.

Each is a beginning that works and that its owner changes. The code runs in the environment that its
requirements.txt names, not in the server's, and knows nothing of Penstock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from penstock.cli.endpoints import init_facts

_PYTHON_YAML: Final = """\
schema: 1
runtime: python
file: code/inference.py
"""
#: Behind a model.yaml where no sample is known, and where `{sample}` is one.
_NO_WARM_UP: Final = """\
# A request that is answered before all others, and shown by `penstock describe`:
# warmup:
#   - body: '{"inputs": [[1, 2, 3]]}'
"""
_WARM_UP: Final = """\
# A request that is answered before all others, and shown by `penstock describe`:
warmup:
  - body: '{sample}'
"""

_ROWS: Final = '''

def input_fn(body, content_type):
    """Rows of numbers: JSON as [[...]] or {"inputs": [[...]]}, or text/csv without a header."""
    if content_type.startswith("text/csv"):
        return np.loadtxt(io.StringIO(body), delimiter=",", ndmin=2)
    value = json.loads(body)
    return np.asarray(value["inputs"] if isinstance(value, dict) else value)
'''

_SKLEARN: Final = (
    '''"""Serves a scikit-learn model that joblib or pickle wrote."""

import io
import json
import os

import joblib
import numpy as np


def model_fn(model_dir):
    return joblib.load(os.path.join(model_dir, "{file}"))
'''
    + _ROWS
    + """

def predict_fn(rows, model):
    return {"predictions": model.predict(rows)}
"""
)

_PYTORCH_PREDICT: Final = """

def predict_fn(rows, model):
    with torch.inference_mode():
        output = model(torch.as_tensor(rows, dtype=torch.float32))
    return {"predictions": output.numpy()}
"""

_PYTORCH: Final = (
    '''"""Serves a PyTorch model: a TorchScript file, or a whole module that torch.save wrote."""

import io
import json
import os

import numpy as np
import torch


def model_fn(model_dir):
    path = os.path.join(model_dir, "{file}")
    try:
        model = torch.jit.load(path, map_location="cpu")
    except RuntimeError:
        model = torch.load(path, map_location="cpu", weights_only=False)
    return model.eval()
'''
    + _ROWS
    + _PYTORCH_PREDICT
)

_PYTORCH_WEIGHTS: Final = (
    '''"""Serves weights of PyTorch (a state_dict), once `module` below makes their module."""

import io
import json
import os

import numpy as np
import torch


def module():
    """The module that the weights belong to, for example torch.nn.Linear(3, 2)."""
    raise NotImplementedError("make the module of {file} in module() of code/inference.py")


def model_fn(model_dir):
    path = os.path.join(model_dir, "{file}")
    model = module()
    model.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    return model.eval()
'''
    + _ROWS
    + _PYTORCH_PREDICT
)

_HUGGING_FACE: Final = '''"""Serves a Hugging Face folder by a pipeline for its task."""

import json
import os

from transformers import AutoConfig, pipeline

#: Ends of architectures' names, and the tasks that they are for.
TASKS = {
    "ForSequenceClassification": "text-classification",
    "ForTokenClassification": "token-classification",
    "ForQuestionAnswering": "question-answering",
    "ForMaskedLM": "fill-mask",
    "ForCausalLM": "text-generation",
    "ForConditionalGeneration": "text2text-generation",
    "ForImageClassification": "image-classification",
}


def model_fn(model_dir):
    folder = os.path.join(model_dir, "{file}")
    task = os.environ.get("HF_TASK")
    if not task:
        (name, *_) = AutoConfig.from_pretrained(folder).architectures or [""]
        ends = [end for end in TASKS if name.endswith(end)]
        task = TASKS[ends[0]] if ends else "feature-extraction"
    return pipeline(task, model=folder)


def input_fn(body, content_type):
    """{"inputs": ..., "parameters": {...}}, as Hugging Face's own containers take it."""
    return json.loads(body)


def predict_fn(data, model):
    inputs, parameters = data["inputs"], data.get("parameters") or {}
    if isinstance(inputs, dict):
        return model(**inputs, **parameters)
    return model(inputs, **parameters)


def output_fn(prediction, accept):
    return json.dumps(prediction, default=lambda value: value.tolist()), "application/json"
'''

_PYTHON: Final = '''"""Serves a model of your own kind: replace the two functions."""

import os


def model_fn(model_dir):
    """Called once. What it returns is given to predict_fn; here the size of the model's file."""
    return os.path.getsize(os.path.join(model_dir, "{file}"))


def predict_fn(data, model):
    """Called for each request, with the body's JSON. What it returns is the answer's JSON."""
    return {"received": data, "model_bytes": model}
'''

_FASTAPI: Final = '''"""Serves a FastAPI application: its first POST route answers /invocations.

Change PREDICT to the path of another route.
"""

import importlib.util
import os
import sys

import uvicorn

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
PREDICT = ""


def application():
    sys.path.insert(0, FOLDER)
    spec = importlib.util.spec_from_file_location("served", os.path.join(FOLDER, "{file}"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.app


def serve(port):
    app = application()
    posted = [one for one in app.routes if "POST" in (getattr(one, "methods", None) or ())]
    routes = {route.path: route for route in posted}
    route = routes[PREDICT] if PREDICT else next(iter(routes.values()))
    if "/invocations" not in routes:
        app.add_api_route("/invocations", route.endpoint, methods=["POST"])
    app.add_api_route("/ping", lambda: {}, methods=["GET"])
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    serve(int(sys.argv[1]))
'''

_FASTAPI_YAML: Final = """\
schema: 1
runtime: process
# {port} is filled in; the program answers GET /ping and POST /invocations there.
command: [python, code/serve.py, "{port}"]
"""

_PIPELINE_YAML: Final = """\
schema: 1
code: code/steps.py
steps:
  - name: answer
    python: {function: answer}
    inputs: {question: $request.question}
    emit: [{kind: text, data: {text: $piece.text}}]
"""

_PIPELINE: Final = '''"""Steps of the pipeline: functions that pipeline.yaml names."""


def answer(question):
    """What it returns is what later steps and `emit` refer to."""
    return {"text": f"You asked: {question}"}
'''


@dataclass(frozen=True, slots=True, kw_only=True)
class StarterKind:
    """One kind. In its files `{file}` stands for the model's file."""

    title: str
    takes: str  #: what FILE is; "" = nothing is copied
    files: Mapping[str, str]
    #: lines of code/requirements.txt, from the file
    requirements: Callable[[Path], list[str]] = field(default=lambda path: [])
    folder: bool = False  #: FILE is a folder
    #: body of a request that is answered, from the file; "" = none is known
    sample: Callable[[Path], str] = field(default=lambda path: "")
    #: files that take the place of those of the same names, from the file
    instead: Callable[[Path], Mapping[str, str]] = field(default=lambda path: {})
    unfinished: str = ""  #: what to do before the folder is deployed, where `instead` has files

    def text(self, name: str, file: str, source: Path | None) -> str:
        text = self.files[name]
        if source is not None:
            text = self.instead(source).get(name, text)
        if text is _PYTHON_YAML:
            sample = self.sample(source or Path()).replace("'", "''")
            text += _WARM_UP.replace("{sample}", sample) if sample else _NO_WARM_UP
        return text.replace("{file}", file)


KINDS: Final[dict[str, StarterKind]] = {
    "sklearn": StarterKind(
        title="scikit-learn, of joblib or pickle",
        takes="model.joblib or model.pkl",
        files={"model.yaml": _PYTHON_YAML, "code/inference.py": _SKLEARN},
        requirements=init_facts.sklearn_requirements,
        sample=init_facts.sklearn_sample,
    ),
    "pytorch": StarterKind(
        title="PyTorch: TorchScript, a module, or weights",
        takes="model.pt or model.pth",
        files={"model.yaml": _PYTHON_YAML, "code/inference.py": _PYTORCH},
        requirements=lambda path: ["torch", "numpy"],
        instead=lambda path: (
            {"code/inference.py": _PYTORCH_WEIGHTS} if init_facts.is_weights(path) else {}
        ),
        unfinished="{file} holds weights alone: first make their module in module() of",
    ),
    "huggingface": StarterKind(
        title="a Hugging Face folder, by a pipeline of transformers",
        takes="a folder with config.json",
        files={"model.yaml": _PYTHON_YAML, "code/inference.py": _HUGGING_FACE},
        requirements=lambda path: ["transformers", "torch"],
        folder=True,
        sample=init_facts.hugging_face_sample,
    ),
    "fastapi": StarterKind(
        title="a FastAPI application named app",
        takes="app.py",
        files={"model.yaml": _FASTAPI_YAML, "code/serve.py": _FASTAPI},
        requirements=lambda path: ["fastapi", "uvicorn"],
    ),
    "python": StarterKind(
        title="anything that Python code loads",
        takes="any file",
        files={"model.yaml": _PYTHON_YAML, "code/inference.py": _PYTHON},
        sample=lambda path: '{"inputs": [[1, 2, 3]]}',
    ),
    "pipeline": StarterKind(
        title="steps that call endpoints, services and functions",
        takes="",
        files={"pipeline.yaml": _PIPELINE_YAML, "code/steps.py": _PIPELINE},
        sample=lambda path: '{"question": "where is my order"}',
    ),
}
