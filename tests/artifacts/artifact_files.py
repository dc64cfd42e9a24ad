"""Small real artifacts for the tests of this folder: models, archives, hostile archives."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from penstock.artifacts.files.budget import Budget
from penstock.errors import PenstockError


def budget(*, bytes_max: int = 10_000_000) -> Budget:
    return Budget("model.tar.gz", bytes_max=bytes_max, seconds_max=60)


def error_of(call: Callable[[], object]) -> PenstockError:
    """The error that a call raises; fails the test if it raises none, or one without a remedy."""
    with pytest.raises(PenstockError) as caught:
        call()
    assert caught.value.code
    assert caught.value.message
    assert caught.value.hint
    return caught.value


def onnx_bytes(*, batch: object = "batch", dtype: int = TensorProto.FLOAT) -> bytes:
    """A model y = identity(x) with x of shape [batch, 4]."""
    x = helper.make_tensor_value_info("x", dtype, [batch, 4])
    y = helper.make_tensor_value_info("y", dtype, [batch, 4])
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "identity", [x], [y])
    return onnx.helper.make_model(graph).SerializeToString()


def member(name: str, content: bytes = b"", *, kind: bytes = tarfile.REGTYPE, link: str = "",
           mode: int = 0o644) -> tuple[tarfile.TarInfo, bytes]:  # fmt: skip
    info = tarfile.TarInfo(name)
    info.type = kind
    info.linkname = link
    info.size = len(content)
    info.mode = mode
    return info, content


def tar_bytes(members: Iterable[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def tar_gz(path: Path, members: Iterable[tuple[tarfile.TarInfo, bytes]]) -> Path:
    path.write_bytes(gzip.compress(tar_bytes(members)))
    return path


def write(root: Path, files: dict[str, bytes | str]) -> Path:
    """Writes files below `root`, making their folders."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root


#: An OpenVINO IR as far as its shell goes: one constant of 16 bytes.
IR_XML = """<?xml version="1.0"?>
<net name="m" version="11"><layers>
<layer id="0" name="w" type="Const" version="opset1">
<data element_type="f32" offset="0" shape="4" size="16"/></layer>
</layers><edges/></net>
"""
