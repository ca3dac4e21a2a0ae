"""The addresses of pages below the root: "" is the fleet, ``autoscalers/NAMESPACE/NAME`` one autoscaler."""

from urllib.parse import quote

_AUTOSCALERS = "autoscalers"

FLEET = ""


def of_autoscaler(namespace: str, name: str) -> str:
    return "/".join((_AUTOSCALERS, quote(namespace, safe=""), quote(name, safe="")))


def parse_autoscaler(path: str) -> tuple[str, str] | None:
    """Return namespace and name of an autoscaler's page from a decoded path, None for another path."""
    first, *key = path.split("/")
    if first != _AUTOSCALERS or len(key) != 2 or not {"", ".", ".."}.isdisjoint(key):
        return None
    return key[0], key[1]
