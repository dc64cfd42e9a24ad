"""Several models in one process: each sees its own code, settings and output, as if alone."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from pool_harness import LanesOfPool, ask, model, pool
from tests.kit import model_files
from tests.kit.polling import until

from penstock.errors import ModelError, NotNowError
from penstock.runtimes.base import Payload
from penstock.runtimes.python.triton_wire import unpack_answer
from penstock.runtimes.tensor_bytes import pack

#: Answers with what it sees of its process.
SEES = """
import os, sys
import helpers

def model_fn(model_dir):
    os.environ["ITS_OWN"] = helpers.WHO
    return model_dir

def predict_fn(data, model_dir):
    import helpers as again
    import lazy
    return {
        "helpers": helpers.WHO, "again": again.WHO, "lazy": lazy.WHO, "same": again is helpers,
        "dir": model_dir, "cwd": os.getcwd(), "path": sys.path[0], "own": os.environ["ITS_OWN"],
        "program": os.environ["SAGEMAKER_PROGRAM"],
        "submitted": os.environ["SAGEMAKER_SUBMIT_DIRECTORY"],
        "sm_model_dir": os.environ["SM_MODEL_DIR"], "pid": os.getpid(),
        "weights": open(os.path.join(model_dir, "weights")).read(),
    }
"""


def seeing(folder: Path, who: str) -> Path:
    made = model(folder / who, SEES, helpers=f"WHO = {who!r}\n")
    (made / "code" / "lazy.py").write_text(f"WHO = {'lazy ' + who!r}\n")
    (made / "weights").write_text(f"of {who}")
    return made


async def test_two_models_with_the_same_module_names_each_get_their_own(tmp_path: Path) -> None:
    """Modules imported at the start and later, files, folders and variables; in turns."""
    async with pool(tmp_path) as both:
        a = await both.load(seeing(tmp_path, "a"))
        b = await both.load(seeing(tmp_path, "b"))
        told: list[Any] = [await ask(each) for each in (a, b, a, b)]
        assert len({each["pid"] for each in told}) == 1
        assert told[:2] == told[2:]
        for who, seen in zip("ab", told, strict=False):
            shown = seen["dir"]
            assert seen == {
                "helpers": who, "again": who, "lazy": f"lazy {who}", "same": True,
                "dir": shown, "cwd": shown, "path": f"{shown}/code", "own": who,
                "program": "inference.py", "submitted": f"{shown}/code",
                "sm_model_dir": shown, "pid": seen["pid"], "weights": f"of {who}",
            }  # fmt: skip
        assert told[0]["dir"] != told[1]["dir"]


async def test_libraries_are_imported_once_and_a_models_own_file_hides_one(tmp_path: Path) -> None:
    """`colorsys` is the standard library's for one model, and another's own file."""
    library = "import colorsys\ndef model_fn(d): return 0\n"
    tells = (
        "def predict_fn(data, m):\n"
        "    import colorsys as again\n"
        "    return [id(colorsys), hasattr(again, 'rgb_to_hsv'), again is colorsys]\n"
    )
    async with pool(tmp_path) as some:
        first = await some.load(model(tmp_path / "first", library + tells))
        own = model(tmp_path / "own", library + tells)
        (own / "code" / "colorsys.py").write_text("x = 1\n")
        hiding = await some.load(own)
        third = await some.load(model(tmp_path / "third", library + tells))
        told = [await ask(each) for each in (first, hiding, third, first, hiding)]
        assert [each[1] for each in told] == [True, False, True, True, False]
        assert all(each[2] for each in told)
        assert told[0] == told[2] == told[3]
        assert told[1] == told[4]


async def test_a_models_own_file_hides_a_library_that_another_imported_meanwhile(
    tmp_path: Path,
) -> None:
    tells = "def model_fn(d): return 0\ndef predict_fn(data, m):\n    import colorsys\n"
    tells += "    return hasattr(colorsys, 'rgb_to_hsv')\n"
    async with pool(tmp_path) as some:
        own = model(tmp_path / "own", tells)
        (own / "code" / "colorsys.py").write_text("x = 1\n")
        hiding = await some.load(own)
        other = await some.load(model(tmp_path / "other", f"import colorsys\n{tells}"))
        assert [await ask(each) for each in (other, hiding, other)] == [True, False, True]


async def test_what_a_model_changes_of_its_process_while_it_answers_is_its_own(
    tmp_path: Path,
) -> None:
    """Variables, the working directory, the search path and the streams."""
    source = (
        "import io, os, sys\n"
        "def model_fn(d): return d\n"
        "def predict_fn(data, d):\n"
        "    seen = [os.environ.get('SET'), os.getcwd() == d, '/x' in sys.path,\n"
        "            type(sys.stderr).__name__, os.environ.get('LANG')]\n"
        "    if data:\n"
        "        os.environ['SET'] = 'mine'\n"
        "        os.chdir('/')\n"
        "        sys.path.append('/x')\n"
        "        sys.stderr = io.StringIO()\n"
        "    return seen\n"
    )
    async with pool(tmp_path) as some:
        both = {"environment": {"LANG": "C.UTF-8"}}
        a = await some.load(model(tmp_path / "a", source), **both)
        b = await some.load(model(tmp_path / "b", source), **both)
        untouched = [None, True, False, "TextIOWrapper", "C.UTF-8"]
        assert await ask(a, 1) == untouched
        assert await ask(b, 0) == untouched
        assert await ask(a, 0) == ["mine", False, True, "StringIO", "C.UTF-8"]
        assert await ask(b, 0) == untouched


async def test_models_of_tritons_contract_and_of_sagemakers_share_a_worker(tmp_path: Path) -> None:
    triton = (
        "import triton_python_backend_utils as pb_utils\n"
        "class TritonPythonModel:\n"
        "    def execute(self, requests):\n"
        "        return [pb_utils.InferenceResponse([pb_utils.Tensor('y', 2 *\n"
        "            pb_utils.get_input_tensor_by_name(r, 'x').as_numpy())]) for r in requests]\n"
    )
    import numpy as np

    def tensor(name: str) -> dict[str, Any]:
        return {"name": name, "dtype": "FP32", "shape": [-1]}

    async with pool(tmp_path) as some:
        plain = await some.load(
            model(tmp_path / "plain", "def model_fn(d): return 3\n"
                  "def predict_fn(data, m): return m * data['x']\n")
        )  # fmt: skip
        twice = await some.load(
            model_files.code(
                tmp_path / "twice", triton, triton_python=True,
                inputs=[tensor("x")], outputs=[tensor("y")],
            )
        )  # fmt: skip
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        packed = pack({"x": np.array([1.5, 2.0], np.float32)})
        twice.invoke(0, [Payload(b"", packed)], answered.set_result)
        (reply,) = await answered
        assert unpack_answer(reply.body)["y"].tolist() == [3.0, 4.0]
        assert await ask(plain, {"x": 2}) == 6
        assert plain.pids == twice.pids


def test_what_a_model_prints_is_told_to_its_own_log(tmp_path: Path) -> None:
    """By Python, by a program that it runs, by native code; at its load and in its answers."""
    source = (
        "import os, subprocess, sys\n"
        "def model_fn(d):\n"
        "    print(WHO, 'loads')\n"
        "def predict_fn(data, m):\n"
        "    print(WHO, 'answers')\n"
        "    print(WHO, 'warns', file=sys.stderr)\n"
        "    os.write(1, f'{WHO} writes\\n'.encode())\n"
        "    subprocess.run(['echo', WHO, 'runs'], check=True)\n"
        "    return 0\n"
    )

    async def scenario() -> None:
        async with pool(tmp_path) as some:
            runtimes = [
                await some.load(model(tmp_path / who, f"WHO = {who!r}\n{source}")) for who in "ab"
            ]
            for each in (*runtimes, *runtimes):
                assert await ask(each) == 0
            said = ["answers", "warns", "writes", "runs"]
            for who in "ab":
                lines = some.heard[who].lines
                wanted = [f"{who} {word}" for word in ("loads", *said, *said)]
                await until(lambda lines=lines, wanted=wanted: len(lines) >= len(wanted))
                assert lines == wanted

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("more", "shares"),
    [
        ({}, True),
        ({"environment": {"SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT": "text/csv"}}, True),
        ({"environment": {"OMP_NUM_THREADS": "3"}}, False),
        ({"environment": {"A_LIBRARY_MAY_READ": "this"}}, False),
        ({"environment": {"PENSTOCK_SHARED_WORKER": "false"}}, False),
        ({"isolated": False}, False),
    ],
)
async def test_models_share_a_worker_where_nothing_that_acts_on_a_process_differs(
    more: dict[str, Any], shares: bool, tmp_path: Path
) -> None:
    source = (
        "import os\ndef model_fn(d): return 0\ndef predict_fn(data, m): return\n"
        "def output_fn(p, accept): return str(os.environ.get('A_LIBRARY_MAY_READ')), accept\n"
    )
    async with pool(tmp_path) as some:
        first = await some.load(model(tmp_path / "a", source))
        second = await some.load(model(tmp_path / "b", source), **more)
        assert (first.pids == second.pids) is shares
        await second.close()


async def test_a_model_that_asks_for_other_libraries_has_another_worker(tmp_path: Path) -> None:
    source = "def model_fn(d): return 0\ndef predict_fn(data, m): return 0\n"
    async with pool(tmp_path) as some:
        folders = [model(tmp_path / name, source) for name in "abc"]
        (folders[1] / "code" / "requirements.txt").write_text("numpy\nonnx\n")
        (folders[2] / "code" / "requirements.txt").write_text("onnx\n\nnumpy\n")
        a, b, c = [await some.load(each) for each in folders]
        assert a.pids != b.pids == c.pids


async def test_a_worker_reads_what_it_is_shown_and_no_other_artifact(tmp_path: Path) -> None:
    """Behind walls that were built before the model came. Its files are links: no copy."""
    from penstock.runtimes.confinement.confined import landlock_version

    if not landlock_version():
        pytest.skip("this kernel has no Landlock: models are not confined")
    source = (
        "import os\ndef model_fn(d): return d\n"
        "def predict_fn(path, d):\n"
        "    try:\n        return open(path).read()\n"
        "    except OSError as error:\n        return type(error).__name__\n"
        "def output_fn(p, accept): return '\"' + p + '\"', accept\n"
    )
    private = tmp_path / "state"
    private.mkdir()
    (private / "key").write_text("private")
    async with pool(private) as some:
        folder = model(private / "m", source)
        (folder / "weights").write_text("w" * 5)
        runtime = await some.load(folder, private_dirs=(private,))
        shown = runtime.context.model_dir
        assert await ask(runtime, str(shown / "weights")) == "wwwww"
        assert (shown / "weights").stat().st_ino == (folder / "weights").stat().st_ino
        assert await ask(runtime, str(private / "key")) == "PermissionError"
        assert await ask(runtime, str(folder / "weights")) == "PermissionError"


async def test_a_model_that_raises_at_load_is_told_and_its_mates_go_on(tmp_path: Path) -> None:
    async with pool(tmp_path) as some:
        good = await some.load(
            model(tmp_path / "good", "def model_fn(d): return 1\n"
                  "def predict_fn(data, m): return m\n")
        )  # fmt: skip
        bad = model(tmp_path / "bad", "def model_fn(d): raise ValueError('no weights')\n"
                    "def predict_fn(data, m): return m\n")  # fmt: skip
        with pytest.raises(ModelError, match="ValueError: no weights"):
            await some.load(bad)
        assert await ask(good) == 1
        assert some.said("good") == []
        assert len((await some.workers.memory())[0].models) == 1


async def test_a_model_whose_files_can_not_be_given_to_a_worker_is_told(tmp_path: Path) -> None:
    from penstock.runtimes.confinement.confined import landlock_version

    if not landlock_version():
        pytest.skip("this kernel has no Landlock: models are not confined")
    source = "def model_fn(d): return 0\ndef predict_fn(data, m): return 0\n"
    async with pool(tmp_path) as some:
        here = model(tmp_path / "here", source)
        with pytest.raises(NotNowError, match="e/v/here: its files can't be given") as caught:
            await some.load(here, model_dir=tmp_path / "gone")
        assert caught.value.code == "no-room-for-files"
        assert some.workers.pids == []


async def _names(some: LanesOfPool) -> list[tuple[str, ...]]:
    return [each.models for each in await some.workers.memory()]


async def test_the_pool_tells_who_is_where(tmp_path: Path) -> None:
    source = "def model_fn(d): return 0\ndef predict_fn(data, m): return 0\n"
    async with pool(tmp_path, models_max=2, workers_max=1) as some:
        runtimes = [await some.load(model(tmp_path / name, source)) for name in "abc"]
        assert await _names(some) == [("a", "b"), ("c",)]
        await runtimes[0].close()
        await runtimes[2].close()
        assert await _names(some) == [("b",)]
        assert [row["models"] for row in some.workers.explain()["workers"].values()] == [["b"]]
        assert some.workers.pids == runtimes[1].pids
        assert json.dumps(some.workers.explain())
