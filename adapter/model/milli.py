"""Kubernetes quantities as the metrics APIs write them: an integer of thousandths and its canonical text."""

import math

# Values travel as 64-bit thousandths; at this magnitude and beyond Go's conversion overflows.
MILLI_LIMIT = 2.0**63

_SUFFIXES = {-3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_BINARY_SUFFIXES = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


def milli_from_float(value: float) -> int:
    """Return `value` in thousandths: multiplied in 64-bit floats, then truncated toward zero, as upstream.

    64.1 gives 64099 and 0.0009 gives 0. Raises OverflowError for NaN, infinities and values whose thousandths
    64 bits cannot hold.
    """
    milli = value * 1000
    if not -MILLI_LIMIT < milli < MILLI_LIMIT:  # also false for NaN
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
    return f"{milli * 10 ** (exponent - power)}{_SUFFIXES[power]}"


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
