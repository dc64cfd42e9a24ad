"""Where PyTorch is not installed: nothing needs it until a model of it is loaded."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.kit import model_files, pt2_files

from penstock.artifacts.description.description import ModelDescription
from penstock.artifacts.detection.detect import detect
from penstock.errors import ModelError
from penstock.runtimes.base import LoadContext
from penstock.runtimes.loader import load_tensor_runtime
from penstock.runtimes.pytorch import library as torch_library
from penstock.runtimes.pytorch.library import Streams, compiles, device_of, failed


def context(folder: Path) -> LoadContext:
    detected = detect(folder)
    return LoadContext(
        model_dir=detected.root, description=detected.description, endpoint_name="e",
        variant_name="v", cores=1.0, memory_bytes_max=0,
    )  # fmt: skip


def test_loading_a_program_without_pytorch_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = importlib.import_module

    def missing(name: str) -> Any:
        if name != "torch":
            return usual(name)
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(torch_library.importlib, "import_module", missing)
    pt2_files.write(tmp_path / "model.pt2")
    with pytest.raises(ModelError) as caught:
        load_tensor_runtime(context(tmp_path))
    assert caught.value.code == "runtime-not-installed"
    assert "[torch]" in caught.value.hint


def test_a_broken_installation_is_told_from_a_missing_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> Any:
        raise OSError("libcudart.so.13: cannot open shared object file")

    monkeypatch.setattr(torch_library.importlib, "import_module", broken)
    with pytest.raises(ModelError, match="libcudart") as caught:
        torch_library.torch_library()
    assert caught.value.code == "runtime-broken"


def test_a_process_that_runs_other_models_does_not_import_pytorch(tmp_path: Path) -> None:
    """Looked at in a process of its own, with a PyTorch that fails when it is imported."""
    model_files.affine(tmp_path / "m")
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise SystemExit('imported')")
    script = (
        "import sys; from pathlib import Path\n"
        "import penstock.instance.loading.load, penstock.cli.main\n"
        "from tests.runtimes.test_torch_absent import context\n"
        "from penstock.runtimes.loader import load_tensor_runtime\n"
        "load_tensor_runtime(context(Path(sys.argv[1]))).close()\n"
        "print('torch' in sys.modules)\n"
    )
    root = Path(__file__).resolve().parents[2]
    run = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "m")],
        env={"PYTHONPATH": f"{tmp_path}:{root / 'src'}:{root}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == "False"
    assert importlib.util.find_spec("penstock.runtimes.pytorch.runtime") is not None


def torch_with(gpus: int) -> Any:
    """As much of PyTorch as choosing a device needs."""
    return SimpleNamespace(
        device=lambda kind, index=None: (kind, index),
        cuda=SimpleNamespace(is_available=lambda: gpus > 0, device_count=lambda: gpus),
    )


@pytest.mark.parametrize(
    ("wanted", "gpus", "accelerators", "chosen"),
    [
        ("", 0, 0, ("cpu", None)),
        ("", 2, 1, ("cuda", 0)),
        ("", 2, 0, ("cpu", None)),  # the machine has one, the instance type does not
        ("cpu", 2, 1, ("cpu", None)),
        ("cuda", 1, 1, ("cuda", 0)),
        ("cuda:1", 2, 0, ("cuda", 1)),
    ],
)
def test_a_model_runs_on_the_instances_gpu_or_where_it_is_told(
    wanted: str, gpus: int, accelerators: int, chosen: tuple[str, int | None]
) -> None:
    parameters = {"torch_device": wanted} if wanted else {}
    description = ModelDescription(runtime="torch", parameters=parameters)
    assert device_of(torch_with(gpus), description, accelerators=accelerators) == chosen


@pytest.mark.parametrize(("wanted", "gpus"), [("cuda", 0), ("cuda:2", 2)])
def test_a_gpu_that_is_missing_is_never_replaced_by_the_cpu(wanted: str, gpus: int) -> None:
    description = ModelDescription(runtime="torch", parameters={"torch_device": wanted})
    with pytest.raises(ModelError, match=wanted) as caught:
        device_of(torch_with(gpus), description, accelerators=gpus)
    assert caught.value.code == "device-absent"


def test_only_an_error_of_the_gpus_context_ends_the_process() -> None:
    torch = SimpleNamespace(cuda=SimpleNamespace(OutOfMemoryError=MemoryError))
    lost = failed(torch, RuntimeError("CUDA error: device-side assert triggered\nmore"))
    assert (lost.code, lost.ends_process) == ("device-lost", True)
    for error, code in ((MemoryError("no"), "out-of-memory"), (ValueError("x"), "model-failed")):
        told = failed(torch, error)
        assert (told.code, told.ends_process) == (code, False)


def test_streams_are_used_again_on_their_device() -> None:
    torch, streams = (
        SimpleNamespace(cuda=SimpleNamespace(Stream=lambda device: [device])),
        Streams(),
    )
    first = streams.take(torch, "cuda:0")
    streams.give("cuda:0", first)
    assert streams.take(torch, "cuda:1") is not first
    assert streams.take(torch, "cuda:0") is first
    assert streams.take(torch, "cuda:0") is not first


def test_whether_to_compile_is_true_or_false() -> None:
    def asked(value: str) -> ModelDescription:
        return ModelDescription(runtime="torch", parameters={"torch_compile": value})

    assert compiles(asked("true"))
    assert not compiles(asked("false"))
    with pytest.raises(ModelError, match="yes") as caught:
        compiles(asked("yes"))
    assert caught.value.code == "parameter-invalid"
