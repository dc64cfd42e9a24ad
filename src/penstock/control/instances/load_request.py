"""What an instance is told of a copy that it is to prepare, then to load."""

from __future__ import annotations

from penstock.artifacts.sources.source import ArtifactSource
from penstock.control.instances.entries import CopyEntry, InstanceEntry
from penstock.control.instances.instance_client import Json


def load_request(endpoint: str, entry: InstanceEntry, copy: CopyEntry) -> Json:
    """A copy that has its instance to itself may use all of it, any other the cores and the
    accelerators that it asked for. Of memory both are told what the instance has, or the most that
    a copy of the component may take."""
    component, need, kind = copy.component, copy.component.need, entry.kind
    environment = dict(component.model.environment)
    whole, share_bytes = need.whole_instance, kind.share_bytes or kind.memory_bytes
    return {
        "op": "load",
        "copy": copy.copy,
        "base_copy": copy.base_copy,
        "endpoint": endpoint,
        "variant": copy.variant,
        "source": ArtifactSource(
            uri=component.model.uri,
            compressed=component.model.compressed,
            image=component.model.image,
            environment=environment,
        ).to_dict(),
        "environment": environment,
        "network_isolated": component.model.network_isolated,
        "cores": kind.cores if whole or not need.cores else need.cores,
        "memory_bytes_max": min(share_bytes, need.memory_bytes_max or share_bytes),
        "accelerators": kind.accelerators if whole else need.accelerators,
        "multi_model": {"keeps_models": component.model.keeps_models}
        if component.model.multi_model
        else None,
        "download_timeout_s": component.download_timeout_s,
        "startup_timeout_s": component.startup_timeout_s,
    }
