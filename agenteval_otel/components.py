"""Component: a frozen model that configuration chooses by ``type``.

Every extension point (evaluators, samplers, storage providers, ...) is a contract: a direct subclass of `Component`.
An implementation names its type in the class line (``class RuleBased(Evaluator, type="RuleBased")``) and is then known
to its contract's registry. Nothing here runs while answers are evaluated.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, cast, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    ValidationError,
    computed_field,
    model_serializer,
    model_validator,
)
from pydantic.alias_generators import to_camel

from agenteval_otel.errors import ConfigurationError
from agenteval_otel.masking import MASK, is_secret, mask, mask_text
from agenteval_otel.registry import Registry

__all__ = ["Component", "Explained", "PartError", "choices", "explain_validation", "load_each", "near", "resolve"]

C = TypeVar("C", bound="Component")
T = TypeVar("T")

if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)


class Explained(ModelMetaclass):
    """Metaclass of models that people write down: a wrong field raises `ConfigurationError` with its path."""

    def __call__(cls, *args: Any, **fields: Any) -> Any:
        """Build an instance, as pydantic does, with the error explained."""
        try:
            return super().__call__(*args, **fields)
        except ValidationError as error:
            raise explain_validation(error, cast(type[BaseModel], cls)) from None  # pydantic's report shows the input


class Component(BaseModel, metaclass=Explained):
    """A part chosen by ``type``: frozen, strict about unknown fields, dumped with its type.

    Field names are snake_case; camelCase is read too and written with ``by_alias``. Lazily made parts belong into
    `functools.cached_property`.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        loc_by_alias=False,  # what is wrong is named as it is documented
        arbitrary_types_allowed=True,
        ignored_types=(cached_property,),
        defer_build=True,  # of the many parts that are there a process uses few: import would pay for all
        hide_input_in_errors=True,
        allow_inf_nan=False,
    )

    contract: ClassVar[str] = "component"
    component_type: ClassVar[str] = ""
    registry: ClassVar[Registry] = Registry()
    unversioned: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__()  # the class line's words are read by the hook below, once the fields are known

    @classmethod
    def __pydantic_init_subclass__(cls, *, type: str | None = None, contract: str | None = None, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if contract is not None:
            cls.contract, cls.registry, cls.component_type = contract, Registry(), ""
            return
        if type is None:
            return
        had = cls.registry.taken_by(type, by=cls.__module__)
        if had is not None and had.__qualname__ != cls.__qualname__:
            raise ConfigurationError(f"{cls.contract} type {type!r} is taken by {had.__module__}.{had.__qualname__}")
        cls.component_type = type
        cls.registry[type] = cls

    @computed_field  # type: ignore[prop-decorator]
    @property
    def type(self) -> str:
        """The word that configuration chooses this class by."""
        return self.component_type or self.__class__.__name__

    @model_validator(mode="before")
    @classmethod
    def _type_belongs_to_class(cls, data: Any) -> Any:
        if not isinstance(data, Mapping) or "type" not in data:
            return data
        if data["type"] != cls.component_type:
            raise ValueError(f"type {data['type']!r} is not {cls.component_type!r}")
        return {key: value for key, value in data.items() if key != "type"}

    @model_serializer(mode="wrap")
    def _masked(self, dump: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        # A dump is shown, logged, kept: only who asks for the secrets by this word gets them.
        found: dict[str, Any] = dump(self)
        return found if (info.context or {}).get("secrets") else mask(found)

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            yield name, mask(value, name or "")

    @cached_property
    def fingerprint(self) -> str:
        """Twelve hexadecimal digits that change when the configuration changes (SHA-256 of the sorted JSON dump)."""
        fields = self.model_dump(mode="json", fallback=repr, exclude=set(self.unversioned))
        dump = json.dumps(fields, sort_keys=True, default=repr).encode("utf-8", "replace")
        return hashlib.sha256(dump).hexdigest()[:12]

    @classmethod
    def load(cls, data: Mapping[str, Any], *, path: str | None = None, context: dict[str, Any] | None = None) -> Self:
        """Build from configuration, explaining what is wrong by the field's path.

        Raises:
            ConfigurationError: With the path of the field, what was found and what was expected.
        """
        try:
            return cls.model_validate(dict(data), context=context)
        except ValidationError as error:
            raise explain_validation(error, cls, path=path) from None
        except ConfigurationError as error:  # of a part inside of this one, which knows its own place only
            raise error.under(path) from error


def resolve(contract: type[C], value: Any, *, path: str | None = None, context: dict[str, Any] | None = None) -> C:
    """Turn an instance, a ``{type: ...}`` mapping or the name of a type into a component of the contract.

    Raises:
        ConfigurationError: Not a component, unknown type (names the known ones) or wrong fields.
    """
    if isinstance(value, contract):
        return value
    if isinstance(value, str):
        value = {"type": value}
    if not isinstance(value, Mapping):
        found = value.__class__.__name__
        raise ConfigurationError(
            f"expected an instance of {contract.__name__}, a mapping with 'type' or a type's name, found {found}",
            path=path,
        )
    name = value.get("type")
    if not isinstance(name, str) or name not in contract.registry:
        wrong = "'type' is missing" if name is None else f"unknown {contract.contract} type {name!r}"
        raise ConfigurationError(f"{wrong}{choices(name, sorted(contract.registry))}", path=path)
    return cast(C, contract.registry[name].load(value, path=path, context=context))


def explain_validation(
    error: ValidationError, model: type[BaseModel], *, path: str | None = None
) -> ConfigurationError:
    """Translate pydantic's report: path of the field, found, expected, and the known fields for an unknown one."""
    problems: list[tuple[str | None, str]] = []
    for item in error.errors(include_url=False):
        if item["type"] == "default_factory_not_called":
            continue  # follows from another field's error, which is told
        where = _join(path, item["loc"])
        inner = item.get("ctx", {}).get("error")
        if isinstance(inner, PartError):
            above = item["loc"] if inner.of_model else item["loc"][:-1]
            problems += inner.failure.under(_join(path, above) if path or above else None).problems
        elif item["type"] == "extra_forbidden":
            known = _fields_at(model, item["loc"][:-1])
            problems.append((where, f"unknown field{choices(item['loc'][-1], known) if known else ''}"))
        elif item["type"] == "missing":
            problems.append((where, "required field is missing"))
        else:
            problems.append((where, _found(_expected(item), item)))
    return ConfigurationError.of(problems)


class PartError(ValueError):
    """What a validator found wrong with a part that it loaded: the model's other fields are then still checked.

    Args:
        failure: Its paths begin with the name of a field of the model.
        of_model: The validator is one of the whole model.
    """

    def __init__(self, failure: ConfigurationError, *, of_model: bool = False) -> None:
        self.failure, self.of_model = failure, of_model
        super().__init__(str(failure))


def load_each(load: Callable[[Any, str], T], values: Iterable[Any], *, path: str) -> tuple[T, ...]:
    """Load every entry of a list with `load(value, path)`; what is wrong with any of them is told at once.

    Raises:
        ConfigurationError: With the problems of all entries.
    """
    loaded: list[T] = []
    problems: list[tuple[str | None, str]] = []
    for index, value in enumerate(values):
        try:
            loaded.append(load(value, f"{path}[{index}]"))
        except ConfigurationError as failure:
            problems += failure.problems
    if problems:
        raise ConfigurationError.of(problems)
    return tuple(loaded)


def near(name: Any, known: Iterable[str]) -> str:
    """`` (did you mean 'x'?)`` where a known name looks like the given one, else nothing."""
    from difflib import get_close_matches  # only where something is wrong

    by_form = {one.lower().replace("-", "_"): one for one in known}
    found = get_close_matches(str(name)[:64].lower().replace("-", "_"), by_form, n=1, cutoff=0.7)
    return f" (did you mean {by_form[found[0]]!r}?)" if found else ""


def choices(name: Any, known: Iterable[str]) -> str:
    """`near`, and then all that is known: `` (did you mean 'x'?); known: x, y``."""
    names = list(known)
    return f"{near(name, names)}; known: {', '.join(names) or 'none'}"


def _fields_at(model: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    """The fields of the model at a place inside of another; keys and indexes of containers lead to what they hold."""
    models = {model}
    for part in location:
        models = {
            found for one in models
            for found in (_models_in(one.model_fields[str(part)].annotation) if part in one.model_fields else {one})
        }  # fmt: skip
    # What is left out of dumps and may be anything is an object of the program's: nobody misspells it in a file.
    return sorted({
        name for one in models for name, field in one.model_fields.items()
        if not (field.exclude and field.annotation is Any)
    })  # fmt: skip


def _models_in(annotation: Any) -> set[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return {annotation}
    return {found for inner in get_args(annotation) for found in _models_in(inner)}


def _join(path: str | None, location: tuple[int | str, ...]) -> str:
    text = path or ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else (f".{part}" if text else part)
    return text or "configuration"


_EXPECTED = {
    "tuple_type": "a list", "list_type": "a list", "frozen_set_type": "a list", "dict_type": "a mapping",
    "model_type": "a mapping", "model_attributes_type": "a mapping", "string_type": "text",
    "float_type": "a number", "float_parsing": "a number", "finite_number": "a finite number",
    "int_type": "a whole number", "int_parsing": "a whole number", "int_from_float": "a whole number",
    "callable_type": "a function",
    "bool_type": "true or false", "bool_parsing": "true or false", "less_than_equal": "at most {le}",
    "less_than": "less than {lt}", "greater_than_equal": "at least {ge}", "greater_than": "more than {gt}",
}  # fmt: skip


def _expected(item: Any) -> str:
    """What was expected, in the words of a settings file instead of Python's."""
    words = _EXPECTED.get(item["type"])
    if words is not None:
        bounds = item.get("ctx", {}).items()
        return "expected " + words.format(**{key: f"{one:g}" if isinstance(one, float) else one for key, one in bounds})
    said: str = item["msg"]
    return said.removeprefix("Value error, ").replace("Input should be ", "expected ", 1)


def _found(expected: str, item: Any) -> str:
    """What was expected and what was found; neither shows a secret."""
    value = item.get("input")
    if any(is_secret(part) for part in item["loc"] if isinstance(part, str)):
        shown = _shown(value).strip("'")
        return f"{expected.replace(shown, MASK) if shown else expected}, found {mask(value, 'secret')}"
    of_several = item["type"] == "value_error" and isinstance(value, Mapping)  # whose values say nothing together
    return mask_text(expected if of_several else f"{expected}, found {_shown(mask(value))}")


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:
        text = f"<{value.__class__.__name__}>"
    return text if len(text) <= 80 else text[:77] + "..."
