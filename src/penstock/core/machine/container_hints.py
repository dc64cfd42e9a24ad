"""What to do about words in the log of a container that does not start.

They are of C libraries and of engines; nothing but the hint depends on them.
"""

from __future__ import annotations

from typing import Final

_ROOT: Final = (
    "The image writes to its root, which is read-only. The operator names the folders in"
    ' containers.scratch, or opens the root (containers.root = "writable").'
)
_QUOTA: Final = (
    "The engine's storage has no quotas: put it on XFS that is mounted with pquota, or leave"
    " containers.root_gib out."
)
_CDI: Final = (
    "No specification of CDI on this machine names these GPUs. Make one as root: nvidia-ctk cdi"
    " generate --output=/etc/cdi/nvidia.yaml (of NVIDIA's Container Toolkit)."
)
_RUNTIME: Final = (
    "Docker has no runtime for GPUs. Make one as root: nvidia-ctk runtime configure"
    " --runtime=docker (of NVIDIA's Container Toolkit), and restart Docker."
)
_PROCESSOR: Final = (
    "The image's program is for another processor: build or pull the image for this machine's"
    " (--platform)."
)
_HINTS: Final = (
    ("exec format error", _PROCESSOR),
    ("Read-only file system", _ROOT),
    ("only supported for backingFS XFS", _QUOTA),  # Podman
    ("only for overlay over xfs", _QUOTA),  # Docker
    ("unresolvable CDI devices", _CDI),
    ("could not select device driver", _RUNTIME),
)


def what_to_do(line: str) -> str:
    """ "" = nothing that is known."""
    return next((hint for words, hint in _HINTS if words in line), "")
