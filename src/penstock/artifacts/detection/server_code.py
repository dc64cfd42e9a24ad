"""Recognises a folder of a web application: which framework, which object, which of its paths.

The code is parsed and never executed. What is looked for are objects that a module makes at its top
level (`app = FastAPI()`) and the routes that decorators add to them. Where these leave no doubt the
application is served as it is; otherwise the error prints the model.yaml to write.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from penstock.errors import CallerError

#: Class of the application -> the arguments of `python -m` that serve it; "{app}" is module:object.
_ASGI: Final = ("uvicorn", "{app}", "--host", "127.0.0.1", "--port", "{port}")
_FLASK: Final = ("flask", "--app", "{app}", "run", "--host", "127.0.0.1", "--port", "{port}")
_CLASSES: Final = {
    "FastAPI": _ASGI, "Starlette": _ASGI, "Quart": _ASGI, "Litestar": _ASGI, "Sanic": (),
    "Flask": _FLASK, "Application": (), "Blocks": (), "Interface": (), "Service": (),
}  # fmt: skip
#: Classes with common names count only from these modules.
_MODULES: Final = {
    "Application": ("aiohttp", "web", "tornado"), "Blocks": ("gradio", "gr"),
    "Interface": ("gradio", "gr"), "Service": ("bentoml",),
}  # fmt: skip
_FILES_MAX: Final = 200
_FILE_BYTES_MAX: Final = 1 << 20
_HEALTH: Final = (
    "/ping",
    "/health",
    "/healthz",
    "/healthcheck",
    "/ready",
    "/readyz",
    "/livez",
    "/",
)
_PREDICT: Final = ("/invocations", "/predict", "/predictions", "/infer", "/inference", "/score")


@dataclass(slots=True)
class WebApp:
    """An application object, and the paths without parameters that its decorators name."""

    kind: str  #: name of its class
    module: str
    name: str
    gets: list[str] = field(default_factory=list)
    posts: list[str] = field(default_factory=list)

    @property
    def command(self) -> tuple[str, ...]:
        """() where nothing serves it without its own code."""
        words = _CLASSES.get(self.kind, ())
        app = f"{self.module}:{self.name}"
        return ("python", "-m", *(each.replace("{app}", app) for each in words)) if words else ()

    @property
    def health(self) -> str:
        """The path to ask; "" where none is sure to answer."""
        known = next((path for path in _HEALTH if path in self.gets), "")
        schema = "/openapi.json" if self.kind == "FastAPI" else ""
        return known or next(iter(self.gets), "") or schema

    @property
    def predict(self) -> str:
        """The path of requests; "" where several could be meant, or none is known."""
        known = next((path for path in _PREDICT if path in self.posts), "")
        return known or (self.posts[0] if len(self.posts) == 1 else "")


def web_apps(root: Path) -> list[WebApp]:
    """The applications that the modules at the top of `root` make."""
    found = []
    for path in sorted(root.glob("*.py"))[:_FILES_MAX]:
        if path.is_file() and path.stat().st_size <= _FILE_BYTES_MAX:
            try:
                tree = ast.parse(path.read_bytes())
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                continue
            found += _apps_of(tree, path.stem)
    return found


def _apps_of(tree: ast.Module, module: str) -> list[WebApp]:
    apps: dict[str, WebApp] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Call):
            kind = _class_of(node.value.func)
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if kind:
                apps |= {
                    each.id: WebApp(kind, module, each.id)
                    for each in targets
                    if isinstance(each, ast.Name)
                }
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for decorator in function.decorator_list:
                _add_route(decorator, apps)
    return list(apps.values())


def _class_of(function: ast.expr) -> str:
    *before, name = ast.unparse(function).split(".")
    allowed = _MODULES.get(name)
    if name not in _CLASSES or (allowed and not set(before) & set(allowed)):
        return ""
    return name


def _add_route(decorator: ast.expr, apps: dict[str, WebApp]) -> None:
    if not isinstance(decorator, ast.Call) or not isinstance(decorator.func, ast.Attribute):
        return
    owner, verb = decorator.func.value, decorator.func.attr
    app = apps.get(owner.id) if isinstance(owner, ast.Name) else None
    if app is None or not decorator.args or not isinstance(decorator.args[0], ast.Constant):
        return
    path = decorator.args[0].value
    if not isinstance(path, str) or not path.startswith("/") or set(path) & set("<{"):
        return
    methods = set(_methods(decorator)) if verb in ("route", "api_route") else {verb.upper()}
    app.gets += [path] if "GET" in methods else []
    app.posts += [path] if "POST" in methods else []


def _methods(route: ast.Call) -> Iterator[str]:
    for keyword in route.keywords:
        if keyword.arg == "methods" and isinstance(keyword.value, ast.List | ast.Tuple | ast.Set):
            for each in keyword.value.elts:
                if isinstance(each, ast.Constant):
                    yield str(each.value).upper()
            return
    yield "GET"


def not_clear(root: Path, apps: list[WebApp]) -> CallerError | None:
    """The error for a folder of a server that is not served by itself; None: it is no such folder.
    Its hint is the model.yaml to write."""
    if apps:
        app = apps[0]
        what = f"a {app.kind} application ({', '.join(f'{one.module}:{one.name}' for one in apps)})"
        command = app.command or ("python", f"{app.module}.py")
        unknown = "its path of requests is not clear" if app.command else "it serves itself"
        if len(apps) > 1:
            unknown = "several could be meant"
    elif (root / "Dockerfile").is_file() or (root / "serve").is_file():
        what = "a server (Dockerfile)" if (root / "Dockerfile").is_file() else "a server (serve)"
        app = WebApp("", "", "")
        command = ("./serve",) if (root / "serve").is_file() else ("python", "app.py")
        unknown = "images are not built here"
    else:
        return None
    words = ", ".join(f'"{each}"' if "{" in each else each for each in command)
    return CallerError(
        "artifact-layout-unknown",
        f"the artifact is {what}, and {unknown}",
        hint="Write a model.yaml beside it: "
        f"`{{schema: 1, runtime: process, command: [{words}], "
        f"health: {app.health or '/ping'}, predict: {app.predict or '/invocations'}}}`, where "
        "{port} stands for the port to listen on (SAGEMAKER_BIND_TO_PORT has it too), health "
        "answers 200 and predict takes the requests.",
    )


def only_server(app: WebApp) -> bool:
    """Whether command and paths leave no doubt."""
    return bool(app.command and app.health and app.predict)
