"""How an evaluator reaches another process: where its class is, its configuration, and the variables that it needs."""

from __future__ import annotations

import os
import re
import runpy
import sys
import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from agenteval_otel.evaluators.base import Evaluator
from agenteval_otel.evaluators.imports import MAIN, importable, imported


class RunsHere(Exception):
    """The evaluation cannot run in a worker process: it runs in a thread of this process."""


class NotPortable(RunsHere):
    """The evaluator cannot be made again in another process; the text says why."""


def serialize_evaluator(evaluator: Evaluator) -> dict[str, Any]:
    """What `load_evaluator` needs to make an equal evaluator in another process, in JSON; raises `NotPortable`."""
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
    function = fields.get("function")
    of_main = place[0] == MAIN or (isinstance(function, tuple | list) and MAIN in function)
    return {
        "place": place, "fields": fields, "fingerprint": evaluator.fingerprint, "main": _main() if of_main else None,
        "environment": {name: os.environ[name] for name in kind.child_environment if name in os.environ},
    }  # fmt: skip


def load_evaluator(recipe: Mapping[str, Any]) -> Evaluator:
    """The evaluator of a recipe, in another process; raises whatever its module or its class raises."""
    if recipe["main"] is not None:
        _load_main(recipe["main"])
    evaluator: Evaluator = imported(*recipe["place"]).from_child(recipe["fields"])
    # A function of the program itself has another module's name here; its results are signed as they are there.
    evaluator.__dict__["fingerprint"] = recipe["fingerprint"]
    evaluator.prepare()
    return evaluator


@contextmanager
def with_environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables for a while: only this evaluator sees its own, and only while it runs."""
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


def _main() -> dict[str, str]:
    """How the program's own file can be loaded without running it."""
    main = sys.modules.get(MAIN)
    spec, path = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if not isinstance(path, str) or not path.endswith(".py"):
        raise NotPortable("it is defined in a program without a file of its own")
    try:
        with open(path, "rb") as file:
            has_guard = re.search(rb"^if __name__ == ['\"]__main__['\"]", file.read(), re.MULTILINE)
    except OSError:
        raise NotPortable("it is defined in a program whose file cannot be read") from None
    if not has_guard:
        raise NotPortable('it is defined in a program without `if __name__ == "__main__":`')
    name = getattr(spec, "name", None)
    return {"module": name} if isinstance(name, str) else {"path": os.path.abspath(path)}


def _load_main(main: Mapping[str, str]) -> None:
    """Load the program's file under another name, so that what is only for the program itself does not run."""
    if "__mp_main__" in sys.modules:
        return
    module = types.ModuleType("__mp_main__")
    sys.modules[MAIN] = sys.modules["__mp_main__"] = module
    if "module" in main:
        names = runpy.run_module(main["module"], run_name="__mp_main__", alter_sys=True)
    else:
        names = runpy.run_path(main["path"], run_name="__mp_main__")
    module.__dict__.update(names)
    sys.modules[MAIN] = sys.modules["__mp_main__"] = module
