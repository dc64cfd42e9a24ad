"""Package files of small models, as a person would write them."""

from __future__ import annotations

import textwrap
from pathlib import Path

#: Answers what it is sent and who it is.
CODE = """
import pathlib

def model_fn(model_dir):
    return (pathlib.Path(model_dir) / "name.txt").read_text()

def predict_fn(data, model):
    return {"model": model, "data": data}
"""


def write(root: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = content if isinstance(content, bytes) else textwrap.dedent(content).encode()
        path.write_bytes(text)
    return root


def echo_packages(root: Path, customers: list[str], *, version: str = "1") -> Path:
    """The file of one package for each customer, `echo-<customer>`."""
    rows = "\n".join(f"  - {{customer: {name}}}" for name in customers)
    text = f"""\
schema: 1
package: echo-${{customer}}
version: "{version}"
kind: echo
code: {{from: code, to: code}}
templates:
  - {{from: name.txt, to: name.txt}}
for_each:
{rows}
"""
    write(
        root,
        {
            "package.yaml": text,
            "code/1.0/inference.py": CODE,
            "name.txt": "${customer} ${version}",
        },
    )
    return root / "package.yaml"
