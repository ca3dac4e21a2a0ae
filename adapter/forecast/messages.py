"""The lines between the scaler and the process of forecasts."""

import msgspec

from adapter.bounds.forecast.job import ForecastAnswer, ForecastJob, from_plain, to_plain
from adapter.prometheus.endpoint import PrometheusServer


class WorkerJob(msgspec.Struct, frozen=True):
    """A job with the Prometheus that has the history. `most_values` bounds all histories.

    A job that would take more than `cpu_seconds` of CPU time, or `seconds` in all, is given up.
    """

    job: ForecastJob
    server: PrometheusServer
    most_values: int
    cpu_seconds: float
    seconds: float


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
