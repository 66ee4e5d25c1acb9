"""The files of deploy/ and the page on operations speak of what exists: metrics, alerts, endpoints, commands."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from service_app import new_advisor, serving
from typer.testing import CliRunner

from tether.check.monitor import MESSAGES
from tether.cli.commands import app
from tether.live.records import ImpossibleCost
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


def test_every_kind_of_alarm_has_its_section_with_a_way_out():
    kinds = {*MESSAGES, "range"}
    told = dict(re.findall(r"^### Alarm `(\w+)`\n\n(.+)", PAGE, re.MULTILINE))
    assert set(told) == kinds and {"range"} == {alarm_of(new_advisor()).test}
    assert all("reset" in text or "new log" in text.lower() for text in told.values())


def alarm_of(advisor):
    """The alarm that is no test's: of a cost that cannot be."""
    with pytest.raises(ImpossibleCost):
        advisor.record(advisor.decide(0).id, 0.1, 1e6)
    return advisor.replica.ledger.tripped


def test_every_chapter_has_a_command():
    chapters = re.split(r"^## ", PAGE, flags=re.MULTILINE)[2:]
    assert len(chapters) > 10
    for chapter in chapters:
        assert re.search(r"^    \S|`(order|tether|curl|journalctl|jq|systemctl|kubectl) ", chapter, re.MULTILINE), (
            chapter
        )


def test_commands_of_the_page_exist():
    """`tether …` as the command line knows it, options included."""
    used = set(re.findall(r"`tether ([a-z]+(?: [a-z]+)?)[^`\n]*", PAGE)) | {"serve"}
    for words in {word.split()[0] for word in used}:
        done = CliRunner().invoke(app, [words, "--help"])
        assert done.exit_code == 0, words


needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="a program of its own: apt-get install prometheus"
)
DOCKER = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")


def steps(word):
    return re.findall(rf"^{word} +(.+)$", DOCKER, re.MULTILINE)


def test_the_image_runs_as_nobody_and_starts_the_service(tmp_path):
    """The steps that need no engine: who it runs as, what it runs, and a health check that tells up from down."""
    assert steps("USER") == ["65532:65532"] and DOCKER.index("USER ") > DOCKER.rindex("RUN ")
    assert json.loads(steps("ENTRYPOINT")[0]) + json.loads(steps("CMD")[0]) == ["tether", "serve", "service.toml"]
    (check,) = steps("HEALTHCHECK")
    command = json.loads(check[check.index("[") :])
    assert command[:2] == ["python", "-c"]
    with serving(new_advisor()) as client:
        probe = command[2].replace("127.0.0.1:8080", f"127.0.0.1:{client.base_url.port}")
        assert subprocess.run([sys.executable, "-c", probe], check=False).returncode == 0
    assert subprocess.run([sys.executable, "-c", probe], check=False, capture_output=True).returncode == 1


def test_kubernetes_and_compose_run_as_the_image_does():
    kubernetes, compose = ((DEPLOY / name).read_text(encoding="utf-8") for name in ("kubernetes.yaml", "compose.yaml"))
    (user,) = {line.partition(":")[0] for line in steps("USER")}
    assert f"runAsUser: {user}" in kubernetes and "runAsNonRoot: true" in kubernetes
    assert (
        "readOnlyRootFilesystem: true" in kubernetes and "read_only: true" in compose and "cap_drop: [ALL]" in compose
    )
    assert re.findall(r"(\w+)Probe: {httpGet: {path: /(\w+)", kubernetes) == [
        ("startup", "healthz"), ("liveness", "healthz"), ("readiness", "readyz")]  # fmt: skip


@pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is a program of its own: apt-get install prometheus"
)
def test_prometheus_reads_the_rules():
    done = subprocess.run(["promtool", "check", "rules", DEPLOY / "alerts.yaml"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is a program of its own: apt-get install prometheus"
)
def test_prometheus_reads_the_metrics(metrics):
    done = subprocess.run(["promtool", "check", "metrics"], input=metrics, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_reads_the_unit(tmp_path):
    unit = (DEPLOY / "tether.service").read_text(encoding="utf-8")
    assert "DynamicUser=yes" in unit and "ProtectSystem=strict" in unit
    (tmp_path / "tether.service").write_text(
        unit.replace("ExecStart=tether ", f"ExecStart={sys.executable} -m tether ")
    )
    done = subprocess.run(["systemd-analyze", "verify", tmp_path / "tether.service"], capture_output=True, text=True)
    assert done.returncode == 0 and "tether.service" not in done.stderr, done.stderr
