import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.model import visible
from tests.support.answers import answers


@pytest.mark.parametrize(("text", "expected"), answers("model/visible", "printable"))
def test_printable_text_is_shown(text: str, expected: str) -> None:
    assert visible.escape(text) == expected


@given(st.text(st.characters()))
def test_no_control_character_reaches_a_terminal(text: str) -> None:
    shown = visible.escape(text)
    assert not [sign for sign in shown if unicodedata.category(sign) in {"Cc", "Cf", "Cs", "Zl", "Zp"}]
    assert visible.escape(shown) == shown
    assert visible.escape_lines(text) == "\n".join(visible.escape(line) for line in text.split("\n"))
    assert visible.join([text, "b"]) == f"{shown}\nb\n"


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_json_keeps_its_values(text: str) -> None:
    written = json.dumps({text: [text]}, ensure_ascii=False, indent=2)
    assert json.loads(visible.escape_lines(written)) == {text: [text]}
