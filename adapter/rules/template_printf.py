"""Format strings: ``printf`` of templates, by the rules of Go's ``fmt.Sprintf``.

Here a format string is taken apart and its directives are matched with values, with Go's complaints for what does not fit
(``%!d(MISSING)``, ``%!(EXTRA string=x)``). How one value looks under a directive is `template_format`'s business.
"""

import re
from collections.abc import Sequence

from adapter import errors
from adapter.model.go_text import quote
from adapter.rules.template_format import Directive, Value, printed, typed


def sprintf(pattern: str, values: Sequence[Value]) -> str:
    """Return `pattern` with its directives replaced, each by the next value or the one it names (``%[2]s``)."""
    return _Format(pattern, values).result()


_LIMIT = 1_000_000
_FLAGS = {"-": "minus", "+": "plus", "#": "sharp", " ": "space", "0": "zero"}
_DIGITS = re.compile("[0-9]+")


class _Format:
    """One run over a pattern, with the position in it and the number of the value that comes next."""

    def __init__(self, pattern: str, values: Sequence[Value]) -> None:
        self._pattern = pattern
        self._values = values
        self._position = 0
        self._number = 0
        self._named_numbers = False
        self._good_number = True

    def result(self) -> str:
        pieces: list[str] = []
        while (percent := self._pattern.find("%", self._position)) >= 0:
            pieces.append(self._pattern[self._position : percent])
            self._position = percent + 1
            pieces.append(self._directive())
        pieces.append(self._pattern[self._position :])
        if not self._named_numbers and self._number < len(self._values):
            extra = (typed(value, Directive()) for value in self._values[self._number :])
            pieces.append(f"%!(EXTRA {', '.join(extra)})")
        return "".join(pieces)

    def _directive(self) -> str:
        directive = Directive()
        self._good_number = True
        while flag := _FLAGS.get(self._here()):
            setattr(directive, flag, True)
            self._position += 1
        directive.zero = directive.zero and not directive.minus
        complaint = ""
        numbered = self._value_number()
        if self._here() == "*":
            complaint += self._width_from_value(directive)
            numbered = False
        elif self._here().isdigit() and self._here().isascii():
            directive.width = self._integer()
            self._good_number = self._good_number and not numbered
        if self._here() == "." and self._position + 1 < len(self._pattern):
            self._position += 1
            self._good_number = self._good_number and not numbered
            numbered = self._value_number()
            if self._here() == "*":
                complaint += self._precision_from_value(directive)
                numbered = False
            else:
                directive.precision = self._integer()
        if not numbered:
            self._value_number()
        return complaint + self._value(directive)

    def _value(self, directive: Directive) -> str:
        verb = self._here()
        self._position += 1
        if not verb:
            return "%!(NOVERB)"
        if verb == "%":
            return "%"
        if not self._good_number:
            return f"%!{verb}(BADINDEX)"
        if self._number >= len(self._values):
            return f"%!{verb}(MISSING)"
        directive.verb = verb
        if verb == "v":
            directive.go_syntax, directive.sharp = directive.sharp, False
            directive.named, directive.plus = directive.plus, False
        self._number += 1
        return printed(self._values[self._number - 1], directive)

    def _here(self) -> str:
        return self._pattern[self._position : self._position + 1]

    def _integer(self) -> int:
        """Take digits, none of which count as 0."""
        match = _DIGITS.match(self._pattern, self._position)
        if match is None:
            return 0
        self._position = match.end()
        significant = match[0].lstrip("0")
        if len(significant) > len(str(_LIMIT)) or int(significant or "0") > _LIMIT:
            raise errors.TemplateError(
                f"a width or precision of more than {_LIMIT} in {quote(self._pattern)}"
            )
        return int(significant or "0")

    def _value_number(self) -> bool:
        """Take ``[n]``, which names the value that comes next; tell whether a number stood there, even a wrong one."""
        if self._here() != "[":
            return False
        self._named_numbers = True
        end = self._pattern.find("]", self._position)
        if end < 0 or self._position + 3 > len(self._pattern):
            self._position += 1
            self._good_number = False
            return False
        inner = self._pattern[self._position + 1 : end]
        self._position = end + 1
        number = int(inner) if _DIGITS.fullmatch(inner) and len(inner) <= len(str(_LIMIT)) else None
        if number is not None and 0 < number <= len(self._values):
            self._number = number - 1
        else:
            self._good_number = False
        return number is not None

    def _integer_value(self) -> int | None:
        self._position += 1
        if self._number >= len(self._values):
            return None
        value = self._values[self._number]
        self._number += 1
        return value if type(value) is int and abs(value) <= _LIMIT else None

    def _width_from_value(self, directive: Directive) -> str:
        width = self._integer_value()
        if width is None:
            return "%!(BADWIDTH)"
        directive.width = abs(width)
        directive.minus = directive.minus or width < 0
        directive.zero = directive.zero and not directive.minus
        return ""

    def _precision_from_value(self, directive: Directive) -> str:
        precision = self._integer_value()
        if precision is None or precision < 0:
            return "%!(BADPREC)"
        directive.precision = precision
        return ""
