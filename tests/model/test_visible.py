import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.model import visible


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("büro 日本語 😀 \\", "büro 日本語 😀 \\"),
        ("\x1b[2J\x07\x7f", r"\u001b[2J\u0007\u007f"),
        ("\u009b\u0085", r"\u009b\u0085"),
        ("a\nb\r\tc", r"a\nb\r\tc"),
        ("\u202eevil\u2066\u200b\ufeff", r"\u202eevil\u2066\u200b\ufeff"),
        ("\u2028\u2029\u00a0", r"\u2028\u2029\u00a0"),
        ("\udc80", r"\udc80"),
        ("\U000e0041", r"\udb40\udc41"),
    ],
)
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
