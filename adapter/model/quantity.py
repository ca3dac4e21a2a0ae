"""Kubernetes quantities: parsed exactly, counted in thousandths as the autoscaler does, written canonically.

`Quantity` has the grammar, the two internal forms and their rounding. Values that Fastpath measures need none
of that: they are integers of thousandths, which `format_milli` and `format_binary` write. Mirrors
``k8s.io/apimachinery/pkg/api/resource``: what overflows there overflows here, to the same number.
"""

import math
import re
from enum import Enum

from adapter.model.memo import remember_short


class Format(Enum):
    """How a quantity was spelled, which determines how it is written."""

    DECIMAL_SI = "DecimalSI"
    DECIMAL_EXPONENT = "DecimalExponent"
    BINARY_SI = "BinarySI"


_NANO = 9
_MAX = 2**63 - 1
_MIN = -(2**63)
_DIGITS = 18
"""More decimal digits than these make a number big, whatever its value."""

_LENGTH = 500
"""Longer texts are refused. Upstream has no limit, but no real quantity is that long."""

_ONE_STEP = frozenset({1, 2, 3, 6, 9})

_ZEROS = 1000
"""Larger powers of ten are not computed: the lowest 64 bits of such a number are all zero."""

_TOKENS = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[+-]?[0-9]*)", re.ASCII)
_EXPONENT = re.compile(r"[eE][+-]?[0-9]+", re.ASCII)
_DECIMAL_POWERS = {"": 0, "n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_SUFFIXES = {power: suffix for suffix, power in _DECIMAL_POWERS.items()}
_BINARY_POWERS = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_BINARY_SUFFIXES = ("", *_BINARY_POWERS)

_WRONG = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


class Quantity:
    """An immutable number that remembers its spelling: ``unscaled`` times ten to the power of ``scale``.

    `big` says which of upstream's two internal forms holds it; they round differently. `milli` is the number
    of thousandths in 64 bits, as of ``MilliValue``. Quantities with the same number are equal, however
    spelled.
    """

    __slots__ = ("big", "form", "milli", "scale", "unscaled")

    def __init__(
        self, unscaled: int, scale: int = 0, form: Format = Format.DECIMAL_SI, *, big: bool = False
    ) -> None:
        self.unscaled = unscaled
        self.scale = scale
        self.form = form
        self.big = big
        if scale == -3 and _MIN <= unscaled <= _MAX and not big:
            self.milli = unscaled  # as nearly all measured values are
        else:
            self.milli = (_big_milli if big else _int_milli)(unscaled, scale)

    @property
    def sign(self) -> int:
        return (self.unscaled > 0) - (self.unscaled < 0)

    @property
    def has_milli(self) -> bool:
        """Whether 64 bits hold the thousandths. `milli` of any other number is what is left of it."""
        return not (self > GREATEST or self < LEAST)

    def __str__(self) -> str:
        """Return the canonical text, as ``CanonicalizeBytes``.

        No fraction, and the largest suffix that is exact. BinarySI falls back to decimal below 1024 and for
        fractions. Powers without a suffix (beyond exa, or finer than nano) are left out, as upstream does.
        """
        if not self.unscaled:
            return "0"
        number, power = _without_factors(self.unscaled, 10)
        power += self.scale
        if self.form is Format.BINARY_SI and power >= 0 and not -1024 < (whole := number * 10**power) < 1024:
            number, power = _without_factors(whole, 1024)
            return f"{number}{_BINARY_SUFFIXES[power] if power < len(_BINARY_SUFFIXES) else ''}"
        exponent = power - power % 3
        number *= 10 ** (power - exponent)
        if self.form is Format.DECIMAL_EXPONENT:
            return f"{number}e{exponent}" if exponent else str(number)
        return f"{number}{_DECIMAL_SUFFIXES.get(exponent, '')}"

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Quantity):
            return NotImplemented
        return self.unscaled == other.unscaled if self.scale == other.scale else _compare(self, other) == 0

    def __hash__(self) -> int:
        number, power = _without_factors(self.unscaled, 10)
        return hash((number, power + self.scale if number else 0))

    def __lt__(self, other: "Quantity") -> bool:
        return _compare(self, other) < 0

    def __add__(self, other: "Quantity") -> "Quantity":
        """Return the sum as ``Quantity.Add``: in int form while 64 bits hold it, else in big form."""
        form = self.form if self.unscaled else other.form
        if not (self.big or other.big):
            if not other.unscaled:
                return Quantity(self.unscaled, self.scale, form)
            if not self.unscaled:
                return Quantity(other.unscaled, other.scale, form)
            scale = min(self.scale, other.scale)
            mine, its = _at_scale(self, scale), _at_scale(other, scale)
            if _fits(mine) and _fits(its) and _fits(mine + its):
                return Quantity(mine + its, scale, form)
        scale = min(self.scale, other.scale)
        return Quantity(_at_scale(self, scale) + _at_scale(other, scale), scale, form, big=True)

    def approximate(self) -> float:
        """Return the canonical number times a power of ten in doubles, as upstream for tolerances.

        ``0.35`` is stored as ``350m`` and gives 350 * 0.001, which is not the double next to 0.35.
        """
        stored = _parse(str(self))
        try:
            return float(stored.unscaled) * _pow10(stored.scale)
        except OverflowError:
            return math.copysign(math.inf, self.sign)


def parse_quantity(text: str) -> Quantity:
    """Return the quantity that `text` spells. Raise ValueError with upstream's sentence.

    All spellings of upstream are accepted, also ``.5``, ``5.``, ``+5``, ``1e3``, and a sign or a point alone
    (0).
    """
    if len(text) > _LENGTH:
        raise ValueError(f"quantities have at most {_LENGTH} characters")
    return _parse(text)


def _parse(text: str) -> Quantity:
    match = _TOKENS.fullmatch(text)
    if match is None or not text:
        raise ValueError(_WRONG)
    sign, whole, fraction, suffix = match.groups(default="")
    power, form = _read_suffix(suffix)
    digits = whole.lstrip("0") or "0"
    if form is Format.BINARY_SI:
        room = -1 if fraction else 15 - len(digits) - power * 3 // 10 - 1
        scale, factor = -len(fraction), 1 << power
    else:
        room = _DIGITS - len(digits) - len(fraction)
        scale, factor = power - len(fraction), 1
    negative = -1 if sign == "-" else 1
    if room >= 0 and scale >= -_NANO and (number := int(digits + fraction) * factor) <= _MAX:
        return Quantity(negative * number, scale, form)
    if not whole and not fraction:
        raise ValueError("unable to parse numeric part of quantity")
    number, scale, form = _rounded(int(whole + fraction) * factor, scale, form)
    return Quantity(negative * number, scale, form, big=True)


def from_milli(milli: int, form: Format = Format.DECIMAL_SI) -> Quantity:
    """Return a quantity of `milli` thousandths (64 bits), the form of the measured values of a status."""
    return Quantity(milli, -3, form)


@remember_short(65536, longest=32)
def read(text: str) -> Quantity:
    """Return `parse_quantity` of a text of an API object without the blanks around it."""
    return parse_quantity(text.strip())


def _read_suffix(suffix: str) -> tuple[int, Format]:
    if suffix in _DECIMAL_POWERS:
        return _DECIMAL_POWERS[suffix], Format.DECIMAL_SI
    if suffix in _BINARY_POWERS:
        return _BINARY_POWERS[suffix], Format.BINARY_SI
    if not _EXPONENT.fullmatch(suffix) or not _fits(power := int(suffix[1:])):
        raise ValueError("unable to parse quantity's suffix")
    return (power + 2**31) % 2**32 - 2**31, Format.DECIMAL_EXPONENT  # upstream keeps 32 bits of it


def _rounded(number: int, scale: int, form: Format) -> tuple[int, int, Format]:
    """Return a magnitude in the big form: nine decimals, rounded away from zero; BinarySI ends at 2^63-1."""
    if not number:
        return 0, max(scale, -_ZEROS), form  # not rounded: it lends its decimals to sums
    excess = -_NANO - scale
    if excess > 0:
        # where more is dropped than there are digits, nothing is left but the rounding
        number = -(-number // 10**excess) if excess <= _LENGTH else 1
    else:
        number *= 10 ** min(-excess, _ZEROS)
    scale = max(-_NANO, scale - _ZEROS)
    if form is Format.BINARY_SI:
        if number > _MAX * 10**_NANO:
            return _MAX, 0, form
        if number < 10**_NANO:
            form = Format.DECIMAL_SI
    return number, scale, form


def _int_milli(unscaled: int, scale: int) -> int:
    """Return ``AsScaledInt64`` at thousandths: rounded away from zero.

    What 64 bits do not hold is 0, but wraps around where upstream multiplies in one step (by ten to the power
    of 1, 2, 3, 6 or 9).
    """
    if scale >= -3:
        milli = unscaled * _ten(min(scale + 3, _DIGITS + 1))
        if _fits(milli):
            return milli
        return _wrap(milli) if scale + 3 in _ONE_STEP and unscaled != _MIN else 0
    divisor = _ten(-3 - scale)
    return -(-unscaled // divisor) if unscaled >= 0 else unscaled // divisor


def _big_milli(unscaled: int, scale: int) -> int:
    """Return ``scaledValue`` at thousandths: rounded up, in 64 bits that wrap around."""
    if scale >= -3:
        return _wrap(unscaled * (_ten(scale + 3) if scale + 3 <= _DIGITS else _MIN))
    divisor = _ten(-3 - scale)
    if unscaled < _MAX and divisor <= 10**_DIGITS:  # also where a negative number has long left 64 bits
        low = _wrap(unscaled)
        quotient = low // divisor if low >= 0 else -(-low // divisor)
        return quotient + (quotient * divisor != low)
    return _wrap(-(-unscaled // divisor))


def _pow10(power: int) -> float:
    """Return Go's ``math.Pow10``: a product of two table entries, not always the nearest double."""
    if power < 0:
        return float(f"1e-{-power // 32 * 32}") / float(f"1e{-power % 32}")
    return float(f"1e{power // 32 * 32}") * float(f"1e{power % 32}")


def _ten(power: int) -> int:
    return int(10**power)


def _wrap(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63


def _fits(number: int) -> bool:
    return _MIN <= number <= _MAX


def _at_scale(quantity: Quantity, scale: int) -> int:
    """Return the unscaled number at a scale that is not coarser."""
    return quantity.unscaled * _ten(min(quantity.scale - scale, 2 * _ZEROS))


def _without_factors(number: int, base: int) -> tuple[int, int]:
    """Return the number without its factors of `base`, and how many there were; 0 has none."""
    times = 0
    while number and number % base == 0:
        number //= base
        times += 1
    return number, times


def _compare(left: Quantity, right: Quantity) -> int:
    """Return -1, 0 or 1. Numbers of different sign or length are compared without their zeros."""
    mine: tuple[int, ...] = _magnitude(left)
    its: tuple[int, ...] = _magnitude(right)
    if mine == its:
        scale = min(left.scale, right.scale)
        mine, its = (_at_scale(left, scale),), (_at_scale(right, scale),)
    return (mine > its) - (mine < its)


def _magnitude(quantity: Quantity) -> tuple[int, int]:
    """Return sign and signed number of digits before the point: a coarse order of the numbers."""
    digits = len(str(abs(quantity.unscaled))) + quantity.scale if quantity.unscaled else 0
    return quantity.sign, quantity.sign * digits


LEAST, GREATEST = Quantity(_MIN, -3), Quantity(_MAX, -3)
"""The bounds of the numbers whose thousandths 64 bits hold."""


# --- thousandths, without a Quantity: the measured values of the metrics APIs


def milli_from_float(value: float) -> int:
    """Return `value` in thousandths: multiplied in 64-bit floats, then truncated toward zero, as upstream.

    64.1 gives 64099 and 0.0009 gives 0. Raises OverflowError for NaN, infinities and values whose thousandths
    64 bits cannot hold.
    """
    milli = value * 1000
    if not -(2.0**63) < milli < 2.0**63:  # Go's conversion overflows from there on; also false for NaN
        raise OverflowError(f"{value!r} has no quantity: thousandths of it do not fit 64 bits")
    return math.trunc(milli)


def format_milli(milli: int) -> str:
    """Return the canonical decimal text of `milli` thousandths: `500m`, `10`, `1k`, `1500`, `12k`.

    The largest exponent that is a multiple of three and keeps an integer, as apimachinery's canonical form.
    """
    if not milli:
        return "0"
    exponent = -3
    while milli % 10 == 0:
        milli //= 10
        exponent += 1
    power = exponent - exponent % 3
    return f"{milli * 10 ** (exponent - power)}{_DECIMAL_SUFFIXES[power]}"


def format_binary(milli: int) -> str:
    """Return thousandths of bytes as the canonical text of the BinarySI form: `100Mi`, `8Gi`, `2000`.

    Below 1024 bytes, and for a fraction of a byte, that form is the decimal one: `1k`, `1500500m`.
    """
    number, fraction = divmod(milli, 1000)
    if fraction or -1024 < number < 1024:
        return format_milli(milli)
    exponent = 0
    while number % 1024 == 0:
        number //= 1024
        exponent += 1
    return f"{number}{_BINARY_SUFFIXES[exponent]}"
