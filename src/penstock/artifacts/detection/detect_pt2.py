"""Checks the kind of a .pt2 file, and that it is whole, as an archive and without PyTorch.

Two kinds are served. A *program* (`torch.export.save`) is a graph with its tensors, and is data
once it passes the checks here. A *package* of AOTInductor holds machine code for one chip:
loading it runs that code, so it needs the operator's trust like a pickle does.

The format of a program is JSON and raw tensors, but PyTorch reads it without caution: it looks up
operator names below `torch` whatever they are, evaluates sizes and guards as Python, copies names
into generated code, imports modules that structures name, and reads three of the parts with the
full unpickler if need be. Each of these can run any program. So every such word must be on a list
here before PyTorch sees the file, and anything else is refused. Pickles are read opcode by opcode
and never executed.

This module knows the format alone, and must not import torch.
"""

from __future__ import annotations

import ast
import io
import json
import pickletools
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from penstock.artifacts.files.paths import safe_path, shown
from penstock.errors import CallerError

Read = Callable[[str], bytes]

MODEL = "models/model.json"
_CONFIGS = ("data/weights/model_weights_config.json", "data/constants/model_constants_config.json")
_SAMPLES = "data/sample_inputs/model.pt"
#: Parts of older releases' formats, which are pickles as a whole.
_PICKLES = ("data/weights/model.pt", "data/constants/model.pt")
_TENSOR_FILES = ("tensor_", "weight_")

#: Operators are torch.ops.<library>.<name>.<overload>; these libraries compute and nothing else.
_OPERATOR = re.compile(
    r"torch\.ops\.(aten|prims|quantized_decomposed)\.(?P<name>[A-Za-z0-9_]+)\.[A-Za-z0-9][A-Za-z0-9_]*"
)
_NESTED = re.compile(
    r"torch\.ops\.higher_order\.(cond|wrap_with_set_grad_enabled|wrap_with_autocast)"
)
_OF_SIZES = re.compile(
    r"torch\.(_?sym_[a-z0-9_]+|_check|_check_is_size)|math\.[a-z0-9]+"
    r"|_operator\.(add|sub|mul|floordiv|truediv|mod|neg|pow|pos|eq|ne|lt|le|gt|ge|and_|or_|not_"
    r"|getitem|lshift|rshift)"
)
_DUNDERS = re.compile(r"__i?(and|or|xor|lshift|rshift)__")
_FORBIDDEN_OPERATORS = ("from_file",)  #: maps a file of the server into a tensor
_STRUCTURES = (None, "builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict")

#: Functions and constants of sizes, as sympy's printer writes them.
_SIZE_NAMES = frozenset({
    "Symbol", "Integer", "Float", "Rational", "Add", "Mul", "Pow", "Max", "Min", "Mod", "FloorDiv",
    "CeilDiv", "CleanDiv", "PythonMod", "ModularIndexing", "Where", "FloorToInt", "CeilToInt",
    "TruncToInt", "RoundToInt", "ToFloat", "IntTrueDiv", "FloatTrueDiv", "PowByNatural", "Equality",
    "Eq", "Ne", "Lt", "Le", "Gt", "Ge", "Unequality", "StrictLessThan", "LessThan",
    "StrictGreaterThan", "GreaterThan", "And", "Or", "Not", "true", "false", "oo", "int_oo",
})  # fmt: skip
_POWERS = ("Pow", "PowByNatural")
_SYMBOL = re.compile(r"[a-z]{1,3}[0-9]{1,9}")
_SIZE_CHARS_MAX = 4096
_POWER_MAX = 8
_NUMBER_MAX = 2**63
_SIZE_NODES = (
    ast.Expression, ast.Call, ast.keyword, ast.Name, ast.Load, ast.Constant, ast.BinOp, ast.UnaryOp,
    ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.USub, ast.Compare,
    ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE,
)  # fmt: skip
#: Python's own, where a kernel pads a size (attention with a mask, on GPUs); L: the inputs by name.
_GUARD_NAMES = ("L", "max", "min")
_GUARD_NODES = (
    *_SIZE_NODES, ast.Attribute, ast.Subscript, ast.BoolOp, ast.And, ast.Or, ast.Not,
)  # fmt: skip
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,511}")
_PATH = re.compile(r"[A-Za-z0-9_.\-]{0,1024}")

_GLOBALS = re.compile(
    r"torch\._tensor _rebuild_from_type_v2|torch\._utils _rebuild_(tensor_v2|parameter)"
    r"|torch (Tensor|Size|device|[A-Z][A-Za-z0-9]{0,31}Storage|bool|u?int(8|16|32|64)"
    r"|b?float(16|32|64))|collections OrderedDict|torch\.nn\.parameter Parameter"
    r"|torch\.storage UntypedStorage"
)
#: Bound of the pickle of sample inputs: it holds names and shapes, the tensors lie beside it.
_PICKLE_BYTES_MAX = 16 * 1024 * 1024
#: Opcodes that call or name something which the text of GLOBAL does not show.
_HIDDEN = ("STACK_GLOBAL", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "EXT1", "EXT2", "EXT4")


#: Exceptions that content of another form raises; Python's own parser adds the last two.
_WRONG_FORMS = (
    ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError, SyntaxError,
    MemoryError,
)  # fmt: skip


def check_program(names: Iterable[str], read: Read, *, file: str) -> None:
    """Refuses a program that could run code.

    `names` are the archive's parts, and `read` returns the content of one.

    Raises CallerError (`artifact-untrusted`; `model-file-invalid` for content that is damaged).
    """
    known = set(names)
    unknown = [name for name in known if name.startswith("models/") and name != MODEL]
    if unknown:
        raise _refused(file, f"several programs ({shown(unknown[0])})")
    for name in _PICKLES:
        if name in known:
            raise _refused(file, f"{name}, a pickle of an older release")
    try:
        for name in _CONFIGS:
            if name in known:
                _check_payloads(json.loads(read(name)), file)
        program = json.loads(read(MODEL))
        for key, text in _texts(program):
            check = _CHECKS.get(key)
            if check is not None:
                check(text, file)
        if _SAMPLES in known:
            _check_samples(read(_SAMPLES), file)
    except _WRONG_FORMS as error:
        raise damaged(file, error) from None


def _texts(program: Any) -> Iterator[tuple[str, str]]:
    """(key, text) for every text in the program; without recursion, since depth could exhaust
    it."""
    left: list[tuple[str, Any]] = [("", program)]
    while left:
        key, part = left.pop()
        if isinstance(part, str):
            yield key, part
        elif isinstance(part, dict):
            left.extend(part.items())
        elif isinstance(part, list):
            left.extend((key, each) for each in part)


def _check_payloads(config: Any, file: str) -> None:
    for entry in config["config"].values():
        path = str(entry["path_name"])
        if entry.get("use_pickle") or not path.startswith(_TENSOR_FILES) or not path.isidentifier():
            raise _refused(file, f"the pickled object {shown(path)}")


def _check_operator(target: str, file: str) -> None:
    match = _OPERATOR.fullmatch(target)
    if match is not None:
        name = match["name"]
        if (not name.startswith("__") or _DUNDERS.fullmatch(name)) and (
            name not in _FORBIDDEN_OPERATORS
        ):
            return
    elif _NESTED.fullmatch(target) or _OF_SIZES.fullmatch(target):
        return
    raise _refused(file, f"the operator {shown(target)}")


def _check_name(text: str, file: str) -> None:
    if not _NAME.fullmatch(text):
        raise _refused(file, f"the name {shown(text)}")


def _check_path(text: str, file: str) -> None:
    if not _PATH.fullmatch(text):
        raise _refused(file, f"the name {shown(text)}")


def _check_object(text: str, file: str) -> None:
    raise _refused(file, f"the object {shown(text)}")


def _check_size(text: str, file: str) -> None:
    """Refuses a size that is not arithmetic on symbols: sympy would evaluate any Python in it."""
    _check_arithmetic(text, _SIZE_NODES, f"the size {shown(text)}", file)


def _check_guard(text: str, file: str) -> None:
    """Refuses a guard that is not a comparison of input sizes: `L['ids'].size()[1] <= 512`."""
    _check_arithmetic(text, _GUARD_NODES, f"the guard {shown(text)}", file)


def _check_arithmetic(text: str, nodes: tuple[type[ast.AST], ...], what: str, file: str) -> None:
    if len(text) > _SIZE_CHARS_MAX:
        raise _refused(file, f"an expression of {len(text)} characters")
    for node in ast.walk(ast.parse(text, mode="eval")):
        if not isinstance(node, nodes) or not _is_plain(node, of_guard=nodes is _GUARD_NODES):
            raise _refused(file, what)


def _is_plain(node: ast.AST, *, of_guard: bool) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr in ("size", "stride", "storage_offset", "ndim", "shape")
    if isinstance(node, ast.Name):
        known = node.id in _SIZE_NAMES or (of_guard and node.id in _GUARD_NAMES)
        return known or bool(_SYMBOL.fullmatch(node.id))
    if isinstance(node, ast.Constant):
        return _is_plain_constant(node.value, of_guard)
    if isinstance(node, ast.Call):
        if not isinstance(node.func, ast.Name):
            return of_guard and isinstance(node.func, ast.Attribute)
        # a tower of powers would be computed, and never end
        return node.func.id not in _POWERS or _is_small(node.args[-1])
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        return _is_small(node.right)
    return True


def _is_plain_constant(value: object, of_guard: bool) -> bool:
    if isinstance(value, str):
        wanted = _NAME if of_guard else _SYMBOL
        return bool(wanted.fullmatch(value)) or value.replace(".", "").isdigit()
    if isinstance(value, int):
        return abs(value) < _NUMBER_MAX
    return isinstance(value, float)


def _is_small(power: ast.AST) -> bool:
    if isinstance(power, ast.Call) and len(power.args) == 1 and not power.keywords:
        power = power.args[0]
    if isinstance(power, ast.UnaryOp):
        power = power.operand
    return isinstance(power, ast.Constant) and power.value in range(_POWER_MAX + 1)


def _check_structure(text: str, file: str) -> None:
    left = [json.loads(text)[1]]
    while left:
        part = left.pop()
        if part["type"] not in _STRUCTURES or "__enum__" in str(part["context"]):
            raise _refused(file, f"inputs or outputs in a {shown(str(part['type']))}")
        left.extend(part["children_spec"])


def _check_samples(content: bytes, file: str) -> None:
    """Refuses example inputs with any name that `torch.save` does not write for tensors."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            pickled = [info for info in archive.infolist() if info.filename.endswith(".pkl")]
            for info in pickled:
                if info.file_size > _PICKLE_BYTES_MAX:  # unpacking stops at this size too
                    raise _refused(file, f"sample inputs whose pickle has {info.file_size} bytes")
                for opcode, argument, _ in pickletools.genops(archive.read(info)):
                    named = opcode.name == "GLOBAL" and not _GLOBALS.fullmatch(str(argument))
                    if named or opcode.name in _HIDDEN:
                        what = str(argument) if named else opcode.name
                        raise _refused(file, f"{shown(what)} in the pickle of its sample inputs")
    except zipfile.BadZipFile:
        raise _refused(file, "sample inputs that are a bare pickle") from None
    if len(pickled) != 1:
        raise _refused(file, f"sample inputs with {len(pickled)} pickles")


def damaged(file: str, error: Exception) -> CallerError:
    words = " ".join(str(error).split())[:200] or type(error).__name__
    return CallerError(
        "model-file-invalid",
        f"{file}: not a whole program of torch.export: {words}",
        hint="Export the model again; a copy may have been cut short.",
    )


def _refused(file: str, what: str) -> CallerError:
    return CallerError(
        "artifact-untrusted",
        f"{file} holds {what}: loading it could run any program",
        hint="Export the model with torch.export from plain tensors and operators of aten; if the "
        "file is your own, the operator lists its URI in control.trusted_artifacts.",
    )


#: key in the program's JSON -> check of the texts under it
_CHECKS: dict[str, Callable[[str, str], None]] = {
    "target": _check_operator,
    "as_operator": _check_operator,
    "expr_str": _check_size,
    "guards_code": _check_guard,
    "in_spec": _check_structure,
    "out_spec": _check_structure,
    "name": _check_name,
    "as_name": _check_name,
    "forward_arg_names": _check_name,
    "user_input_name": _check_name,
    "parameter_name": _check_path,
    "buffer_name": _check_path,
    "tensor_constant_name": _check_path,
    "fqn": _check_path,
    "custom_obj_name": _check_object,
    "class_fqn": _check_object,
}


PROGRAM, PACKAGE = "program", "package"
_COMPILED = "data/aotinductor/"
#: PyTorch stores its parts uncompressed; a part that grows when it is read is no tensor.
_GROWTH_MAX = 4
_GROWTH_FREE_BYTES = 64 * 1024 * 1024
_NAMES_MAX = 100_000


def check_pt2(root: Path, name: str, *, trusted: bool) -> str:
    """Checks a .pt2 file; returns PROGRAM or PACKAGE.

    Raises CallerError: `model-file-invalid` (no .pt2 file, or not a whole one),
    `artifact-untrusted` (it could run code, and `trusted` is not given), `artifact-path-unsafe`.
    """
    path = root / name
    try:
        with zipfile.ZipFile(path) as archive:
            parts = _parts(archive, path.stat().st_size, name)
            kind = kind_of(parts, file=name)
            if trusted:
                return kind
            if kind == PACKAGE:
                raise CallerError(
                    "artifact-untrusted",
                    f"{name} is a package of AOTInductor: it holds machine code",
                    hint="Deploy the exported program instead (torch.export.save; penstock compile "
                    "makes it), or the operator lists the URI in control.trusted_artifacts.",
                )
            check_program(parts, lambda part: archive.read(parts[part]), file=name)
            return kind
    except (zipfile.BadZipFile, OSError, EOFError, NotImplementedError, RuntimeError) as error:
        raise damaged(name, error) from None


def kind_of(parts: Iterable[str], *, file: str) -> str:
    """PROGRAM or PACKAGE, by the parts' names. Raises CallerError (`model-file-invalid`)."""
    names = set(parts)
    if any(part.startswith(_COMPILED) for part in names):
        return PACKAGE
    if MODEL in names:
        return PROGRAM
    raise CallerError(
        "model-file-invalid",
        f"{file} is an archive without a program (models/model.json)",
        hint="Write it with torch.export.save of PyTorch 2.9 or later; a TorchScript or pickled "
        "file is another format.",
    )


def _parts(archive: zipfile.ZipFile, size: int, file: str) -> dict[str, str]:
    """Part -> its name in the archive, where one folder holds everything."""
    infos = archive.infolist()
    if min((info.header_offset for info in infos), default=1) != 0 or archive.comment:
        # A directory of an archive inside this one: the file's own end is missing.
        raise damaged(file, ValueError("it does not begin with its first part"))
    if len(infos) > _NAMES_MAX:
        raise damaged(file, ValueError(f"{len(infos)} parts"))
    if sum(info.file_size for info in infos) > size * _GROWTH_MAX + _GROWTH_FREE_BYTES:
        raise damaged(file, ValueError("its parts are many times larger than the file"))
    parts: dict[str, str] = {}
    for info in infos:
        part = safe_path(info.filename, where=file).partition("/")[2]
        if part in parts:
            raise damaged(file, ValueError(f"two parts are named {part!r}"))
        parts[part] = info.filename
    if len({info.filename.partition("/")[0] for info in infos}) > 1:
        raise damaged(file, ValueError("its parts are not in one folder"))
    return parts
