"""The lines between the scaler and the process of forecasts."""

import msgspec

from adapter.model.forecasts.job import ForecastAnswer, ForecastJob, from_plain, to_plain
from adapter.prometheus.range_server import RangeServer


class WorkerJob(msgspec.Struct, frozen=True):
    """A job with the Prometheus that has the history. `most_values` bounds all histories."""

    job: ForecastJob
    server: RangeServer
    most_values: int


class WorkerReply(msgspec.Struct, frozen=True):
    """An answer. `refused` tells that Prometheus refused the credentials."""

    answer: ForecastAnswer
    refused: bool = False


def encode_job(job: WorkerJob) -> bytes:
    return msgspec.json.encode(job, enc_hook=to_plain) + b"\n"


def decode_job(line: bytes) -> WorkerJob:
    return msgspec.json.decode(line, type=WorkerJob, dec_hook=from_plain)


def decode_reply(line: bytes) -> WorkerReply:
    return msgspec.json.decode(line, type=WorkerReply)
