"""Errors of a configuration in the words of a settings file.

They have the field's path, its value and what was expected.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, dataclass_transform, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PrivateAttr, ValidationError

from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models.value import by_name
from agenteval_otel.runtime.masking import MASK, is_secret, mask, mask_text
from agenteval_otel.runtime.nearest import nearest

if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
    from pydantic_core import ErrorDetails
else:
    ModelMetaclass = type(BaseModel)


@dataclass_transform(kw_only_default=True, field_specifiers=(Field, PrivateAttr))
class FriendlyErrors(ModelMetaclass):
    """Metaclass of models that people write down.

    A wrong field raises `ConfigurationError` with its path.
    """

    if not TYPE_CHECKING:  # type checkers take the signature from the fields

        def __call__(cls, *args: Any, **fields: Any) -> Any:
            if args and cls.__init__ is BaseModel.__init__:  # not a constructor of the user's own
                fields = by_name(cls, args, fields)
                args = ()
            try:
                return super().__call__(*args, **fields)
            except ValidationError as error:
                raise explain_validation(error, cls) from None  # pydantic's report shows the input


def _known_zone(name: str) -> str:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # few settings have one

    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(
            "no such time zone: expected a name such as Europe/Berlin or UTC"
        ) from None
    return name


TimeZoneName: TypeAlias = Annotated[str, AfterValidator(_known_zone)]
"""The name of a time zone that this machine knows, such as ``Europe/Berlin``."""


class FrozenSettings(BaseModel, metaclass=FriendlyErrors):
    """A section of a settings file. Unknown fields are refused, and values are not shown in errors."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        arbitrary_types_allowed=True,
        allow_inf_nan=False,
        hide_input_in_errors=True,
    )


def explain_validation(
    error: ValidationError, model: type[BaseModel], *, path: str | None = None
) -> ConfigurationError:
    """Translate pydantic's report.

    A problem has the field's path, what was found and what was expected, and for an unknown
    field the known ones.
    """
    problems: list[tuple[str | None, str]] = []
    for item in error.errors(include_url=False):
        if item["type"] == "default_factory_not_called":
            continue  # follows from another field's error, which is reported
        where = _join(path, item["loc"])
        inner = item.get("ctx", {}).get("error")
        if isinstance(inner, ComponentError):
            above = item["loc"] if inner.of_model else item["loc"][:-1]
            prefix = _join(path, above) if path or above else None
            problems += inner.failure.with_prefix(prefix).problems
        elif item["type"] == "extra_forbidden":
            known = _fields_at(model, item["loc"][:-1])
            choices = known_choices(item["loc"][-1], known) if known else ""
            problems.append((where, f"unknown field{choices}"))
        elif item["type"] == "missing":
            problems.append((where, f"required field is missing{_example(model, item['loc'])}"))
        else:
            problems.append((where, _received(_expected(item), item)))
    return ConfigurationError.of(problems)


class ComponentError(ValueError):
    """Says what a validator found wrong with a part that it loaded.

    The model's other fields are then still checked.

    The failure's paths begin with the name of a field. With `of_model`, the validator is one of the
    whole model.
    """

    def __init__(self, failure: ConfigurationError, *, of_model: bool = False) -> None:
        self.failure = failure
        self.of_model = of_model
        super().__init__(str(failure))


def suggestion(name: object, known: Iterable[str]) -> str:
    """Return `` (did you mean 'x'?)`` if a known name is near the given one, else nothing."""
    meant = nearest(name, known)
    return "" if meant is None else f" (did you mean {meant!r}?)"


def known_choices(name: object, known: Iterable[str]) -> str:
    """Return `suggestion`, and then all that is known as a sentence: ``. Known: x, y``."""
    names = list(known)
    return f"{suggestion(name, names)}. Known: {', '.join(names) or 'none'}"


def _fields_at(model: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    """Return the fields of the model at a location inside another.

    Keys and indexes of containers lead to their items.
    """
    models = {model}
    for part in location:
        inside: set[type[BaseModel]] = set()
        for kind in models:
            if part in kind.model_fields:
                inside |= _models_in(kind.model_fields[str(part)].annotation)
            else:
                inside.add(kind)
        models = inside
    names: set[str] = set()
    for kind in models:
        for name, field in kind.model_fields.items():
            # Fields that are left out of dumps and take anything are objects of the program: a file
            # cannot name them.
            is_object = field.exclude and field.annotation is Any
            if not is_object:
                names.add(name)
    return sorted(names)


def _example(model: type[BaseModel], location: tuple[int | str, ...]) -> str:
    """Return an example of a field's value, where the field has one."""
    field = model.model_fields.get(str(location[0])) if len(location) == 1 else None
    return f", such as {field.examples[0]}" if field is not None and field.examples else ""


def _models_in(annotation: object) -> set[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return {annotation}
    models: set[type[BaseModel]] = set()
    for inner in get_args(annotation):
        models |= _models_in(inner)
    return models


def _join(path: str | None, location: tuple[int | str, ...]) -> str:
    text = path or ""
    for part in location:
        if isinstance(part, int):
            text += f"[{part}]"
        elif text:
            text += f".{part}"
        else:
            text += part
    return text or "configuration"


_EXPECTED = {
    "tuple_type": "a list", "list_type": "a list", "frozen_set_type": "a list", "dict_type": "a mapping",
    "model_type": "a mapping", "model_attributes_type": "a mapping", "callable_type": "a function",
    "float_type": "a number", "float_parsing": "a number", "finite_number": "a finite number", "string_type": "text",
    "int_type": "a whole number", "int_parsing": "a whole number", "int_from_float": "a whole number",
    "bool_type": "true or false", "bool_parsing": "true or false", "less_than_equal": "at most {le}",
    "too_short": "at least {min_length} of them", "less_than": "less than {lt}",
    "greater_than_equal": "at least {ge}", "greater_than": "more than {gt}",
}  # fmt: skip


def _expected(item: ErrorDetails) -> str:
    """Return the expected value, in the words of a settings file instead of Python's."""
    words = _EXPECTED.get(item["type"])
    if words is None:
        message: str = item["msg"]
        return message.removeprefix("Value error, ").replace("Input should be ", "expected ", 1)
    bounds = item.get("ctx", {}).items()
    shown = {key: f"{value:g}" if isinstance(value, float) else value for key, value in bounds}
    return f"expected {words.format(**shown)}"


def _received(expected: str, item: ErrorDetails) -> str:
    """Return the expected and the actual value. Neither shows a secret."""
    value = item.get("input")
    names = [part for part in item["loc"] if isinstance(part, str)]
    if is_secret(".".join(names)) or any(map(is_secret, names)):
        shown = _shown(value).strip("'")
        if shown:
            expected = expected.replace(shown, MASK)
        return f"{expected}, found {mask(value, 'secret')}"
    # A check of several fields: quoting the whole mapping would explain nothing.
    is_of_several_fields = item["type"] == "value_error" and isinstance(value, Mapping)
    if is_of_several_fields:
        return mask_text(expected)
    return mask_text(f"{expected}, found {_shown(mask(value))}")


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except Exception:
        text = f"<{value.__class__.__name__}>"
    return text if len(text) <= 80 else text[:77] + "..."


def _not_a_folder(path: Path | None) -> Path | None:
    if path is not None and path.is_dir():
        raise ValueError("expected a file, found a folder")
    return path


IS_FILE: Final = AfterValidator(_not_a_folder)
"""Of a field: its path may not be a folder."""
