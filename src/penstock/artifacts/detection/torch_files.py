"""What kind of file PyTorch wrote, by its content: TorchScript, a whole module, or weights alone.

`torch.jit.save` and `torch.save` write archives under the same names (*.pt, *.pth). TorchScript has
its program beside the tensors, as text; the others are one pickle with tensors beside it. Pickles
are read opcode by opcode and never executed. This module must not import torch.
"""

from __future__ import annotations

import pickletools
import zipfile
from pathlib import Path
from typing import Final

TORCHSCRIPT, MODULE, WEIGHTS, EXPORTED = "torchscript", "module", "weights", "exported"

_PICKLE_BYTES_MAX: Final = 64 * 2**20
#: What a dictionary of tensors is pickled with.
_PLAIN: Final = (
    "collections",
    "torch._utils",
    "torch._tensor",
    "torch.storage",
    "numpy",
    "_codecs",
)
_PLAIN_OF_TORCH: Final = ("Storage", "Size", "device", "dtype", "Tensor")


def kind_of(path: Path) -> str:
    """One of the kinds above; "" for a file that PyTorch did not write, or that is not whole."""
    try:
        with zipfile.ZipFile(path) as archive:
            parts = {name.partition("/")[2]: name for name in archive.namelist()}
            if "models/model.json" in parts:
                return EXPORTED
            if "data.pkl" not in parts:
                return ""
            if "constants.pkl" in parts and any(part.startswith("code/") for part in parts):
                return TORCHSCRIPT
            if archive.getinfo(parts["data.pkl"]).file_size > _PICKLE_BYTES_MAX:
                return MODULE
            return MODULE if classes_of(archive.read(parts["data.pkl"])) else WEIGHTS
    except (zipfile.BadZipFile, OSError, EOFError, NotImplementedError, RuntimeError, ValueError):
        return ""


def classes_of(pickled: bytes) -> list[str]:
    """Names of the classes that a pickle makes, without those of plain tensors. Raises ValueError
    for what is no pickle."""
    found: list[str] = []
    texts: list[str] = []
    for opcode, argument, _ in pickletools.genops(pickled):
        if opcode.name == "GLOBAL":
            module, _, name = str(argument).partition(" ")
        elif opcode.name == "STACK_GLOBAL" and len(texts) > 1:
            module, name = texts[-2:]
        else:
            if isinstance(argument, str):
                texts.append(argument)
            continue
        plain = module.startswith(_PLAIN) or (module == "torch" and name.endswith(_PLAIN_OF_TORCH))
        if not plain:
            found.append(f"{module}.{name}")
    return found


def first_class(path: Path) -> str:
    """The class of a pickled module, for errors; "" where it can't be told."""
    with zipfile.ZipFile(path) as archive:
        pickled = next(name for name in archive.namelist() if name.endswith("/data.pkl"))
        return next(iter(classes_of(archive.read(pickled))), "")
