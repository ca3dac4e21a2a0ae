"""On a real Prometheus: planned answers equal those of each question asked alone, whatever the rule and whoever asks together.

Rules are made of all aggregations, functions over one series, matchers, binary and set operators; objects share names across
namespaces and have dots in them; some have no series, some have several.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Mapping, Sequence

import hypothesis
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from adapter.clients.answers import Freshness
from adapter.clients.connection import PrometheusSettings
from adapter.clients.prometheus import PrometheusClient
from adapter.clients.querycache import QueryCache
from adapter.errors import PrometheusError
from adapter.model.metrics import QueryResult, Sample
from adapter.model.selectors import parse_selector
from adapter.monitoring import FaultLog, Monitoring
from adapter.rules import matchers, plan
from adapter.rules.plan import Objects, PlannedQuery
from adapter.rules.query import MetricQuery, index_samples
from tests.support.clock import FakeClock
from tests.support.prometheus import PrometheusFactory, PrometheusServer
from tests.support.world import compile_rule
