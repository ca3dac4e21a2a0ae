"""The session that prometheus-api-client sends with: our TLS, headers, proxy, and errors.

The library decides what is requested, and this session how. It is given a session in place of its own,
because its own reads certificates and proxies from the environment and repeats what fails.
"""

import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import requests
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry

from adapter.errors import PrometheusError
from adapter.prometheus import endpoint, response
from adapter.prometheus.endpoint import PrometheusEndpoint, TLSFiles

NO_RETRY = Retry(0, read=False)
"""For the library, whose own Retry would repeat three times with pauses."""

_REFUSAL_BYTES = 64 * 1024


class EndpointSession(requests.Session):
    """A session for one Prometheus."""

    def __init__(
        self, place: PrometheusEndpoint, tls: TLSFiles, headers: Mapping[str, str], proxy: str
    ) -> None:
        super().__init__()
        self._place = place
        self.trust_env = False  # proxies are resolved already; netrc and CA variables do not apply
        self.headers = requests.structures.CaseInsensitiveDict(headers)
        self.max_redirects = 10
        if proxy:
            self.proxies = {"http": proxy, "https": proxy}
        system = ssl.get_default_verify_paths()
        self.verify = tls.verify and (tls.ca_file or system.cafile or system.capath or True)
        self.cert = (tls.cert_file, tls.key_file) if tls.cert_file else None
        if tls.server_name:
            # a longer prefix than that of the library's adapter, so that it takes precedence
            self.mount(f"{place.base}/api", _NamedServer(tls.server_name))

    @contextmanager
    def answer(
        self, path: str, params: Sequence[tuple[str, str]], timeout: float
    ) -> Iterator[requests.Response]:
        """Send parameters to a path, and give the answer, whose body is not read yet.

        Raises PrometheusError for a refusal, requests.RequestException without an answer.
        """
        method, full, body = self._place.request(path, list(params))
        form = {"Content-Type": "application/x-www-form-urlencoded"} if body is not None else None
        sent = super().request(method, full, data=body, headers=form, timeout=timeout, stream=True)
        with sent as answer:
            if answer.status_code >= 300:
                readable = answer.status_code in response.READABLE_STATUSES
                refusal = next(answer.iter_content(_REFUSAL_BYTES), b"") if readable else b""
                raise response.explain_refusal(answer.status_code, refusal)
            yield answer


class _NamedServer(HTTPAdapter):
    """Expects another name in the server's certificate than the URL's."""

    def __init__(self, name: str) -> None:
        self._name = name
        super().__init__(max_retries=NO_RETRY)

    def init_poolmanager(self, connections: int, maxsize: int, block: bool = False, **pool: object) -> None:  # noqa: FBT001, FBT002 - requests' own signature
        super().init_poolmanager(
            connections, maxsize, block, server_hostname=self._name, assert_hostname=self._name, **pool
        )


def map_error(error: requests.RequestException) -> PrometheusError:
    """Map an error of requests.

    The text is that of the innermost cause: outer ones hold the URL and memory addresses.
    """
    kind = "timeout" if isinstance(error, requests.Timeout) else "unreachable"
    if isinstance(
        error, requests.TooManyRedirects | requests.exceptions.InvalidURL | requests.exceptions.InvalidSchema
    ):
        return PrometheusError("status", "too many redirects, or a redirect to an invalid URL")
    if isinstance(error, requests.exceptions.ChunkedEncodingError | requests.exceptions.ContentDecodingError):
        return PrometheusError(kind, "the connection broke within the answer")
    if kind == "timeout":
        return PrometheusError(kind, "no answer in time")
    cause: BaseException = error
    while (inner := cause.__cause__ or cause.__context__) is not None:
        cause = inner
    text = (isinstance(cause, OSError) and cause.strerror) or str(cause)
    if isinstance(cause, TimeoutError):
        return PrometheusError("timeout", "no answer in time")
    if isinstance(cause, ssl.SSLError):
        text = endpoint.explain_tls(cause)
    elif isinstance(error, requests.exceptions.SSLError):
        text = f"certificate not accepted: {cause}"
    return PrometheusError(kind, response.shorten(text))
