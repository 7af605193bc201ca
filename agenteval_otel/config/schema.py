"""The JSON Schema of settings files, for editors.

It has every field that a file can express, and every registered type.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from agenteval_otel.components import Component
from agenteval_otel.config.settings import Settings
from agenteval_otel.engine.agent_settings import AgentSettings
from agenteval_otel.engine.capabilities.notify import MessagePlace
from agenteval_otel.sampling import Sampler
from agenteval_otel.storage import EvaluationStorageProvider

if TYPE_CHECKING:
    from pydantic.json_schema import JsonSchemaWarningKind
    from pydantic_core import core_schema

_CONTRACT = "x-contract"
_UNWRITABLE = "x-unwritable"
_VARIABLE = {
    "type": "string",
    "pattern": r"\$\{[A-Za-z_]",
    "description": "A reference to a variable: ${NAME}.",
}
_LITERAL = frozenset({"default", "enum", "const", "required", "description"})
_SECTION = re.compile(
    r"^(?:Attributes|Args|Raises|Returns|Yields|Example|Examples):\s*$", re.MULTILINE
)
_ENTRY = re.compile(r"^ {4}(\w[\w, ]*): (.*(?:\n {8,}.*)*)", re.MULTILINE)


def json_schema() -> dict[str, Any]:
    """Return the schema, draft 2020-12, with all registered types.

    Import plugins first to include theirs.
    """
    schema = _Schema()
    root = schema.model(Settings)
    agent = schema.model(AgentSettings)
    sampler = schema.choice(Sampler)
    listed: dict[str, type[Component]] = {
        "storage": EvaluationStorageProvider,
        "notify": MessagePlace,
    }
    for name, contract in listed.items():
        part = schema.choice(contract)
        several = {"anyOf": [{"type": "array", "items": part}, part]}
        root["properties"][name] = _described(several, root["properties"][name])
    for properties in (root["properties"], agent["properties"]):
        properties["sampler"] = _described(
            {"anyOf": [sampler, {"type": "null"}]}, properties["sampler"]
        )
    schema.definitions["AgentSettings"] = agent
    schema.definitions["profile"] = {
        **root,
        "description": "What differs from the file in this profile.",
    }
    profiles = {
        "type": "object",
        "additionalProperties": {"$ref": "#/$defs/profile"},
        "description": "Named overlays: mappings merge, lists are replaced. AGENTEVAL_PROFILE chooses one.",
    }
    properties = {**root["properties"], "profiles": profiles, "$schema": {"type": "string"}}
    schema.complete()
    definitions = {
        name: _with_references(definition)
        for name, definition in sorted(schema.definitions.items())
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Settings of agenteval-otel",
        **_with_references({**root, "properties": properties}),
        "$defs": {**definitions, "variable": _VARIABLE},
    }


def writable_fields(model: type[BaseModel]) -> dict[str, dict[str, Any]]:
    """Return the JSON Schema of each field that a file can express, described by the docstrings."""
    return dict(_Schema().model(model)["properties"])


def writable_types(contract: type[Component]) -> dict[str, type[Component]]:
    """Return the registered types of a contract that a file can express."""
    types = {}
    for name, model in sorted(contract.registry.items()):
        required = {key for key, field in model.model_fields.items() if field.is_required()}
        if required <= writable_fields(model).keys():
            types[name] = model
    return types


class _Generator(GenerateJsonSchema):
    """Leaves placeholders for parts that are chosen by type.

    Marks fields that no file can express.
    """

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        model = schema["cls"]
        if (
            isinstance(model, type)
            and issubclass(model, Component)
            and "contract" in model.__dict__
        ):
            return {_CONTRACT: model.contract}
        described = super().model_schema(schema)
        texts = attributes_of(model)
        properties = {}
        for name, field_schema in described.get("properties", {}).items():
            if _UNWRITABLE in str(field_schema):
                continue
            field = model.model_fields[name]
            # Fields that are left out of dumps and take anything are objects of the program.
            if field.exclude is True and field.annotation is Any:
                continue
            properties[name] = dict(field_schema)
            if name in texts:
                properties[name]["description"] = texts[name]
        required = [name for name in described.get("required", ()) if name in properties]
        described |= {
            "description": summary_of(model),
            "properties": properties,
            "required": required,
        }
        return {key: value for key, value in described.items() if value not in ("", [])}

    def handle_invalid_for_json_schema(
        self, schema: core_schema.CoreSchema, error_info: str
    ) -> JsonSchemaValue:
        return {_UNWRITABLE: True}

    def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
        """Ignore defaults that are not JSON."""


class _Schema:
    def __init__(self) -> None:
        self.definitions: dict[str, Any] = {}
        self._wanted: dict[str, type[Component]] = {}
        self._hidden: set[str] = set()

    def model(self, model: type[BaseModel]) -> dict[str, Any]:
        """Return a model's schema. Models that it refers to go to the definitions."""
        schema = model.model_json_schema(by_alias=False, schema_generator=_Generator)
        for name, definition in schema.pop("$defs", {}).items():
            if _UNWRITABLE in definition:
                self._hidden.add(f"#/$defs/{name}")
            else:
                self.definitions.setdefault(name, definition)
        for name, definition in self.definitions.items():
            self.definitions[name] = self._with_choices(definition)
        schema.setdefault("properties", {})
        return dict(self._with_choices(schema))

    def choice(self, contract: type[Component]) -> dict[str, Any]:
        """Return a reference to the choice of a contract's types."""
        self._wanted.setdefault(contract.contract, contract)
        return {"$ref": f"#/$defs/{contract.contract}"}

    def complete(self) -> None:
        """Define every choice that is referred to. Choices may refer to others."""
        while missing := [name for name in self._wanted if name not in self.definitions]:
            for name in missing:
                self.definitions[name] = self._choice_of(self._wanted[name])

    def _choice_of(self, contract: type[Component]) -> dict[str, Any]:
        references = []
        bare = []
        for name, model in writable_types(contract).items():
            made = self.model(model)
            if not made.get("required"):
                bare.append(name)
            made["properties"] = {"type": {"const": name}, **made["properties"]}
            reference: dict[str, Any] = {"$ref": f"#/$defs/{contract.contract}.{name}"}
            if contract.has_short_form:
                references.append(_short_form(model, reference))
                reference = {**reference, "required": ["type"]}
            else:
                made["required"] = ["type", *made.get("required", ())]
            self.definitions[f"{contract.contract}.{name}"] = made
            references.append(reference)
        choices: list[dict[str, Any]] = [{"oneOf": references}] if references else []
        if bare:
            choices.append({"enum": bare, "description": "A type with its defaults."})
        if contract.text_pattern:
            choices.append({"type": "string", "pattern": contract.text_pattern})
        return {"anyOf": choices} if choices else {"not": {}}

    def _is_hidden(self, schema: object) -> bool:
        return isinstance(schema, Mapping) and schema.get("$ref") in self._hidden

    def _with_choices(self, schema: object) -> Any:
        if isinstance(schema, list):
            return [self._with_choices(item) for item in schema if not self._is_hidden(item)]
        if not isinstance(schema, Mapping):
            return schema
        if _CONTRACT in schema:
            parts = Component.__subclasses__()
            contract = next(
                part for part in parts if part.__dict__.get("contract") == schema[_CONTRACT]
            )
            return _described(self.choice(contract), schema)
        return {
            key: self._with_choices(value)
            for key, value in schema.items()
            if key != "discriminator"
        }


def _short_form(model: type[Component], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a type that is the key of its fields, or of its `text_field`."""
    text = [{"type": "string"}] if model.text_field else []
    name = model.component_type
    properties = {name: {"anyOf": [dict(fields), *text]}}
    return {
        "type": "object",
        "properties": properties,
        "required": [name],
        "additionalProperties": False,
    }


def _described(schema: dict[str, Any], like: Mapping[str, Any]) -> dict[str, Any]:
    if "description" not in like:
        return dict(schema)
    return {**schema, "description": like["description"]}


def _with_references(schema: object, key: str = "") -> Any:
    """Let numbers, switches and choices be references to variables.

    Titles are removed, because they only repeat names.
    """
    if isinstance(schema, list):
        return [_with_references(item, key) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    if key == "properties":
        return {name: _with_references(value) for name, value in schema.items()}
    inner = {
        name: value if name in _LITERAL else _with_references(value, name)
        for name, value in schema.items()
        if name != "title"
    }
    if "enum" not in inner and inner.get("type") not in ("number", "integer", "boolean"):
        return inner
    outer = {name: inner.pop(name) for name in ("description", "default") if name in inner}
    return {"anyOf": [inner, {"$ref": "#/$defs/variable"}], **outer}


def summary_of(model: type[BaseModel]) -> str:
    """Return a model's docstring up to its first section, each paragraph on one line."""
    text = _SECTION.split(inspect.cleandoc(model.__dict__.get("__doc__") or ""))[0]
    return "\n\n".join(_one_line(paragraph) for paragraph in text.strip().split("\n\n"))


def attributes_of(model: type[BaseModel]) -> dict[str, str]:
    """Return the description of each field, from the docstrings of the model and of its bases."""
    descriptions: dict[str, str] = {}
    for base in reversed(model.__mro__):
        text = inspect.cleandoc(base.__dict__.get("__doc__") or "")
        _, _, after = text.partition("\nAttributes:\n")
        section = re.split(r"^\S", after, maxsplit=1, flags=re.MULTILINE)[0]
        for names, description in _ENTRY.findall(section):
            descriptions |= {name.strip(): _one_line(description) for name in names.split(",")}
    return {name: text for name, text in descriptions.items() if name in model.model_fields}


def _one_line(text: str) -> str:
    # Both marks of docstrings (`name`, ``text``) become Markdown's.
    return re.sub(r"\s+", " ", text).replace("``", "`").strip()
