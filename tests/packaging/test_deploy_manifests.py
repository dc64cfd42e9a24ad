"""What is in `deploy/` is what Kubernetes and Ray accept, by schemas that come with packages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.kit.environments import printed_by

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
KUBERNETES_VERSION = "1.31"

CHECK_KUBERNETES = """
import sys, yaml, kubernetes_validate
for document in yaml.safe_load_all(sys.stdin):
    kubernetes_validate.validate(document, sys.argv[1], strict=True)
    print(document["kind"])
"""

CHECK_RAY = """
import json, os, sys, yaml, jsonschema, ray
folder = os.path.join(os.path.dirname(ray.__file__), "autoscaler")
with open(os.path.join(folder, "ray-schema.json")) as schema:
    jsonschema.validate(yaml.safe_load(sys.stdin), json.load(schema))
print("valid")
"""


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


def kinds_accepted(texts: list[dict[str, Any]]) -> list[str]:
    given = yaml.safe_dump_all(texts)
    return printed_by("ray", "-c", CHECK_KUBERNETES, KUBERNETES_VERSION, given=given).split()


def test_kubernetes_accepts_gateways_and_control_plane() -> None:
    found = documents(DEPLOY / "kubernetes" / "penstock.yaml")
    assert kinds_accepted(found) == ["Namespace", "Service", "StatefulSet", "NetworkPolicy"]


def test_kubernetes_refuses_a_field_that_it_does_not_know() -> None:
    """Else the check above would say nothing."""
    [_, service, *_] = documents(DEPLOY / "kubernetes" / "penstock.yaml")
    service["spec"]["selektor"] = service["spec"].pop("selector")
    with pytest.raises(AssertionError, match="selektor"):
        kinds_accepted([service])


def test_kubernetes_accepts_the_pods_of_the_cluster() -> None:
    """KubeRay's own schema is in no package; what it makes of a RayCluster are pods."""
    [cluster] = documents(DEPLOY / "kubernetes" / "ray-cluster.yaml")
    assert (cluster["apiVersion"], cluster["kind"]) == ("ray.io/v1", "RayCluster")
    groups = [cluster["spec"]["headGroupSpec"], *cluster["spec"]["workerGroupSpecs"]]
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": group["template"]["metadata"] | {"name": "pod"},
            "spec": group["template"]["spec"],
        }
        for group in groups
    ]
    assert kinds_accepted(pods) == ["Pod", "Pod"]
    named = {"replicas", "minReplicas", "maxReplicas", "groupName", "rayStartParams", "template"}
    assert set(cluster["spec"]["workerGroupSpecs"][0]) == named


def test_the_server_finds_the_head_that_the_cluster_has() -> None:
    """KubeRay names the service of a head after its cluster."""
    [cluster] = documents(DEPLOY / "kubernetes" / "ray-cluster.yaml")
    server = next(
        one
        for one in documents(DEPLOY / "kubernetes" / "penstock.yaml")
        if one["kind"] == "StatefulSet"
    )
    args = server["spec"]["template"]["spec"]["containers"][0]["args"]
    assert f"--fleet=ray://{cluster['metadata']['name']}-head-svc:10001" in args


def test_heads_fork_processes_for_clients_without_grpcs_handlers() -> None:
    """With them the process may crash before it begins (grpc/grpc#43055, ray-project/ray#63202)."""
    [cluster] = documents(DEPLOY / "kubernetes" / "ray-cluster.yaml")
    [head] = cluster["spec"]["headGroupSpec"]["template"]["spec"]["containers"]
    assert {"name": "GRPC_ENABLE_FORK_SUPPORT", "value": "0"} in head["env"]
    [machines] = documents(DEPLOY / "ray" / "cluster.yaml")
    start = machines["head_start_ray_commands"][-1]
    assert start.startswith("GRPC_ENABLE_FORK_SUPPORT=0 ray start --head")


def test_ray_up_accepts_the_cluster_of_machines() -> None:
    given = (DEPLOY / "ray" / "cluster.yaml").read_text()
    assert printed_by("ray", "-c", CHECK_RAY, given=given).split() == ["valid"]
