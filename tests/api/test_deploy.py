"""The files in deploy/: a dashboard over metrics that exist; units, compose and Kubernetes that start what there is."""

import configparser
import json
import plistlib
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from proxy_inference_engine.config import Config, load_config
from proxy_inference_engine.errors import StartupError
from tests.api.running import running
from tests.far import far_side
from tests.polling import HANG_S, wait_until

_OF_VLLM = {"url", "far_model"}  # settings of the engine elsewhere
DEPLOY = Path(__file__).parents[2] / "deploy"


def test_the_dashboard_asks_for_metrics_and_labels_that_are_there() -> None:
    dashboard = json.loads((DEPLOY / "grafana.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    with running() as live, live.http() as http:
        body = {"model": "default", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 3}
        assert http.post("/v1/chat/completions", json=body).status_code == 200
        shown = http.get("/metrics").text
    samples = {name: labels for name, labels in re.findall(r"^(pie_\w+)(?:\{(.*?)\})? ", shown, re.MULTILINE)}
    asked = {name for query in queries for name in re.findall(r"\bpie_\w+", query)}
    assert len(asked) > 15 and asked <= samples.keys(), asked - samples.keys()
    for query in queries:
        for name in re.findall(r'\b(pie_\w+)\{model=~"\$model"\}', query):
            assert "model=" in samples[name]
        for label in re.findall(r"by \((\w+)\)", query):
            assert any(f"{label}=" in samples[name] for name in re.findall(r"\bpie_\w+", query)), query


def test_the_units_start_the_program() -> None:
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DEPLOY / "pie.service")
    plist = plistlib.loads((DEPLOY / "pie.plist").read_bytes())
    for words in (unit["Service"]["ExecStart"].split(), plist["ProgramArguments"]):
        assert words[0].endswith("/pie") and words[1:3] == ["serve", "--config"]
    for variable in re.findall(r"PIE_(\w+)=", unit["Service"]["Environment"]):
        assert variable.lower() in Config.model_fields
    assert unit["Service"]["ExecReload"].split()[1:] == ["-HUP", "$MAINPID"], "what reads keys and models again"
    assert unit["Service"]["Restart"] == "on-failure" and plist["KeepAlive"] == {"SuccessfulExit": False}
    longest = Config().drain_seconds + 5
    assert int(unit["Service"]["TimeoutStopSec"]) > longest and plist["ExitTimeOut"] > longest


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not here")
def test_systemd_has_no_doubts_about_its_unit(tmp_path: Path) -> None:
    unit = (DEPLOY / "pie.service").read_text().replace("/opt/pie/.venv/bin/pie", sys.executable)
    (tmp_path / "pie.service").write_text(unit)
    line = ["systemd-analyze", "verify", str(tmp_path / "pie.service")]
    checked = subprocess.run(line, capture_output=True, encoding="utf-8", timeout=60)
    doubts = [said for said in checked.stderr.splitlines() if str(tmp_path) in said]  # others are about the machine
    assert checked.returncode == 0 and not doubts


def settings_of(text: str) -> dict[str, Any]:
    settings = tomllib.loads(text)
    assert settings.keys() - _OF_VLLM <= Config.model_fields.keys()
    return settings


def check_environment(environment: dict[str, str], settings: Path, folder: Path) -> None:
    """What the program makes of the variables and the file together, with keys where the variable says."""
    keys = folder / "keys"
    keys.write_text(f"app:sha256:{'0' * 64}\n")
    assert {"PIE_STORE_URL", "PIE_API_KEY_FILE"} <= environment.keys()
    config = load_config({"config": settings}, {**environment, "PIE_API_KEY_FILE": str(keys)}, folder)
    assert config.engine == "vllm" and config.url == ("http://vllm:8000",)
    assert config.store_url == environment["PIE_STORE_URL"] and [key.name for key in config.api_keys] == ["app"]


def test_compose_names_what_is_there(tmp_path: Path) -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    services = compose["services"]
    pie = services["pie"]
    assert (DEPLOY / pie["build"]["context"] / pie["build"]["dockerfile"]).is_file()
    assert set(pie["depends_on"]) <= services.keys()
    assert all("healthcheck" in services[name] for name in pie["depends_on"])
    assert set(pie["secrets"]) == compose["secrets"].keys()
    volumes = [volume.split(":") for service in services.values() for volume in service.get("volumes", ())]
    for source, *_ in volumes:
        assert (DEPLOY / source).exists() if source.startswith(".") else source in compose["volumes"]
    mounted = {target: DEPLOY / source for source, target, *_ in volumes if source.startswith(".")}
    check_environment(pie["environment"], mounted[pie["command"][-1]], tmp_path)
    settings = settings_of(mounted[pie["command"][-1]].read_text())
    assert (
        settings["url"] == "http://vllm:8000"
        and f"--served-model-name={settings['far_model']}" in services["vllm"]["command"]
    )
    assert settings["model"] in next(word for word in services["vllm"]["command"] if word.startswith("--model="))
    assert "@postgres/pie" in pie["environment"]["PIE_STORE_URL"]
    assert int(pie["stop_grace_period"].removesuffix("s")) > Config().drain_seconds + 5


def objects() -> dict[tuple[str, str], Any]:
    found = {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(_manifest())}
    assert all(each["metadata"].get("namespace", "pie") == "pie" for each in found.values())
    return found


def _manifest() -> str:
    return (DEPLOY / "kubernetes.yaml").read_text()


def test_kubernetes_names_what_is_there() -> None:
    found = objects()
    pods = {name: each["spec"] for (kind, name), each in found.items() if kind in ("Deployment", "StatefulSet")}
    for name, spec in pods.items():
        labels = spec["template"]["metadata"]["labels"]
        assert spec["selector"]["matchLabels"] == labels
        service = found["Service", name]["spec"]
        assert service["selector"] == labels
        (container,) = spec["template"]["spec"]["containers"]
        ports = {port["name"] for port in container["ports"]}
        assert {port["targetPort"] for port in service["ports"]} <= ports
        volumes = {volume["name"] for volume in spec["template"]["spec"].get("volumes", ())}
        claims = {claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates", ())}
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes | claims
    assert found["PodDisruptionBudget", "pie"]["spec"]["selector"]["matchLabels"] == {"app": "pie"}
    for kind, name in re.findall(r"(secretKeyRef|configMap|secretName|claimName)[:{ ]+(?:name: )?(\w+)", _manifest()):
        kinds = {"configMap": "ConfigMap", "claimName": "PersistentVolumeClaim"}
        assert (kinds.get(kind, "Secret"), name) in found


def test_no_service_becomes_a_setting(tmp_path: Path) -> None:
    """Kubernetes tells every container of every Service by variables, unless the pod wants none."""
    found = objects()
    told = {f"{name.upper()}_{what}" for kind, name in found if kind == "Service" for what in ("PORT", "SERVICE_HOST")}
    assert {"PIE_PORT", "VLLM_PORT"} <= told
    with pytest.raises(StartupError):
        load_config({}, dict.fromkeys(told, "tcp://10.0.0.1:80"), tmp_path)
    for kind, name in found:
        if kind in ("Deployment", "StatefulSet"):
            assert found[kind, name]["spec"]["template"]["spec"]["enableServiceLinks"] is False, name


def test_a_pod_waits_until_the_cache_is_filled() -> None:
    spec = objects()["Deployment", "pie"]["spec"]["template"]["spec"]
    (waiting,) = spec["initContainers"]
    assert waiting["image"] == spec["containers"][0]["image"] and waiting["command"][1:] == ["-c"]
    (program,) = waiting["args"]
    with far_side() as far:
        program = program.replace("http://vllm:8000", far.url).replace("sleep(5)", "sleep(0.05)")
        far.status = 503
        with subprocess.Popen([sys.executable, "-c", program]) as process:
            wait_until(lambda: far.num_connections > 2)
            assert process.poll() is None
            far.status = 200
            assert process.wait(HANG_S) == 0


def test_kubernetes_starts_the_program_with_what_it_has(tmp_path: Path) -> None:
    found = objects()
    pod = found["Deployment", "pie"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    settings = found["ConfigMap", "pie"]["data"]["pie.toml"]
    assert settings_of(settings) == settings_of((DEPLOY / "cluster.toml").read_text())
    (tmp_path / "pie.toml").write_text(settings)
    secret = found["Secret", "pie"]["stringData"]
    assert secret["postgres-password"] in secret["store-url"]
    from_secret = {"PIE_STORE_URL": secret["store-url"]}
    environment = {variable["name"]: variable.get("value") for variable in container["env"]} | from_secret
    check_environment(environment, tmp_path / "pie.toml", tmp_path)
    (sleep, seconds) = container["lifecycle"]["preStop"]["exec"]["command"]
    assert sleep == "sleep" and int(seconds) >= 5, "who still sends requests there hears of its end before it refuses"
    assert pod["terminationGracePeriodSeconds"] > int(seconds) + Config().drain_seconds + 5
    with running() as live, live.http() as http:
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert http.get(container[probe]["httpGet"]["path"]).status_code == 200
