"""The version of the installed distribution."""

from importlib import metadata


def version() -> str:
    """Return it, or "unknown" when the package runs without being installed."""
    try:
        return metadata.version("fastpath-adapter")
    except metadata.PackageNotFoundError:
        return "unknown"
