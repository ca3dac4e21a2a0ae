"""Encode Prometheus' remote-write request (version 1): samples with their own times, stored at once."""

import itertools
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple


class Written(NamedTuple):
    """One sample to write: labels with `__name__`, value, time in epoch seconds.

    The value None stands for a native histogram of one observation, a zero.
    """

    labels: Mapping[str, str]
    value: float | None
    time: float


def encode(samples: Iterable[Written]) -> bytes:
    """Return the body: a snappy block of a protobuf WriteRequest.

    Samples of one series must be in order of time.

    Successive samples with the same labels object become one series of the request, which is faster to write.
    """
    groups = itertools.groupby(samples, key=lambda sample: id(sample.labels))
    return _snappy(b"".join(_message(1, _series(list(group))) for _, group in groups))


def _series(samples: Sequence[Written]) -> bytes:
    labels = (
        _message(1, _message(1, name.encode()) + _message(2, value.encode()))
        for name, value in sorted(samples[0].labels.items())
    )
    return b"".join((*labels, *map(_sample, samples)))


def _sample(sample: Written) -> bytes:
    time = _varint(round(sample.time * 1000))
    if sample.value is not None:
        return _message(2, b"\x09" + struct.pack("<d", sample.value) + b"\x10" + time)
    count, threshold, zeros = b"\x08\x01", b"\x29" + struct.pack("<d", 1e-9), b"\x30\x01"
    return _message(4, count + threshold + zeros + b"\x78" + time)


def _message(number: int, body: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(body)) + body


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _snappy(plain: bytes) -> bytes:
    """Return `plain` as a block of literals, which every snappy reader takes; nothing is made smaller."""
    parts = [plain[start : start + 65536] for start in range(0, len(plain), 65536)]
    return _varint(len(plain)) + b"".join(b"\xf4" + struct.pack("<H", len(part) - 1) + part for part in parts)
