"""Reads the changes of a page as its script does."""

import json
from typing import Any

from aiohttp import ClientResponse


class PageStream:
    """Reads the events of a response, comments and the time to connect again apart."""

    def __init__(self, response: ClientResponse) -> None:
        self._response = response
        self._lines: dict[str, list[str]] = {}

    async def next(self) -> tuple[str, Any]:
        kind = ""
        while True:
            line = (await self._response.content.readline()).decode()
            assert line, "the stream has ended"
            field, _, value = line.rstrip("\n").partition(": ")
            if field == "event":
                kind = value
            elif field == "data":
                return kind, json.loads(value)

    async def sections(self) -> dict[str, str]:
        """Return the HTML of the sections of the next event, which is one about sections."""
        kind, content = await self.next()
        assert kind == "sections"
        return self.rebuild(content)

    def rebuild(self, content: Any) -> dict[str, str]:
        """Return the HTML of sections from the lines of an event, in their order."""
        for section in content:
            known = self._lines.get(section["name"], [])
            lines = [line if isinstance(line, str) else known[line] for line in section["lines"]]
            self._lines[section["name"]] = lines
        return {section["name"]: "\n".join(self._lines[section["name"]]) for section in content}
