from typing import Any

import msgspec
import pytest

from adapter.model.autoscaling import documents
from adapter.model.autoscaling.hpa import decode_scalar
from adapter.model.objects.api_objects import Struct
from adapter.model.quantity import Quantity
from tests.support.answers import answers


class _Inner(Struct, frozen=True):
    size: int
    names: tuple[str, ...] = ()


class _Outer(Struct, frozen=True):
    inner: _Inner | None = None
    labels: dict[str, str] | None = None
    usage: dict[str, Quantity] | None = None


@pytest.mark.parametrize(("tree", "fault"), answers("autoscaling/documents", "faults"))
def test_messages_have_path_value_and_what_was_expected(tree: Any, fault: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(tree, _Outer, dec_hook=decode_scalar)
    assert str(documents.explain(str(caught.value), tree, "f")).startswith(fault)


def test_a_key_that_is_given_twice() -> None:
    text = b'{"inner": {"size": "x"}, "inner": null}'
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.json.decode(text, type=_Outer)
    error = documents.explain(str(caught.value), msgspec.json.decode(text), "")
    assert str(error) == ".inner.size: a parent key is given twice: expected an integer, got text".lstrip(".")
    odd = documents.explain("Expected `str`, got `int` - at `$.labels[...]`", {"labels": {"a": "b"}}, "")
    assert "a parent key is given twice" in str(odd)
    odd = documents.explain("is odd - at `$.usage[...]`", {"usage": {"a": "1"}}, "")
    assert "a parent key is given twice" in str(odd)


def test_values_are_shown_short_and_on_one_line() -> None:
    assert len(documents.shown("x" * 500)) == 80
    assert documents.shown("a\nb\u202e") == '"a\\nb\\u202e"'
