"""Fetches the test vectors of botocore's source distribution into `.cache/vectors/`.

    python tests/wire/fetch_vectors.py

They are AWS's own statement of what its protocols and signatures look like, and belong to botocore:
they are read from its release on PyPI, never committed. Does nothing when they are there already.
Without network it says so and succeeds, and the tests that need them skip; with CI=true it fails.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path, PurePosixPath

VERSION = "1.44.5"
SHA256 = "a988f39e3a4484def0b8010f41128f71157da0515a4804fccce4739aa8f216da"
CACHE = Path(__file__).resolve().parents[2] / ".cache" / "vectors" / f"botocore-{VERSION}"
WANTED = (
    "tests/unit/protocols/input",
    "tests/unit/protocols/output",
    "tests/unit/auth/aws4_testsuite",
    "tests/unit/test_eventstream.py",
)
FILE_BYTES_MAX = 16 << 20
DOWNLOAD_S_MAX = 300


def main() -> int:
    if CACHE.is_dir():
        return 0
    try:
        with tempfile.TemporaryDirectory() as folder:
            archive = download(Path(folder))
            check(archive)
            unpack(archive)
    except (OSError, subprocess.SubprocessError, tarfile.TarError, ValueError) as error:
        print(f"botocore's test vectors could not be fetched: {error}", file=sys.stderr)
        return 1 if os.environ.get("CI") == "true" else 0
    print(f"botocore {VERSION}'s test vectors are in {CACHE}")
    return 0


def download(folder: Path) -> Path:
    """The source distribution, through pip and whatever index it is set up with."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--no-binary", "botocore", "--dest", str(folder)]
    # pip asks the build system for the metadata. The setuptools that is there saves a download.
    for isolation in (["--no-build-isolation"], []):
        done = subprocess.run(
            [*command, *isolation, f"botocore=={VERSION}"],
            capture_output=True,
            text=True,
            timeout=DOWNLOAD_S_MAX,
            check=False,
        )
        archives = list(folder.glob("botocore-*.tar.gz"))
        if done.returncode == 0 and archives:
            return archives[0]
    last_words = done.stderr.strip().splitlines()[-1:] or ["pip gave no reason"]
    raise ValueError(last_words[0])


def check(archive: Path) -> None:
    """Refuses an archive that isn't the release these tests were written against."""
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != SHA256:
        raise ValueError(f"{archive.name} has the SHA-256 {found}, not {SHA256}")


def unpack(archive: Path) -> None:
    """Writes the wanted regular files, under names that can't leave the folder; all or nothing."""
    CACHE.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE.parent) as folder:
        target = Path(folder) / "vectors"
        with tarfile.open(archive) as members:
            for member in members:
                path = PurePosixPath(*PurePosixPath(member.name).parts[1:])
                wanted = any(path.is_relative_to(name) for name in WANTED)
                if not wanted or not member.isreg() or ".." in path.parts:
                    continue
                source = members.extractfile(member)
                if source is None or member.size > FILE_BYTES_MAX:
                    raise ValueError(f"{member.name} can't be read")
                (target / path).parent.mkdir(parents=True, exist_ok=True)
                (target / path).write_bytes(source.read())
        try:
            target.rename(CACHE)
        except OSError:
            if not CACHE.is_dir():  # else another run was quicker
                raise
            shutil.rmtree(target)


if __name__ == "__main__":
    sys.exit(main())
