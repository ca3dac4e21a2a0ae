"""Text that acts on what shows it: a terminal, or the words beside it on a page."""

import unicodedata

ACTING = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Control characters, format characters and those of direction, halves of pairs, separators of lines."""

HOSTILE = (
    "web\nFORGED"
    + "".join(chr(code) for code in (*range(1, 0x20), *range(0x7F, 0xA0)))
    + "\u061c\u200b\u200d\u200e\u202a\u202d\u202e\u2028\u2029\u2060\u2066\u2069\ufeff\U000e0041\U0001d173"
    + "end"
)


def acting(text: str) -> list[str]:
    return sorted(
        {f"{ord(sign):04x}" for sign in text if sign != "\n" and unicodedata.category(sign) in ACTING}
    )
