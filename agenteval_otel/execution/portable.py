"""How an evaluator reaches another process: where its class is, its configuration, and the variables that it needs."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from agenteval_otel.evaluators.base import Evaluator
from agenteval_otel.evaluators.imports import MAIN, importable, imported

__all__ = ["NotPortable", "environment_of", "load_evaluator", "serialize_evaluator", "with_environment"]


class NotPortable(Exception):
    """The evaluator cannot be made again in another process; the text says why."""


def serialize_evaluator(evaluator: Evaluator) -> dict[str, Any]:
    """What `load_evaluator` needs to make an equal evaluator in another process; JSON.

    Raises:
        NotPortable: It cannot be made again there.
    """
    kind = type(evaluator)
    try:
        place = importable(kind)
        fields = evaluator.to_child()
        again = kind.from_child(fields)
    except Exception as error:
        # Our own words name types and modules; what others raise may quote their configuration.
        raise NotPortable(
            str(error) if type(error) is LookupError else f"{type(error).__name__} in its fields"
        ) from None
    if again != evaluator or again.fingerprint != evaluator.fingerprint:
        raise NotPortable("its fields hold something that is not in its dump")
    main = _main() if MAIN in (place[0], *_modules_in(fields)) else None
    return {
        "place": place, "fields": fields, "fingerprint": evaluator.fingerprint, "main": main,
        "environment": environment_of(kind),
    }  # fmt: skip


def load_evaluator(recipe: Mapping[str, Any]) -> Evaluator:
    """The evaluator of a recipe, in another process.

    Raises:
        Exception: Whatever its module raises on import, or its class when it is built.
    """
    if recipe["main"] is not None:
        _load_main(recipe["main"])
    evaluator: Evaluator = imported(*recipe["place"]).from_child(recipe["fields"])
    # A function of the program itself has another module's name here; its results are signed as they are there.
    evaluator.__dict__["fingerprint"] = recipe["fingerprint"]
    evaluator.prepare()
    return evaluator


def environment_of(kind: type[Evaluator]) -> dict[str, str]:
    """The variables that evaluators of this class ask for, where they are set."""
    return {name: os.environ[name] for name in kind.child_environment if name in os.environ}


@contextmanager
def with_environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Variables of the process that are set for a while: only this evaluator sees its own, and only while it runs."""
    if not variables:
        yield
        return
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _modules_in(fields: Mapping[str, Any]) -> list[Any]:
    function = fields.get("function")
    return [function[0]] if isinstance(function, tuple | list) and function else []


def _main() -> dict[str, str]:
    """How the program's own file can be loaded without running it.

    Raises:
        NotPortable: It cannot: there is no file, or nothing in it says what is only for the program itself.
    """
    main = sys.modules.get(MAIN)
    spec, path = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if not isinstance(path, str) or not path.endswith(".py"):
        raise NotPortable("it is defined in a program without a file of its own")
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read())
    except (OSError, ValueError, SyntaxError):
        raise NotPortable("it is defined in a program whose file cannot be read") from None
    if not any(isinstance(node, ast.If) and _is_guard(node.test) for node in tree.body):
        raise NotPortable('it is defined in a program without `if __name__ == "__main__":`')
    name = getattr(spec, "name", None)
    return {"module": name} if isinstance(name, str) else {"path": os.path.abspath(path)}


def _is_guard(test: ast.expr) -> bool:
    text = ast.dump(test)
    return "'__name__'" in text and "'__main__'" in text


def _load_main(main: Mapping[str, str]) -> None:
    """Load the program's file under another name, so that what is only for the program itself does not run."""
    if MAIN in sys.modules and getattr(sys.modules[MAIN], "_agenteval_loaded", False):
        return
    import runpy
    import types

    module = types.ModuleType("__mp_main__")
    sys.modules[MAIN] = sys.modules["__mp_main__"] = module
    if "module" in main:
        names = runpy.run_module(main["module"], run_name="__mp_main__", alter_sys=True)
    else:
        names = runpy.run_path(main["path"], run_name="__mp_main__")
    module.__dict__.update(names)
    module.__dict__["_agenteval_loaded"] = True
    sys.modules[MAIN] = sys.modules["__mp_main__"] = module
