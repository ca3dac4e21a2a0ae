"""A field is declared once: the check of a struct and the schema that is made of it refuse the same."""

from typing import Annotated, Any

import msgspec
import pytest

from adapter.model.autoscaling import limits
from adapter.model.autoscaling.hpa import Int32, decode_scalar
from adapter.model.autoscaling.limits import Amount, Count, Date, Items, Matches, OneOf, Segment, Within
from adapter.model.objects.api_objects import Struct
from adapter.model.quantity import Quantity
from adapter.model.timestamps import SECOND, Span
from scripts.generate import crd_schema, declarations
from tests.manifests import structural


class DeclaredOnce(Struct, frozen=True):
    """A field of each kind."""

    name: Annotated[str, Segment()] = ""
    size: Annotated[Int32, Count(0, 5)] = 3
    mode: Annotated[str, OneOf("Auto", "Off")] = "Auto"
    """mode is one of two
    words."""
    share: Annotated[str, Matches("[1-9]%", 2, "must be from 1% to 9%")] = "5%"
    ahead: Annotated[str, Within(Span(SECOND), Span(60 * SECOND), "Auto")] = "Auto"
    pause: Annotated[Span, Within(Span(SECOND), Span(60 * SECOND))] = Span(60 * SECOND)
    cost: Annotated[Quantity | None, Amount()] = None
    days: Annotated[tuple[str, ...] | None, Items(2, Date())] = None


SCHEMA = crd_schema.derive(msgspec.inspect.type_info(DeclaredOnce), {})


def test_the_schema_says_what_is_declared() -> None:
    fields = SCHEMA["properties"]
    assert (SCHEMA["description"], SCHEMA["required"]) == ("A field of each kind.", ["name"])
    assert fields["mode"]["description"] == "mode is one of two words. Defaults to Auto."
    defaults = {name: field["default"] for name, field in fields.items() if "default" in field}
    assert defaults == {"size": 3, "mode": "Auto", "share": "5%", "ahead": "Auto", "pause": "1m"}


@pytest.mark.parametrize(
    ("field", "accepted", "refused"),
    [
        ("name", ["a"], ["", ".", "a/b", "a%b"]),
        ("size", [0, 5], [-1, 6]),
        ("mode", ["Off"], ["off", ""]),
        ("share", ["1%"], ["0%", "10%", "1"]),
        ("ahead", ["Auto", "1s", "1m"], ["auto", "999ms", "61s"]),
        ("pause", ["1s", "1m"], ["999ms", "61s"]),
        ("cost", ["1m", 1], ["0", "-1"]),
        ("days", [[], ["2028-02-29"]], [["2026-02-29"], ["2026-12-25"] * 3]),
    ],
)
def test_the_check_and_the_schema_agree(field: str, accepted: list[Any], refused: list[Any]) -> None:
    for value in accepted + refused:
        tree = {"name": "a", field: value}
        read = msgspec.convert(tree, DeclaredOnce, dec_hook=decode_scalar)
        verdicts = any(limits.check(read, "")), bool(structural.verdict(tree, SCHEMA))
        assert verdicts == (value in refused,) * 2, value


def test_a_description_begins_with_the_name_in_json() -> None:
    class MisnamedField(Struct, frozen=True):
        size_limit: Int32 = 0
        """size_limit is how it is called here, not in JSON."""

    with pytest.raises(ValueError, match="begins with size_limit, expected sizeLimit"):
        declarations.fields(MisnamedField)
