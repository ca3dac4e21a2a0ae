"""Malformed and odd requests: strategies of targets, methods, headers and bodies, as bytes on the wire.

Structured, so that most get past the parser and deep into the server, with odd pieces everywhere.
`Hostile.framed` says whether HTTP itself is in order: only then is an answer owed, and can the connection go
on afterwards.
"""

import string
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import quote, unquote_to_bytes

from hypothesis import strategies as st

from tests.support.kubectl import TOKEN

_NASTY = """
. .. %2e%2e %2E %2F a%2Fb %252F % %zz %0 %00 %0a %0d%0aX:%20y %ff %c3%28 %C3%BC %22%7D%20or%20%7B %5C %7C .*
%2A * ; a;b web-0;x=1 ~ <script> %3Cscript%3E ${jndi:x} {{7*7}} ' %27 -1 0 NaN __name__
"""
NASTY = (*_NASTY.split(), "", "x" * 300, "%61" * 1500, "\u00fc", "\u202e")
_WORDS = """
apis custom.metrics.k8s.io external.metrics.k8s.io metrics.k8s.io v1beta1 v1beta2 v1 namespaces shop default
pods pods. Pod nodes services ingresses.networking.k8s.io deployments.apps web-0 none load heat depth broken
metrics status finalize watch proxy openapi v2 v3 healthz livez readyz prometheus version index.html debug api
"""
WORDS = tuple(_WORDS.split())
_PATHS = {
    "/apis/custom.metrics.k8s.io/v1beta2": """
        /namespaces/shop/pods/web-0/load /namespaces/shop/pods/%2A/load /namespaces/shop/pods/*/broken
        /namespaces/%2A/pods/%2A/load /nodes/n1/heat /nodes/%2A/heat
        /namespaces/shop/deployments.apps/%2A/load""",
    "/apis/custom.metrics.k8s.io/v1beta1": "/namespaces/shop/pods/%2A/load /namespaces/shop/metrics/load",
    "/apis/external.metrics.k8s.io/v1beta1": """
        /namespaces/shop/depth /namespaces/default/depth /namespaces/shop/broken""",
    "/apis/metrics.k8s.io/v1beta1": """
        /nodes /nodes/n1 /pods /namespaces/shop/pods /namespaces/shop/pods/web-0 /""",
    "": """
        /apis /apis/custom.metrics.k8s.io /apis/custom.metrics.k8s.io/v1beta2
        /apis/external.metrics.k8s.io/v1beta1 /openapi/v2 /openapi/v3
        /openapi/v3/apis/external.metrics.k8s.io/v1beta1 /version /metrics /healthz /livez /readyz
        /readyz/ping /readyz/prometheus / /index.html""",
}
KNOWN = tuple(group + path for group, paths in _PATHS.items() for path in paths.split())
_PARAMETERS = """
labelSelector metricLabelSelector fieldSelector pretty timeout watch limit continue resourceVersion
resourceVersionMatch sendInitialEvents timeoutSeconds includeObject verbose exclude x
"""
_VALUES = """
|app%3Dweb|app=web|app!=web|app in (web,x)|app notin (web)|!app|app|a>5|a<x|a in (|a=b,,c|a==b=c|
app%20in%20(web)|app+in+(web,x)|a%3D%22%7D%20or%20vector(1)%20%23|metadata.name=web-0|metadata.name%3Dweb-0|
metadata.namespace!=shop|spec.x=1|1|0|-1|true|false|1s|-5s|1h|9999999999h|1ns|1e3|None|Object|ping|
prometheus|%|%ff|%00|a;b
"""
_LONG_VALUES = (
    "(" * 200,
    ",".join(f"k{number}=v" for number in range(200)),
    "k in (" + ",".join(map(str, range(500))) + ")",
)
_METHODS = ("HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "get", "Get", "X-ODD")
_NO_METHODS = ("G@T", "", "GET ", "CONNECT", "\u00fc", "PRI")
_HEADERS = (
    ("Accept", "application/json"),
    ("Accept", "application/vnd.kubernetes.protobuf, */*"),
    ("Accept", "application/vnd.kubernetes.protobuf"),
    ("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"),
    ("Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"),
    ("Accept", "text/html;q=0.9,;;=,/*,*/*;q=x"),
    ("Accept", "application/json;q=0"),
    ("Accept", "," * 2000),
    ("Accept-Encoding", "gzip"),
    ("Accept-Encoding", "gzip;q=0, br, *"),
    ("User-Agent", "curl/8"),
    ("User-Agent", "\u00fc\u202e"),
    ("X-Remote-User", "alice"),
    ("X-Remote-User", ""),
    ("X-Remote-User", "system:kube-aggregator"),
    ("X-Remote-User", "denied"),
    ("X-Remote-User", "torn"),
    ("X-Remote-User", "a<b>&\"'\u00fc"),
    ("X-Remote-User", "u" * 12_000),
    ("X-Remote-Group", "system:masters"),
    ("X-Remote-Group", "a,b"),
    ("X-Remote-Group", ""),
    ("X-Remote-Uid", "7"),
    ("X-Remote-Extra-Scopes", "x"),
    ("X-Remote-Extra-%zz%ff", "y"),
    ("X-Remote-Extra-", "z"),
    ("Impersonate-User", "root"),
    ("Impersonate-Extra-x", "root"),
    ("If-None-Match", "*"),
    ("If-None-Match", 'W/"x", "y'),
    ("Audit-Id", "0b1c2d"),
    ("Audit-Id", "bad id <x>"),
    ("Origin", "https://evil.example"),
    ("Cookie", "a=b"),
    ("Range", "bytes=0-1"),
    ("Host", "other"),
    ("Forwarded", "for=1.2.3.4"),
    ("X-Forwarded-For", "1.2.3.4"),
    ("X-HTTP-Method-Override", "DELETE"),
    ("Content-Type", "application/json"),
    ("Content-Encoding", "gzip"),
    ("Expect", "100-continue"),
    ("Connection", "close"),
    ("Connection", "keep-alive"),
    ("TE", "trailers"),
    ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    ("X-Long", "x" * 60_000),
)
_CREDENTIALS = (
    ("Authorization", f"Bearer {TOKEN}"),
    ("Authorization", f"bEaReR {TOKEN}"),
    ("Authorization", "Bearer wrong"),
    ("Authorization", "Bearer"),
    ("Authorization", "Bearer \u00fc"),
    ("Authorization", f"Bearer wrong {TOKEN}"),
    ("Authorization", "Basic YTpi"),
    ("Authorization", "Bearer " + "t" * 20_000),
    ("Authorization", f"Bearer {TOKEN}"),
)
_BROKEN_HEADERS = (
    b"X-Remote-User : alice",
    b"X Remote User: alice",
    b": nothing",
    b" folded: x",
    b"no colon",
    b"X-Too-Long: " + b"x" * 70_000,
    b"X-Nul: \0",
    b"Content-Length: -1",
    b"Content-Length: x",
    b"Transfer-Encoding: chunked\r\nContent-Length: 4",
    b"Content-Length: 0\r\nContent-Length: 5",
    b"Transfer-Encoding: nonsense",
    b"Upgrade: websocket\r\nConnection: Upgrade",
    b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQAAP__",
)
_LONGEST_SHOWN = 500
_BODIES = (b"{}", b"x" * 100, b"\0\r\n\r\nGET /metrics HTTP/1.1\r\n\r\n", b"x" * 9000)


class Hostile(NamedTuple):
    """One request: its bytes, whether its answer has no body, whether HTTP is in order, its parsed values."""

    raw: bytes
    is_head: bool
    framed: bool

    @property
    def target(self) -> bytes:
        """Return the second word of the first line, decoded."""
        return unquote_to_bytes((*self.raw.partition(b"\r\n")[0].split(), b"", b"")[1])

    def numbered(self, number: str) -> bytes:
        """Return the bytes with a number in them that the answer repeats."""
        first, separator, rest = self.raw.partition(b"\r\n")
        return first + separator + b"Audit-Id: " + number.encode() + b"\r\n" + rest

    def __repr__(self) -> str:
        """Return what is needed to send it again, unless it is long."""
        raw = self.raw if len(self.raw) < _LONGEST_SHOWN else self.raw[:_LONGEST_SHOWN] + b"..."
        return f"Hostile({raw!r}, is_head={self.is_head}, framed={self.framed})"


def _escape(text: str) -> str:
    """Escape what no request line can hold; most of what is left is read as it stands."""
    return quote(text, safe=string.punctuation)


_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0 "), max_size=20)
_KNOWN_VALUE = st.sampled_from([*_VALUES.replace("\n", "").split("|"), *_LONG_VALUES])
_VALUE = st.one_of(_KNOWN_VALUE, _KNOWN_VALUE, _TEXT.map(quote), _TEXT.map(_escape))
_QUERY_PART = st.tuples(st.sampled_from(_PARAMETERS.split()), _VALUE).map("=".join)


@st.composite
def _segments(draw: st.DrawFn) -> str:
    """Return a path: a known one, a known one with a piece exchanged, words in any order, or any text."""
    choice = draw(st.integers(0, 10))
    if choice < 6:
        return draw(st.sampled_from(KNOWN))
    if choice < 8:
        parts = draw(st.sampled_from(KNOWN)).split("/")[1:]
        place = draw(st.integers(0, len(parts)))
        piece = draw(st.sampled_from(NASTY if choice == 6 else WORDS))
        how = draw(st.sampled_from(("insert", "replace", "end")))
        if how == "insert":
            parts.insert(place, piece)
        elif how == "replace":
            parts[place : place + 1] = [piece]
        else:
            parts.append(piece)
        return "/" + "/".join(parts)
    if choice == 8:
        return "/" + "/".join(draw(st.lists(st.sampled_from(WORDS + NASTY), max_size=8)))
    if choice == 9:
        return draw(st.sampled_from(("/", "//", "https://x/"))) + draw(_TEXT.map(_escape))
    return draw(st.sampled_from(("/", "", "http://", "*", "x:1/"))) + draw(_TEXT)


_QUERY = st.one_of(
    st.just(""),
    st.just(""),
    st.lists(_QUERY_PART, min_size=1, max_size=3).map(lambda parts: "?" + "&".join(parts)),
)
_CASES: tuple[Callable[[str], str], ...] = (str, str, str.lower, str.upper, str.swapcase)
_HEADER = st.tuples(st.sampled_from(_HEADERS), st.sampled_from(_CASES)).map(
    lambda pair: (pair[1](pair[0][0]), pair[0][1])
)
_ODD_HEADER = st.tuples(
    st.sampled_from(
        ("Accept", "Authorization", "X-Remote-User", "X-Remote-Extra-A", "If-None-Match", "User-Agent")
    ),
    st.binary(max_size=12).filter(lambda value: not set(value) & set(range(32)) and b"\x7f" not in value),
)


# An oddity comes with a middle number: hypothesis takes the ends of a range more often than their share.


@st.composite
def _first_line(draw: st.DrawFn) -> tuple[str, str, bool]:
    """Return the method, the whole line, and whether it is in order."""
    method, version, in_order = "GET", "HTTP/1.1", True
    if draw(st.integers(0, 3)) == 2:
        method = draw(st.sampled_from(_METHODS * 4 + _NO_METHODS))
        in_order = method not in _NO_METHODS
    target = draw(_segments()) + draw(_QUERY).replace(" ", "+")
    if draw(st.integers(0, 40)) == 23:
        target += draw(st.sampled_from((" ", "\t", "\0", " HTTP/1.1 x", "#fragment")))
        in_order = False
    if draw(st.integers(0, 30)) == 17:
        version = draw(st.sampled_from(("HTTP/1.0", "HTTP/0.9", "HTTP/2.0", "HTTP/1.1.1", "http/1.1", "")))
        in_order = False
    return method, f"{method} {target} {version}", in_order


@st.composite
def _header_lines(draw: st.DrawFn) -> tuple[list[bytes], bool]:
    """Return lines, and whether they are in order."""
    lines, in_order = [b"Host: x"], True
    if draw(st.integers(0, 3)) != 2:
        lines.append(b"X-Remote-User: alice")
    named = draw(st.lists(_HEADER, max_size=3))
    if draw(st.integers(0, 9)) == 7:
        named.append(draw(st.sampled_from(_CREDENTIALS)))
    lines += [f"{name}: {value}".encode() for name, value in named]
    if draw(st.integers(0, 9)) == 7:
        name, odd = draw(_ODD_HEADER)
        lines.append(name.encode() + b": " + odd)
    if draw(st.integers(0, 24)) == 13:
        lines.append(draw(st.sampled_from(_BROKEN_HEADERS)))
        in_order = False
    if draw(st.integers(0, 200)) == 113:
        lines += [b"X-Many: %d" % number for number in range(draw(st.sampled_from((200, 3000, 5000))))]
        in_order = False
    return lines, in_order


@st.composite
def _body(draw: st.DrawFn) -> tuple[list[bytes], bytes, bool]:
    """Return the header lines that announce a body, the body, and whether it is as announced."""
    if draw(st.integers(0, 9)) != 7:
        return [], b"", True
    body = draw(st.sampled_from(_BODIES))
    announced = draw(st.sampled_from(("length", "length", "chunked", "short", "none", "huge")))
    if announced == "chunked":
        return [b"Transfer-Encoding: chunked"], b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body), True
    if announced == "none":
        return [], body, False
    length = {"length": len(body), "short": len(body) + 50, "huge": 1 << 62}[announced]
    return [b"Content-Length: %d" % length], body, announced == "length"


@st.composite
def requests(draw: st.DrawFn) -> Hostile:
    method, first, line_in_order = draw(_first_line())
    lines, headers_in_order = draw(_header_lines())
    announced, body, body_in_order = draw(_body())
    head = b"\r\n".join([first.encode(), *lines, *announced, b"", b""])
    return Hostile(head + body, method == "HEAD", line_in_order and headers_in_order and body_in_order)
