"""The proxy that the environment names for a URL.

`HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`, read as Go reads them.
"""

import ipaddress
from urllib.parse import urlsplit

import requests.utils


def proxy_of(base: str, host: str) -> str:
    """Return the URL of the proxy, "" for none.

    As in Go, loopback addresses need no proxy, `ALL_PROXY` is ignored, and a value without a scheme means
    HTTP.
    """
    try:
        local = ipaddress.ip_address(host).is_loopback
    except ValueError:
        local = host == "localhost"
    if local:
        return ""
    proxy = requests.utils.get_environ_proxies(base).get(urlsplit(base).scheme, "")
    return proxy if not proxy or "://" in proxy else f"http://{proxy}"
