"""A compile tells nobody outside of what it does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.kit import model_files

CONVERTS = """
import sys
from penstock.compile.libraries import need
need("openvino").convert_model(sys.argv[1])
"""


@pytest.mark.parametrize("agreed", [False, True])
def test_a_conversion_reports_to_analytics_only_where_somebody_has_agreed(
    tmp_path: Path, agreed: bool
) -> None:
    """OpenVINO's own rule: unless somebody has declined. Who reports gets a name in `~/intel`."""
    pytest.importorskip("openvino_telemetry", reason="openvino_telemetry is not installed")
    home = tmp_path / "home"
    (home / "intel").mkdir(parents=True)
    if agreed:
        (home / "intel" / "openvino_telemetry").write_text("1")
    # With CI it never reports. What it sends is refused at once.
    kept = {name: value for name, value in os.environ.items() if name != "CI"}
    nowhere = dict.fromkeys(("https_proxy", "HTTPS_PROXY"), "http://127.0.0.1:9")
    model = model_files.affine(tmp_path / "model") / "model.onnx"
    subprocess.run(
        [sys.executable, "-c", CONVERTS, str(model)],
        env=kept | nowhere | {"HOME": str(home)}, check=True, timeout=110,
    )  # fmt: skip
    assert (home / "intel" / "openvino_ga_cid").exists() is agreed
