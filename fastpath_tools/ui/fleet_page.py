"""The page of all autoscalers."""

from fastpath_tools.ui.access import ClusterAccess
from fastpath_tools.ui.pages import Content, Query, Templates


class FleetPage:
    def __init__(self, access: ClusterAccess, templates: Templates) -> None:
        self._access = access
        self._templates = templates

    async def read(self, query: Query) -> Content:
        namespace = query.get("namespace", "") or self._access.options.target[0]
        hpas = await self._access.cluster.hpas(namespace)
        keys = [(hpa.metadata.namespace, hpa.metadata.name) for hpa in hpas]
        return Content("Autoscalers", [self._templates.section("rows", "fleet.html", keys=keys)])
