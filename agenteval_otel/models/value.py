"""`Value`, the base of all frozen values, and `PartlyRead`, of those with fields that are read late.

`construct` and `copy_with` skip the validation, for fields that are valid.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import cache, cached_property
from numbers import Integral, Number
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

V = TypeVar("V", bound="Value")
_DICT: Final = vars(BaseModel)["__dict__"]
stored_fields: Final[Callable[[BaseModel], dict[str, Any]]] = _DICT.__get__
"""Returns the fields as they are stored: those that nothing has looked at are `Later`."""
store_fields: Final[Callable[[BaseModel, dict[str, Any]], None]] = _DICT.__set__


def by_name(
    model: type[BaseModel], args: tuple[Any, ...], fields: dict[str, Any]
) -> dict[str, Any]:
    """Return the fields with the positional arguments by their names.

    These are the names of the fields with ``kw_only=False``.

    Raises:
        TypeError: There are more arguments than such fields, or a field is given twice.
    """
    names = [name for name, field in model.model_fields.items() if field.kw_only is False]
    positional = dict(zip(names, args, strict=False))
    if len(args) > len(names) or positional.keys() & fields.keys():
        keywords: list[str] = []
        for name, field in model.model_fields.items():
            if field.is_required() and name not in names:
                keywords.append(name)
        if not keywords:
            keywords = [next(name for name in field_names(model) if name not in names)]
        example = ", ".join([*names, *(f"{name}=..." for name in keywords)])
        raise TypeError(
            f"{model.__name__} takes its fields by keyword: {model.__name__}({example})"
        )
    return positional | fields


def field_names(model: type[BaseModel]) -> list[str]:
    """Return the names of a model's fields, its own before inherited ones."""
    own = [name for name in inspect.get_annotations(model) if name in model.model_fields]
    return [*dict.fromkeys((*own, *model.model_fields))]


class Value(BaseModel):
    """A frozen value: snake_case in Python, camelCase in JSON (accepted and, by alias, written)."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        ignored_types=(cached_property,),
        ser_json_inf_nan="null",
    )

    if not TYPE_CHECKING:  # type checkers take the signature from the fields

        def __init__(self, *args, **fields):
            if args:
                fields = by_name(type(self), args, fields)
            super().__init__(**fields)

        __init__.__pydantic_base_init__ = True  # validation need not call it


class Later:
    """Holds what reads a field, and once something has looked at the field, what was read.

    Copies of a value share it, so the field is read once for all of them.

    Args:
        read: Returns the field. It must not raise, and may run on any thread.
    """

    __slots__ = ("_read", "_value")

    def __init__(self, read: Callable[[], Any]) -> None:
        self._read: Callable[[], Any] | None = read
        self._value: Any = None

    def value(self) -> Any:
        """Return the field. Of two threads that look at once, both may read it, to the same end.

        There is no lock: a forked child would inherit it closed.
        """
        read = self._read
        if read is not None:
            self._value = read()
            # Last: another thread returns the value as soon as there is nothing to read.
            self._read = None
        return self._value


class _LaterField:
    """Gives a field of a value, and reads it first if that is still to be done."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, value: PartlyRead | None, owner: type) -> Any:
        # Fields are no attributes of a pydantic class, nor of a value that is still to be filled.
        fields = {} if value is None else stored_fields(value)
        if self._name not in fields:
            raise AttributeError(self._name)
        field = fields[self._name]
        if type(field) is Later:
            field = field.value()
            fields[self._name] = field
        return field

    def __set__(self, value: PartlyRead, field: object) -> None:
        raise AttributeError(f"{self._name} is frozen")  # pydantic refuses it before


class PartlyRead(Value):
    """Holds a value of which the fields in `later_fields` may be stored as `Later`.

    It behaves as if they were read at once: an attribute is read when it is looked at, and all
    fields are when something looks at ``__dict__``, as pydantic does to write, compare, copy and
    pickle a value.
    """

    later_fields: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        super().__pydantic_init_subclass__(**options)
        for name in cls.later_fields:
            setattr(cls, name, _LaterField(name))

    @property
    def __dict__(self) -> dict[str, Any]:
        """Return all fields. Read those that nothing has looked at before."""
        fields = stored_fields(self)
        for name in self.later_fields:
            if name in fields:
                getattr(self, name)
        return fields

    @__dict__.setter
    def __dict__(self, fields: dict[str, Any]) -> None:
        store_fields(self, fields)


def construct(model: type[V], fields: dict[str, Any]) -> V:
    """Build a value from known fields of the right types. Missing fields get their defaults.

    It takes a fourth of the time of validation, and a tenth of pydantic's `model_construct`. Each
    answer makes about ten.
    """
    defaults, allows_extra = _shape_of(model)
    extra: dict[str, Any] | None = {} if allows_extra else None
    return _assembled(model, defaults | fields, set(fields), extra, None)


def copy_with(value: V, changes: dict[str, Any]) -> V:
    """Return a copy with other fields. Unlike `model_copy`, it copies no cached properties."""
    model = type(value)
    if value.__pydantic_extra__:
        copied = value.model_copy(update=changes)
        for name in copied.__dict__.keys() - model.model_fields.keys():
            del copied.__dict__[name]
        return copied
    known, _ = _shape_of(model)
    fields = stored_fields(value) | changes
    if len(fields) != len(known):  # cached properties are stored there too, of the old fields
        fields = {name: fields[name] for name in known}
    fields_set = value.__pydantic_fields_set__ | changes.keys()
    return _assembled(
        model, fields, fields_set, value.__pydantic_extra__, value.__pydantic_private__
    )


def completed(value: V, fields: dict[str, Any]) -> V:
    """Set further fields of a value that was just built and is not shared yet.

    Return the same value.
    """
    stored_fields(value).update(fields)
    value.__pydantic_fields_set__.update(fields)
    return value


def _assembled(
    model: type[V],
    fields: dict[str, Any],
    fields_set: set[str],
    extra: dict[str, Any] | None,
    private: dict[str, Any] | None,
) -> V:
    value = model.__new__(model)
    store_fields(value, fields)
    put = object.__setattr__  # the frozen model's __setattr__ raises
    put(value, "__pydantic_fields_set__", fields_set)
    put(value, "__pydantic_extra__", extra)
    put(value, "__pydantic_private__", private)
    return value


@cache
def _shape_of(model: type[Value]) -> tuple[dict[str, Any], bool]:
    """Return the fields with their defaults, and whether there may be others."""
    defaults = {
        name: field.get_default(call_default_factory=True)
        for name, field in model.model_fields.items()
    }
    return defaults, model.model_config.get("extra") == "allow"


def number_of(value: Any) -> bool | int | float | None:
    """Return a number of any library as Python's own. None for what is no single real number.

    Scalars and arrays without a dimension (NumPy, PyTorch) answer ``item()``, `Decimal` and
    `Fraction` are of `numbers.Number`, others have ``__float__``. Text is no number, whatever it
    says. A number that no float holds is NaN.
    """
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, str | bytes | bytearray):
        return None
    try:
        dimensions = getattr(value, "ndim", 0)
        if isinstance(dimensions, int) and dimensions > 0:
            return None  # an array, even of one number
        if callable(getattr(value, "item", None)):
            value = value.item()
        if isinstance(value, bool | int | float):
            return value
        if isinstance(value, Integral):
            return int(value)
        has_float = callable(getattr(type(value), "__float__", None))
    except Exception:  # code of the user's own
        return None
    if not has_float or isinstance(value, str):
        return None
    try:
        return float(value)
    except Exception:
        return math.nan if isinstance(value, Number) else None


def refuse_truth_value(value: object) -> Any:
    """Return the value. Raise ValueError for true and false, which pydantic takes for numbers."""
    if isinstance(value, bool):
        raise ValueError("expected a number")
    return value


_MAX_DEPTH = 200
T = TypeVar("T")


def snapshot_of(value: T) -> T:
    """Return a copy whose lists, mappings, sets and values are its own, down to a depth.

    All else is shared.
    """
    copied: T = _copied(value, _MAX_DEPTH, {})
    return copied


def _copied(value: object, depth: int, known: dict[int, Any]) -> Any:
    if depth == 0 or not (isinstance(value, dict | list | set | Value) or type(value) is tuple):
        return value
    if id(value) in known:  # the same in two places, or within itself
        return known[id(value)]
    if isinstance(value, dict):
        mapping: dict[Any, Any] = {}
        known[id(value)] = mapping
        mapping.update({key: _copied(item, depth - 1, known) for key, item in dict.items(value)})
        return mapping
    if isinstance(value, list):
        items: list[Any] = []
        known[id(value)] = items
        items.extend([_copied(item, depth - 1, known) for item in list.__iter__(value)])
        return items
    if isinstance(value, set):
        return set(value)
    if isinstance(value, tuple):
        return tuple(_copied(item, depth - 1, known) for item in value)
    fields = {
        name: _copied(getattr(value, name), depth - 1, known) for name in value.model_fields_set
    }
    return copy_with(value, fields)
