"""The files of deploy/ and the page on operations speak of what exists: metrics, alerts, endpoints, commands."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import jsonschema
import pytest
import referencing
import yaml
from service_app import new_advisor, serving
from typer.testing import CliRunner

from tether.check.monitor import MESSAGES
from tether.cli.commands import app
from tether.live.answers import ImpossibleCost
from tether.service.app import Service
from tether.service.config import ServiceConfig
from tether.service.views import Metrics

ROOT = Path(__file__).resolve().parents[2]
DEPLOY, PAGE = ROOT / "deploy", (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
ALERTS = (DEPLOY / "alerts.yaml").read_text(encoding="utf-8")
BOARD = json.loads((DEPLOY / "grafana.json").read_text(encoding="utf-8"))


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


def test_the_panels_of_the_dashboard_ask_something_and_do_not_overlap():
    taken = [(place["x"] + i, place["y"] + j) for place in (panel["gridPos"] for panel in BOARD["panels"])
             for i in range(place["w"]) for j in range(place["h"])]  # fmt: skip
    assert len(taken) == len(set(taken)) and max(x for x, _ in taken) < 24
    assert all(panel["targets"] and panel["title"] for panel in BOARD["panels"])


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


def test_orders_reach_a_service_that_is_not_ready():
    """While the log cannot be written, a stop holds in the process that takes it: no proxy may answer in its place."""
    assert re.findall(r"health_uri (\S+)", (DEPLOY / "Caddyfile").read_text(encoding="utf-8")) == ["/healthz"]
    documents = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text(encoding="utf-8")))
    reached = [each["metadata"]["name"] for each in documents if each["spec"].get("publishNotReadyAddresses")]
    assert reached == ["tether-orders"] and "`tether-orders`" in PAGE


def test_the_password_of_compose_may_hold_what_an_address_may_not():
    """libpq reads it from the environment; within an address `/` and `@` would end it."""
    psycopg = pytest.importorskip("psycopg")
    service = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"]["tether"]
    told = {name: text.replace("${POSTGRES_PASSWORD:?}", "a/b@c:1%") for name, text in service["environment"].items()}
    reached = psycopg.conninfo.conninfo_to_dict(told["TETHER_STORE"])
    assert (reached["host"], reached["user"], reached["dbname"]) == ("log", "tether", "tether")
    assert reached.get("password", told.get("PGPASSWORD")) == "a/b@c:1%"


def needs(program, package):
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"needs {program}: apt-get install {package}")


def says_yes(*command, **options):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@needs("promtool", "prometheus")
def test_prometheus_reads_the_rules_the_metrics_and_what_the_dashboard_asks(metrics, tmp_path):
    for name in ("prometheus.yaml", "alerts.yaml"):
        shutil.copy(DEPLOY / name, tmp_path)
    (tmp_path / "tether-token").write_text("secret")
    assert "14 rules found" in says_yes("promtool", "check", "config", tmp_path / "prometheus.yaml")
    says_yes("promtool", "check", "metrics", input=metrics)
    asked = [target["expr"] for panel in BOARD["panels"] for target in panel["targets"]]
    rules = [{"record": f"asked_{number}", "expr": expression} for number, expression in enumerate(asked)]
    (tmp_path / "asked.json").write_text(json.dumps({"groups": [{"name": "asked", "rules": rules}]}))
    assert f"{len(asked)} rules found" in says_yes("promtool", "check", "rules", tmp_path / "asked.json")


STEADY, RISING = "{0}x150", "0+{0}x150"
DECISIONS = '{path="/v1/decisions",le="%s"}'
ANSWERED = '{method="POST",path="/v1/decisions",status="%s"}'
TELLING = {  # alert: series, as they are after two hours where it fires, and where it must not
    "TetherDown": [('up{job="tether"}', STEADY, 0, 1)],
    "TetherAlarm": [("tether_alarm", STEADY, 1, 0)],
    "TetherLogFailing": [("tether_log_failed", STEADY, 1, 0)],
    "TetherProblemFailing": [("tether_problem_failed", STEADY, 1, 0)],
    "TetherDecisionsRefused": [  # by a problem that fails, or by a log that does, which has an alert of its own
        (f"tether_request_duration_seconds_count{ANSWERED % 400}", RISING, 10, 1),
        (f"tether_request_duration_seconds_count{ANSWERED % 503}", RISING, 0, 50),
        (f"tether_request_duration_seconds_count{ANSWERED % 200}", RISING, 90, 99),
    ],
    "TetherGateRefused": [("tether_gate_refusals_total", RISING, 1, 0)],
    "TetherStopped": [("tether_stopped", STEADY, 1, 0)],
    "TetherCostsOverThreshold": [  # one outcome in ten: 60 in an hour, or six, which two replicas tell of
        *((f'tether_costs_over_threshold_total{{pod="{pod}"}}', RISING, 1, 0.1) for pod in "ab"),
        *((f'tether_outcomes_total{{pod="{pod}"}}', RISING, 10, 1) for pod in "ab"),
    ],
    "TetherOutcomesWait": [
        ("tether_outcomes_pending", STEADY, 1, 1),
        ("tether_outcomes_waiting", STEADY, 1, 1),
        ("tether_outcomes_waiting_since_timestamp_seconds", STEADY, 60, 7000),
        ("tether_outcomes_total", RISING, 1, 1),
    ],
    "TetherOutcomesLost": [("tether_outcomes_lost_total", RISING, 1, 0)],
    "TetherSnapshotOld": [("tether_snapshot_age_entries", STEADY, 60_000, 40_000)],
    "TetherLogLarge": [("tether_log_size_bytes", RISING, 10_000_000, 1_000_000)],
    "TetherSyncSlow": [
        ('tether_log_sync_duration_seconds_bucket{le="0.1"}', RISING, 90, 100),
        ('tether_log_sync_duration_seconds_bucket{le="1"}', RISING, 100, 100),
        ('tether_log_sync_duration_seconds_bucket{le="+Inf"}', RISING, 100, 100),
    ],
    "TetherSlow": [
        (f"tether_request_duration_seconds_bucket{DECISIONS % 0.25}", RISING, 90, 100),
        (f"tether_request_duration_seconds_bucket{DECISIONS % 1.0}", RISING, 100, 100),
        (f"tether_request_duration_seconds_bucket{DECISIONS % '+Inf'}", RISING, 100, 100),
    ],
}


@needs("promtool", "prometheus")
def test_each_alert_fires_when_it_should_and_not_before(tmp_path):
    """By Prometheus' own arithmetic, on made-up series."""
    severity = dict(re.findall(r"alert: (\w+).*?severity: (\w+)", ALERTS, re.DOTALL))
    assert set(TELLING) == set(severity)
    tests = [unit(alert, [(name, shape.format(bad)) for name, shape, bad, _ in series], severity[alert])
             for alert, series in TELLING.items()]  # fmt: skip
    tests += [unit(alert, [(name, shape.format(good)) for name, shape, _, good in series])
              for alert, series in TELLING.items()]  # fmt: skip
    tests += [unit("TetherDown", [("other", "1x150")], "page")]  # a target that is gone is down, too
    old = [("tether_outcomes_pending", "9x150"), ("tether_outcomes_waiting_since_timestamp_seconds", "60x150")]
    tests += [unit("TetherOutcomesWait", [*old, ("tether_outcomes_total", "5x150")], "ticket")]  # a silent sensor
    tests += [unit("TetherOutcomesWait", [*old, ("tether_outcomes_total", "0+1x150")])]  # one that takes its time
    (tmp_path / "tests.json").write_text(json.dumps({"rule_files": [str(DEPLOY / "alerts.yaml")], "tests": tests}))
    says_yes("promtool", "test", "rules", tmp_path / "tests.json")


def unit(alert, series, severity=None):
    """What promtool is to find after two hours: one alert of that severity, or none."""
    labels = {"severity": severity} | ({"job": "tether"} if alert == "TetherDown" else {})
    expected = [] if severity is None else [{"exp_labels": labels}]
    asked = {"eval_time": "2h", "alertname": alert, "exp_alerts": expected}
    told = [{"series": name, "values": values} for name, values in series]
    return {"interval": "1m", "input_series": told, "alert_rule_test": [asked]}


@needs("systemd-analyze", "systemd")
def test_systemd_reads_the_unit(tmp_path):
    unit = (DEPLOY / "tether.service").read_text(encoding="utf-8")
    assert "DynamicUser=yes" in unit and "ProtectSystem=strict" in unit
    (tmp_path / "tether.service").write_text(
        unit.replace("ExecStart=tether ", f"ExecStart={sys.executable} -m tether ")
    )
    assert "tether.service" not in says_yes("systemd-analyze", "verify", tmp_path / "tether.service")


@needs("caddy", "caddy")
def test_caddy_reads_its_file(tmp_path):
    home = {"XDG_DATA_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), **os.environ}
    says_yes("caddy", "validate", "--adapter", "caddyfile", "--config", DEPLOY / "Caddyfile", env=home)


def published(folder, requirement):
    """The wheel of a package, for the schemas in it; whoever has no registry skips."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, requirement],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        pytest.skip(f"the package registry has no {requirement}: {done.stderr[-200:]}")
    return zipfile.ZipFile(next(folder.glob("*.whl")))


@pytest.mark.slow
@pytest.mark.parametrize("version", ["v1.25.0", "v1.37.0"])
def test_kubernetes_knows_every_field(tmp_path, version):
    """Against the strict schemas of its API, which refuse what they do not know."""
    with published(tmp_path, "kubernetes-validate==1.37.0") as wheel:
        folder = f"kubernetes_validate/kubernetes-json-schema/{version}-local-strict"
        files = {"": "_definitions", "Deployment": "deployment-apps-v1", "Service": "service-v1"}
        schemas = {kind: json.loads(wheel.read(f"{folder}/{file}.json")) for kind, file in files.items()}
    registry = referencing.Registry().with_resources(
        (schema["$id"], referencing.Resource.from_contents(schema)) for schema in schemas.values()
    )
    for document in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text(encoding="utf-8")):
        check = jsonschema.Draft202012Validator(schemas[document["kind"]], registry=registry)
        assert not list(check.iter_errors(document))
        assert list(check.iter_errors({**document, "spec": {**document["spec"], "repllicas": 2}}))


@pytest.mark.slow
def test_compose_knows_every_field(tmp_path):
    with published(tmp_path, "docker-compose==1.29.2") as wheel:
        check = jsonschema.Draft7Validator(json.loads(wheel.read("compose/config/compose_spec.json")))
    document = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    assert not list(check.iter_errors(document))
    assert list(check.iter_errors({**document, "servicez": {}}))
