"""An extension of griffe: the signature of a pydantic model names its fields.

The models take their fields by ``**fields``, which tells a reader nothing. `griffe-pydantic` does
not serve: it leaves that signature, and it fails on validators of fields that subclasses have.
"""

from __future__ import annotations

import ast
import inspect
import sys
from typing import Any

from griffe import Class, Extension, Function, Parameter, ParameterKind, Parameters
from pydantic import BaseModel
from pydantic.fields import FieldInfo

_BASES_OF_EVALUATORS = ("Evaluator", "CriterionEvaluator")
_PLAIN = (bool, int, float, str, type(None))


class FieldSignatures(Extension):
    """Give each class of a model an ``__init__`` with its fields.

    Only modules that are imported are looked at: `docs/site.py` imports what is public.
    """

    def on_class_members(self, *, cls: Class, **_: Any) -> None:
        """Set the signature when the class's source has been read."""
        model = getattr(sys.modules.get(cls.module.path), cls.name, None)
        if isinstance(model, type) and issubclass(model, BaseModel):
            cls.set_member("__init__", Function("__init__", parameters=_parameters_of(model)))


def _parameters_of(model: type[BaseModel]) -> Parameters:
    annotations = _annotations_of(model)
    own = inspect.get_annotations(model)
    fields = sorted(
        model.model_fields.items(),
        key=lambda item: (_is_keyword(item[1]), not item[1].is_required(), item[0] not in own),
    )
    shared = _shared_fields_of(model)
    parameters = [
        Parameter(
            name,
            annotation=annotations.get(name),
            kind=(
                ParameterKind.keyword_only
                if _is_keyword(field)
                else ParameterKind.positional_or_keyword
            ),
            default=None if field.is_required() else _default_of(field),
        )
        for name, field in fields
        if name not in shared
    ]
    if shared:
        parameters.append(Parameter("shared_fields", kind=ParameterKind.var_keyword))
    return Parameters(*parameters)


def _shared_fields_of(model: type[BaseModel]) -> set[str]:
    """Return the fields that a type of evaluator has as nearly all of the fifty have them."""
    if model.__name__ in _BASES_OF_EVALUATORS:
        return set()
    for number, base in enumerate(model.__mro__):
        if base.__name__ in _BASES_OF_EVALUATORS and issubclass(base, BaseModel):
            own = {name for one in model.__mro__[:number] for name in inspect.get_annotations(one)}
            return set(base.model_fields) - own
    return set()


def _is_keyword(field: FieldInfo) -> bool:
    return field.kw_only is not False


def _annotations_of(model: type[BaseModel]) -> dict[str, str]:
    """Return the types of fields as the source has them, without the parts of ``Annotated``."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        for name, annotation in inspect.get_annotations(base).items():
            text = (
                annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
            )
            parsed = ast.parse(text, mode="eval").body
            if isinstance(parsed, ast.Subscript) and ast.unparse(parsed.value) == "Annotated":
                parsed = parsed.slice.elts[0] if isinstance(parsed.slice, ast.Tuple) else parsed
            found[name] = ast.unparse(parsed)
    return found


def _default_of(field: FieldInfo) -> str:
    value = field.default
    if isinstance(value, tuple) and all(isinstance(one, _PLAIN) for one in value):
        return repr(value)
    return repr(value) if type(value) in _PLAIN else "..."
