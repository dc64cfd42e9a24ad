"""What the kernel says of a container's control group, of both versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.runtimes.workers.control_group import GroupUse, used_by


def written(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize(
    ("groups", "files"),
    [
        (
            "5:memory:/libpod/a\n3:cpu,cpuacct:/libpod/a\n0::/other\n",
            {
                "memory/libpod/a/memory.stat": "rss 1\ntotal_rss 70\ntotal_shmem 30\n",
                "cpu,cpuacct/libpod/a/cpuacct.usage": "2500000000\n",
            },
        ),
        (
            "0::/machine/a:b/container\n",
            {
                "machine/a:b/container/memory.stat": "anon 70\nfile 500\nshmem 30\n",
                "machine/a:b/container/cpu.stat": "usage_usec 2500000\nuser_usec 1\n",
            },
        ),
    ],
    ids=["v1", "v2"],
)
def test_memory_without_file_pages_and_time_are_the_groups(
    tmp_path: Path, groups: str, files: dict[str, str]
) -> None:
    proc = written(tmp_path / "proc", {"7/cgroup": groups, "self/cgroup": "0::/me\n"})
    root = written(tmp_path / "groups", files)
    assert used_by(7, proc=proc, root=root) == GroupUse(100, 2.5)
    assert used_by(8, proc=proc, root=root) is None, "it has ended"
    written(proc, {"self/cgroup": groups})
    assert used_by(7, proc=proc, root=root) is None, "the group is not the container's own"


def test_an_account_that_is_not_there_is_none(tmp_path: Path) -> None:
    proc = written(tmp_path / "proc", {"7/cgroup": "0::/a\n", "self/cgroup": "0::/me\n"})
    assert used_by(7, proc=proc, root=tmp_path) is None


@pytest.mark.parametrize(
    "root_of", ["5:memory:/\n3:cpu,cpuacct:/libpod/a\n", "0::/\n"], ids=["v1", "v2"]
)
def test_one_that_has_ended_does_not_take_what_the_machine_takes(
    tmp_path: Path, root_of: str
) -> None:
    """Until it is waited for, the kernel counts it to the root."""
    proc = written(tmp_path / "proc", {"7/cgroup": root_of, "self/cgroup": "0::/me\n"})
    stat = "total_rss 9\ntotal_shmem 9\nanon 9\nshmem 9\n"
    root = written(
        tmp_path / "groups",
        {
            "memory/memory.stat": stat,
            "memory.stat": stat,
            "cpu.stat": "usage_usec 1\n",
            "cpu,cpuacct/libpod/a/cpuacct.usage": "1\n",
        },
    )
    assert used_by(7, proc=proc, root=root) is None
