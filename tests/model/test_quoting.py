import pytest

from adapter.model.quoting import quote


@pytest.mark.parametrize(
    ("text", "literal"),
    [
        pytest.param("", '""', id="empty"),
        pytest.param("web-1.a_b/c~ !#[]", '"web-1.a_b/c~ !#[]"', id="nothing to escape"),
        pytest.param('a"b\\c', '"a\\"b\\\\c"', id="quote and backslash"),
        pytest.param("\a\b\f\n\r\t\v", r'"\a\b\f\n\r\t\v"', id="named controls"),
        pytest.param("\x00\x1f\x7f", r'"\x00\x1f\x7f"', id="other controls"),
        pytest.param("é日😀", '"é日😀"', id="printable of other scripts stays"),
        pytest.param("\u00a0\u200b\u2028\ue000", r'"\u00a0\u200b\u2028\ue000"', id="not printable, short"),
        pytest.param("\U000e0001", r'"\U000e0001"', id="not printable, long"),
        pytest.param(
            b"\xff\xc3".decode("utf-8", "surrogateescape"), r'"\xff\xc3"', id="bytes that are no UTF-8"
        ),
        pytest.param("\ud800", r'"\ud800"', id="a surrogate that stands for no byte"),
    ],
)
def test_quote_writes_go_string_literals(text: str, literal: str) -> None:
    assert quote(text) == literal
