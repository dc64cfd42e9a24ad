"""An artifact's Python file as a module of its worker process."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from penstock.errors import ModelError


def import_code(path: Path) -> ModuleType:
    """The model's file as a module; its folder comes first on sys.path, as the toolkits do."""
    sys.path.insert(0, str(path.parent))
    name = path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ModelError("model-code-failed", f"{path.name} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
