"""The files of deploy/ and the page on operations speak of what exists: metrics, alerts, endpoints, commands."""

import json
import os
import re
from pathlib import Path

import pytest
from service_app import new_advisor

from tether.service.app import Service
from tether.service.config import ServiceConfig
from tether.service.views import Metrics

ROOT = Path(__file__).resolve().parents[2]
DEPLOY, PAGE = ROOT / "deploy", (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
ALERTS = (DEPLOY / "alerts.yaml").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def metrics():
    """Names of all that /metrics can say, with the suffixes of counters and histograms."""
    advisor, told = new_advisor(), Metrics()
    advisor.snapshot()
    told.answers.labels("live", "other", "optimistic").inc()
    told.acknowledged.labels("false").inc()
    told.requests.labels("POST", "/v1/decisions", 200).observe(0.01)
    text = told.text(advisor.status(), advisor.store.usage()).decode()
    assert "process_resident_memory_bytes" in text and 'version="' in text
    return text


@pytest.fixture(scope="module")
def names(metrics):
    return set(re.findall(r"^(tether_\w+)", metrics, re.MULTILINE))


def test_metrics_are_named_by_convention(metrics):
    """prometheus.io/docs/practices/naming: counters end in _total, units are base units, no process ids."""
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", metrics, re.MULTILINE))
    assert {"counter", "gauge", "histogram"} == set(kinds.values())
    for name, kind in kinds.items():
        assert (kind == "counter") == name.endswith("_total"), name
        assert kind != "histogram" or name.endswith("_seconds"), name
        assert not re.search(r"_(ms|minutes|mb|kb|percent)\b", name), name
    assert str(os.getpid()) not in re.findall(r'"(\w+)"', metrics) and "worker=" not in metrics
    wanted = ("tether_log_size_bytes", "tether_snapshot_age_seconds", "tether_log_sync_duration_seconds",
              "tether_outcomes_pending", "tether_costs_over_threshold_total", "tether_build_info",
              "process_cpu_seconds_total", "process_resident_memory_bytes")  # fmt: skip
    assert set(wanted) <= set(kinds)


@pytest.mark.parametrize("file", ["alerts.yaml", "grafana.json"])
def test_rules_and_dashboard_ask_for_metrics_that_exist(names, file):
    asked = set(re.findall(r"tether_\w+", (DEPLOY / file).read_text(encoding="utf-8")))
    assert len(asked) > 5 and asked <= names, asked - names


def test_the_dashboard_is_json_with_panels():
    board = json.loads((DEPLOY / "grafana.json").read_text(encoding="utf-8"))
    assert all(panel["targets"] for panel in board["panels"])


def test_every_alert_has_its_chapter_and_every_chapter_its_alert():
    alerts, chapters = set(re.findall(r"alert: (\w+)", ALERTS)), set(re.findall(r"^## (Tether\w+)", PAGE, re.MULTILINE))
    assert alerts == chapters and len(alerts) > 5


def test_the_page_and_the_probes_use_endpoints_that_exist():
    paths = {endpoint.path for endpoint in Service(ServiceConfig(problem="a:b"), None, is_open=True).endpoints}
    asked = {f"/v1/{name}" for name in re.findall(r'order ([a-z/]+) "', PAGE)} | set(
        re.findall(r"\$URL(/\S+?)\"", PAGE)
    )
    asked.discard("/v1/$1")
    asked |= set(re.findall(r"path: (/\w+)", (DEPLOY / "kubernetes.yaml").read_text(encoding="utf-8")))
    assert {"/v1/stop", "/v1/alarm/reset", "/readyz", "/healthz"} <= asked <= paths, asked - paths
