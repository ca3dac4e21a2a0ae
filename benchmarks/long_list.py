"""A Prometheus with a long series list: `python -m benchmarks.long_list PORT_FILE SERIES NAMES`.

It serves only `/api/v1/series`, as Prometheus does: series with the labels of a scraped pod, sorted by name.
"""

import sys
from pathlib import Path

import uvloop
from aiohttp import web

from benchmarks import bare

_BLOCK = 2000


async def main(port: Path, series: int, names: int) -> None:
    per_name = -(-series // names)

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        if request.path != "/api/v1/series":
            return web.Response(status=404)
        response = await bare.begin(request)
        await response.write(b'{"status":"success","data":[')
        texts = (_series(number, per_name).encode() for number in range(series))
        await bare.send(response, bare.separated(texts), _BLOCK)
        await response.write(b"]}")
        return response

    await bare.listen(handle, port)


def _series(number: int, per_name: int) -> str:
    """Return about 200 bytes, what a series of a scraped pod takes."""
    name, which = divmod(number, per_name)
    return (
        f'{{"__name__":"component_{name:05}_requests_total","code":"200","container":"main",'
        f'"instance":"10.{which >> 16 & 255}.{which >> 8 & 255}.{which & 255}:8080","job":"pods",'
        f'"namespace":"team-{which % 100:04}","pod":"app-{which % 100:04}-7c9f8d6b5-{which:05}"}}'
    )


if __name__ == "__main__":
    uvloop.run(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
