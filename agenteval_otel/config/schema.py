"""The JSON Schema of settings files, for editors: every field, and every type of part that is registered.

It says what is documented: snake_case names, one form for each thing. Numbers, switches and choices may be references
``${VARIABLE}`` as well. What a file cannot say, such as functions, is left out.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from agenteval_otel.components import Component
from agenteval_otel.config.settings import AgentSettings, Settings
from agenteval_otel.sampling import Sampler
from agenteval_otel.storage import EvaluationStorageProvider

__all__ = ["attributes_of", "json_schema", "summary_of", "writable_fields", "writable_types"]

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_CONTRACT = "x-contract"
_UNWRITABLE = "x-unwritable"
_VARIABLE = {"type": "string", "pattern": r"\$\{[A-Za-z_]", "description": "A reference to a variable: ${NAME}."}
_SECTION = re.compile(r"^(?:Attributes|Args|Raises|Returns|Yields|Example|Examples):\s*$", re.MULTILINE)
_ENTRY = re.compile(r"^ {4}(\w[\w, ]*): (.*(?:\n {8,}.*)*)", re.MULTILINE)


def json_schema() -> dict[str, Any]:
    """The schema, draft 2020-12, of what is registered now: import plugins first to have theirs in it."""
    schema = _Schema()
    root = schema.model(Settings)
    root["properties"]["storage"] = _described(
        {"anyOf": [{"type": "array", "items": schema.choice(EvaluationStorageProvider)},
                   schema.choice(EvaluationStorageProvider)]}, root["properties"]["storage"]
    )  # fmt: skip
    agent = schema.model(AgentSettings)
    for properties in (root["properties"], agent["properties"]):
        properties["sampler"] = _described(schema.choice(Sampler, "null"), properties["sampler"])
    schema.definitions["AgentSettings"] = agent
    schema.definitions["profile"] = {**root, "description": "What differs from the file in this profile."}
    profiles = {
        "type": "object",
        "additionalProperties": {"$ref": "#/$defs/profile"},
        "description": "Named overlays: mappings merge, lists are replaced. AGENTEVAL_PROFILE chooses one.",
    }
    properties = {**root["properties"], "profiles": profiles, "$schema": {"type": "string"}}
    schema.complete()
    definitions = {name: _with_references(one) for name, one in sorted(schema.definitions.items())}
    return {
        "$schema": _DIALECT, "title": "Settings of agenteval-otel",
        **_with_references({**root, "properties": properties}),
        "$defs": {**definitions, "variable": _VARIABLE},
    }  # fmt: skip


def writable_fields(model: type[BaseModel]) -> dict[str, dict[str, Any]]:
    """The JSON Schema of each field that a file can say, described by the docstrings."""
    return dict(_Schema().model(model)["properties"])


def writable_types(contract: type[Component]) -> dict[str, type[Component]]:
    """The registered types of a contract that a file can say."""
    return {name: one for name, one in sorted(contract.registry.items()) if _is_writable(one)}


def _is_writable(model: type[Component]) -> bool:
    required = {name for name, field in model.model_fields.items() if field.is_required()}
    return required <= set(writable_fields(model))


class _Generator(GenerateJsonSchema):
    """Leaves places for what is chosen by type, and marks what no file can say."""

    def model_schema(self, schema: Any) -> JsonSchemaValue:
        model = schema["cls"]
        if isinstance(model, type) and issubclass(model, Component) and "contract" in model.__dict__:
            return {_CONTRACT: model.contract}
        found = super().model_schema(schema)
        texts = attributes_of(model)
        properties = {
            name: {**one, **({"description": texts[name]} if name in texts else {})}
            for name, one in found.get("properties", {}).items()
            if _UNWRITABLE not in str(one) and not _is_for_code(model, name)
        }
        required = [name for name in found.get("required", ()) if name in properties]
        found |= {"description": summary_of(model), "properties": properties, "required": required}
        return {key: value for key, value in found.items() if value not in ("", [])}

    def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> JsonSchemaValue:
        return {_UNWRITABLE: True}

    def emit_warning(self, kind: Any, detail: str) -> None:
        """Nobody wants to know that a default is no JSON."""


class _Schema:
    def __init__(self) -> None:
        self.definitions: dict[str, Any] = {}
        self._wanted: dict[str, type[Component]] = {}
        self._hidden: set[str] = set()

    def model(self, model: type[BaseModel]) -> dict[str, Any]:
        """A model's schema; what it refers to goes to the definitions."""
        made = model.model_json_schema(by_alias=False, schema_generator=_Generator)
        for name, definition in made.pop("$defs", {}).items():
            if _UNWRITABLE in definition:
                self._hidden.add(f"#/$defs/{name}")
            else:
                self.definitions.setdefault(name, definition)
        for name, definition in self.definitions.items():
            self.definitions[name] = self._with_choices(definition)
        made.setdefault("properties", {})
        return dict(self._with_choices(made))

    def choice(self, contract: type[Component], *others: str) -> dict[str, Any]:
        """A reference to the choice of a contract's types."""
        self._wanted.setdefault(contract.contract, contract)
        reference = {"$ref": f"#/$defs/{contract.contract}"}
        return {"anyOf": [reference, *({"type": other} for other in others)]} if others else reference

    def complete(self) -> None:
        """Define every choice that is referred to; they may refer to others."""
        while missing := [name for name in self._wanted if name not in self.definitions]:
            for name in missing:
                self.definitions[name] = {}
                self.definitions[name] = self._choice_of(self._wanted[name])

    def _choice_of(self, contract: type[Component]) -> dict[str, Any]:
        references, bare = [], []
        for name, model in writable_types(contract).items():
            made = self.model(model)
            if not made.get("required"):
                bare.append(name)
            made["properties"] = {"type": {"const": name}, **made["properties"]}
            made["required"] = ["type", *made.get("required", ())]
            self.definitions[f"{contract.contract}.{name}"] = made
            references.append({"$ref": f"#/$defs/{contract.contract}.{name}"})
        choices: list[dict[str, Any]] = [{"oneOf": references}] if references else []
        if bare:
            choices.append({"enum": bare, "description": "A type with its defaults."})
        return {"anyOf": choices} if choices else {"not": {}}

    def _with_choices(self, found: Any) -> Any:
        if isinstance(found, list):
            shown = [item for item in found if not (isinstance(item, Mapping) and item.get("$ref") in self._hidden)]
            return [self._with_choices(item) for item in shown]
        if not isinstance(found, Mapping):
            return found
        if _CONTRACT in found:
            contract = _contract_of(found[_CONTRACT])
            return {**self.choice(contract), **{key: found[key] for key in ("description",) if key in found}}
        return {key: self._with_choices(value) for key, value in found.items() if key != "discriminator"}


def _contract_of(word: str) -> type[Component]:
    return next(one for one in Component.__subclasses__() if one.__dict__.get("contract") == word)


def _is_for_code(model: type[BaseModel], name: str) -> bool:
    field = model.model_fields[name]
    return field.exclude is True and field.annotation is Any


def _described(found: dict[str, Any], like: Mapping[str, Any]) -> dict[str, Any]:
    return {**found, **({"description": like["description"]} if "description" in like else {})}


def _with_references(found: Any, key: str = "") -> Any:
    """Let numbers, switches and choices be references to variables, and strip titles, which only repeat names."""
    if isinstance(found, list):
        return [_with_references(item, key) for item in found]
    if not isinstance(found, Mapping):
        return found
    if key == "properties":
        return {name: _with_references(value) for name, value in found.items()}
    made = {
        name: value if name in _LITERAL else _with_references(value, name)
        for name, value in found.items() if name != "title"
    }  # fmt: skip
    if "enum" not in made and made.get("type") not in ("number", "integer", "boolean"):
        return made
    outer = {name: made.pop(name) for name in ("description", "default") if name in made}
    return {"anyOf": [made, {"$ref": "#/$defs/variable"}], **outer}


_LITERAL = frozenset({"default", "enum", "const", "required", "description"})


def summary_of(model: type[BaseModel]) -> str:
    """A model's docstring up to its first section, each paragraph on one line."""
    text = _SECTION.split(inspect.cleandoc(model.__dict__.get("__doc__") or ""))[0]
    return "\n\n".join(_one_line(paragraph) for paragraph in text.strip().split("\n\n"))


def attributes_of(model: type[BaseModel]) -> dict[str, str]:
    """The description of each field, from the docstrings of the model and of its bases."""
    descriptions: dict[str, str] = {}
    for base in reversed(model.__mro__):
        text = inspect.cleandoc(base.__dict__.get("__doc__") or "")
        _, _, after = text.partition("\nAttributes:\n")
        section = re.split(r"^\S", after, maxsplit=1, flags=re.MULTILINE)[0]
        for names, description in _ENTRY.findall(section):
            descriptions |= {name.strip(): _one_line(description) for name in names.split(",")}
    return {name: text for name, text in descriptions.items() if name in model.model_fields}


def _one_line(text: str) -> str:
    # Marks of the code's own documents (`name`, ``text``) read well as one kind of mark.
    return re.sub(r"\s+", " ", text).replace("``", "`").strip()
