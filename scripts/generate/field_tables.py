"""The tables of fields in pages of docs, made of the schemas of the kinds.

A page has a table between two comments, of which the first says of what it is:
``<!-- fields of FastPathAutoscaler spec.forecast -->``. `docs` writes the pages.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from adapter.bounds.schedule import documents
from adapter.model.autoscaling import fastpath_autoscaler, limits
from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscalerSpec
from scripts.generate import crd, crd_schedules
from scripts.generate.crd_parts import INT32, JSON, RULES

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("reference/api.md", "guides/forecasts.md")

_BLOCK = re.compile(r"(<!-- fields of (\w+) ([\w.]+) -->\n).*?(<!-- end of fields -->)", re.DOTALL)
_DEFINITIONS: Mapping[str, JSON] = MappingProxyType(
    {fastpath_autoscaler.KIND: crd.definition(), documents.KIND: crd_schedules.definition()}
)
_OWN = frozenset(name for _, name, _ in limits.declared(FastPathAutoscalerSpec))
"""The fields of a FastPathAutoscaler that a HorizontalPodAutoscaler does not have."""

_NAME = re.compile(r"(?<![\w`-])(?:(?:spec|status)\.\w+|[a-z]+[A-Z]\w*)(?:\.\w+)*")
_LEAD = re.compile(r"^(?:is|are) ")
_SAID = re.compile(r"from \S+ to [^\s,]+|such as \S+$")
"""What a description may say already of the values."""


def render(page: str) -> str:
    """Return the text of a page with its tables as the kinds are today."""
    return _BLOCK.sub(lambda match: "\n".join([match[1], *_table(match[2], match[3]), "", match[4]]), page)


def _table(kind: str, path: str) -> Iterator[str]:
    schema = _DEFINITIONS[kind]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for name in path.split("."):
        schema = schema["properties"][name]
    is_spec = path.startswith("spec")
    yield from (
        ("| field | default | meaning |", "|---|---|---|")
        if is_spec
        else ("| field | meaning |", "|---|---|")
    )
    for field, default, meaning in _rows(schema, ""):
        if path != "spec" or kind != fastpath_autoscaler.KIND or field.partition(".")[0] in _OWN:
            yield f"| `{field}` | {default} | {meaning} |" if is_spec else f"| `{field}` | {meaning} |"


def _rows(schema: JSON, prefix: str) -> Iterator[tuple[str, str, str]]:
    properties: dict[str, JSON] = schema["properties"]
    words = [word for node in properties.values() for word in node.get("enum", ())]
    for name, node in properties.items():
        yield f"{prefix}{name}", _default(name, node, schema), _meaning(name, node, words)
        below = node.get("items", node)
        if "properties" in below:
            yield from _rows(below, f"{prefix}{name}.")


def _default(name: str, node: JSON, parent: JSON) -> str:
    if name in parent.get("required", ()):
        return "required"
    for rule in parent.get(RULES, ()):
        if match := re.match(rf"{name} is needed for type (\w+)", rule["message"]):
            return f"required with `{match[1]}`"
    return f"`{node['default']}`" if isinstance(node.get("default"), str | int) else "none"


def _meaning(name: str, node: JSON, words: list[str]) -> str:
    """Return the description as sentences without the name and the default, and the bounds."""
    about = node.get("description", "").removeprefix(f"{name} ")
    about = _LEAD.sub("", about.removesuffix(f" Defaults to {node.get('default')}."))
    text = " ".join([about[:1].upper() + about[1:], *_bounds(node, about)])
    text = _NAME.sub(lambda match: f"`{match[0]}`", text)
    for word in words:
        text = re.sub(rf"(?<![\w`]){word}(?![\w`])", f"`{word}`", text)
    return text.replace("|", r"\|").replace("*", r"\*")


def _bounds(node: JSON, about: str) -> Iterator[str]:
    """Yield what the description does not say of the values that are taken."""
    for message in (rule["message"] for rule in node.get(RULES, ())):
        said = _SAID.search(message)
        if message.startswith("must be ") and (said is None or said[0] not in about):
            yield f"{message[:1].upper()}{message[1:]}."
    least, most = node.get("minimum"), node.get("maximum", INT32)
    if "anyOf" in node and least is not None:
        yield "Must be above 0." if least else "Must be 0 or more."
    elif least is not None:
        yield f"Must be {least} or more." if most == INT32 else f"Must be from {least} to {most}."
    if "maxItems" in node:
        yield f"Has {'from 1 to' if 'minItems' in node else 'at most'} {node['maxItems']} items."
        if keys := node.get("x-kubernetes-list-map-keys"):
            yield f"No two have the same {' and '.join(keys)}."
