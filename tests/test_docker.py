"""What can be checked of the Dockerfile and the compose file without a Docker engine."""

import json
import re
import tomllib
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from app.main import create_app
from app.settings import PREFIX, Settings, load_settings


@dataclass(frozen=True)
class Instruction:
    """One instruction of a Dockerfile: the number of its stage, its keyword, and the rest of it."""

    stage: int
    keyword: str
    rest: str


@pytest.fixture(scope="module")
def instructions(repository: Path) -> list[Instruction]:
    lines = [line for line in (repository / "Dockerfile").read_text().splitlines() if not line.startswith("#")]
    joined = re.sub(r"\s*\\\n\s*", " ", "\n".join(lines))
    found: list[Instruction] = []
    stage = -1
    for line in filter(None, joined.splitlines()):
        keyword, _, rest = line.partition(" ")
        stage += keyword == "FROM"
        found.append(Instruction(stage, keyword, rest.strip()))
    return found


def of(instructions: list[Instruction], keyword: str) -> list[Instruction]:
    return [instruction for instruction in instructions if instruction.keyword == keyword]


def variables(instructions: list[Instruction]) -> dict[str, str]:
    """The environment of the last stage."""
    last = instructions[-1].stage
    pairs = [pair for each in of(instructions, "ENV") if each.stage == last for pair in each.rest.split()]
    return dict(pair.split("=", 1) for pair in pairs)


def test_only_known_instructions_are_used(instructions: list[Instruction]) -> None:
    known = {"FROM", "ARG", "WORKDIR", "COPY", "RUN", "ENV", "USER", "VOLUME", "EXPOSE", "HEALTHCHECK", "CMD"}
    assert {instruction.keyword for instruction in instructions} == known
    assert [each.rest for each in of(instructions, "FROM")] == ["python:3.11-slim AS build", "python:3.11-slim"]


def test_every_copied_file_is_there_and_not_ignored(instructions: list[Instruction], repository: Path) -> None:
    ignored = (repository / ".dockerignore").read_text().split()
    copied = []
    for each in of(instructions, "COPY"):
        words = each.rest.split()
        if words[0].startswith("--from="):
            assert words[0] == "--from=build"
            continue
        copied += words[:-1]
    assert {"requirements.lock", "pyproject.toml", "app", "provenance", "templates", "static"} <= set(copied)
    for name in copied:
        assert (repository / name).exists(), name
        assert not any(fnmatch(name, pattern) for pattern in ignored), name


def test_what_the_wheel_is_built_from_is_copied_before_it_is_installed(
    instructions: list[Instruction], repository: Path
) -> None:
    project = tomllib.loads((repository / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {
        *wheel["packages"],
        *wheel["force-include"],
        project["project"]["readme"],
        *project["project"]["license-files"],
        "pyproject.toml",
        "requirements.lock",
    }
    install = next(n for n, each in enumerate(instructions) if each.rest.endswith("requirements.lock ."))
    assert needed <= {word for each in of(instructions[:install], "COPY") for word in each.rest.split()[:-1]}


def test_build_arguments_have_defaults_that_the_lock_file_agrees_with(
    instructions: list[Instruction], repository: Path
) -> None:
    arguments = dict(each.rest.split("=", 1) for each in of(instructions, "ARG"))
    assert arguments.keys() == {"TORCH", "TORCH_INDEX_URL"}
    assert arguments["TORCH"] in (repository / "requirements.lock").read_text().splitlines()
    assert arguments["TORCH_INDEX_URL"] == ""


def test_the_environment_sets_settings_that_exist(
    instructions: list[Instruction], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = variables(instructions)
    own = {name: value for name, value in found.items() if name.startswith(PREFIX)}
    assert {name.removeprefix(PREFIX).lower() for name in own} <= set(Settings.model_fields)
    assert found.keys() - own.keys() == {"PATH", "HF_HUB_OFFLINE", "NUMBA_CACHE_DIR"}
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    settings = load_settings()
    assert (settings.host, settings.network) == ("0.0.0.0", False)
    volumes = [each.rest for each in of(instructions, "VOLUME")]
    assert volumes == [str(settings.data_directory)]
    exposed = [int(each.rest) for each in of(instructions, "EXPOSE")]
    assert exposed == [settings.port]


def test_the_user_is_made_here_owns_the_data_and_is_not_root(instructions: list[Instruction]) -> None:
    (user,) = of(instructions, "USER")
    made = next(each for each in of(instructions, "RUN") if each.stage == user.stage)
    assert user.rest == "explorer"
    assert re.search(r"useradd --uid [1-9]\d{3,} .*explorer", made.rest)
    found = variables(instructions)
    for name in ("DATA", "CACHE"):
        assert re.search(rf"chown explorer .*{found[f'{PREFIX}{name}_DIRECTORY']}\b", made.rest)
    assert instructions.index(user) < instructions.index(of(instructions, "CMD")[0])


def test_the_command_is_a_console_script_and_the_health_check_a_route(
    instructions: list[Instruction], repository: Path
) -> None:
    (command,) = of(instructions, "CMD")
    scripts = tomllib.loads((repository / "pyproject.toml").read_text())["project"]["scripts"]
    assert json.loads(command.rest)[0] in scripts
    (check,) = of(instructions, "HEALTHCHECK")
    program = json.loads(check.rest.partition("CMD ")[2])
    assert program[:2] == ["python", "-c"]
    compile(program[2], "health check", "exec")
    (address,) = re.findall(r"http://[^']+", program[2])
    assert urlsplit(address).port == Settings.model_fields["port"].default
    assert urlsplit(address).path in create_app().openapi()["paths"]


# --- the compose file ---


@pytest.fixture(scope="module")
def compose(repository: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((repository / "docker-compose.yml").read_text())
    return found


def test_the_services_of_the_compose_file_are_locked_in(compose: dict[str, Any]) -> None:
    assert compose["services"].keys() == {"app", "proxy"}
    for service in compose["services"].values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["healthcheck"]["test"][0] == "CMD"
        assert {"mem_limit", "cpus", "pids_limit", "restart"} <= service.keys()
        assert not service.get("privileged")
    assert compose["services"]["proxy"]["cap_add"] == ["NET_BIND_SERVICE"]
    assert "cap_add" not in compose["services"]["app"]


def test_only_the_proxy_is_reached_from_outside(compose: dict[str, Any]) -> None:
    app, proxy = compose["services"]["app"], compose["services"]["proxy"]
    assert "ports" not in app
    assert app["networks"].keys() == {"inside"}
    assert compose["networks"]["inside"]["internal"] is True
    assert proxy["ports"] == ["80:80", "443:443"]
    assert proxy["networks"]["inside"]["ipv4_address"] == app["environment"][f"{PREFIX}TRUSTED_PROXIES"]


def test_what_the_server_writes_are_the_volume_and_tmp(compose: dict[str, Any]) -> None:
    app = compose["services"]["app"]
    assert app["volumes"] == ["traces:/data"]
    assert [entry.partition(":")[0] for entry in app["tmpfs"]] == ["/tmp"]
    assert app["environment"][f"{PREFIX}CACHE_DIRECTORY"].startswith("/tmp/")
    volumes = [entry.partition(":")[0] for each in compose["services"].values() for entry in each["volumes"]]
    assert {name for name in volumes if not name.startswith(".")} == compose["volumes"].keys()


def test_the_compose_file_sets_settings_that_exist(compose: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    given = compose["services"]["app"]["environment"]
    own = {name: value for name, value in given.items() if name.startswith(PREFIX)}
    # Machine code goes where it can be written: below the one tmpfs.
    assert {name: value for name, value in given.items() if name not in own} == {
        "NUMBA_CACHE_DIR": "/tmp/cache/numba"
    }
    assert {name.removeprefix(PREFIX).lower() for name in own} <= set(Settings.model_fields)
    for name, value in own.items():
        filled = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value)
        monkeypatch.setenv(name, re.sub(r"\$\{\w+:\?[^}]*\}", "a token of the operator", filled))
    settings = load_settings()
    assert settings.trusted_proxies == ("172.31.77.2",)
    assert settings.allowed_hosts == ("localhost",)
    assert settings.token is not None
    assert (settings.metrics, settings.log_format, settings.read_only) == (True, "json", False)


def test_a_stop_is_given_the_time_that_it_may_take(compose: dict[str, Any]) -> None:
    # First the requests, then the recording: twice shutdown_seconds.
    assert compose["services"]["app"]["stop_grace_period"] == "75s"
    assert 2 * Settings.model_fields["shutdown_seconds"].default < 75


def test_the_proxy_keeps_inside_what_is_nobody_s_business(compose: dict[str, Any], repository: Path) -> None:
    mounted = compose["services"]["proxy"]["volumes"][0].split(":")
    assert mounted[2] == "ro"
    text = (repository / mounted[0]).read_text()
    assert re.search(r"@inside path /metrics /readyz\n\s*respond @inside 404", text)
    (upstream,) = re.findall(r"reverse_proxy (\S+)", text)
    app = compose["services"]["app"]["networks"]["inside"]["ipv4_address"]
    assert upstream == f"{app}:{Settings.model_fields['port'].default}"
    (megabytes,) = re.findall(r"max_size (\d+)MB", text)
    assert int(megabytes) * 10**6 > Settings.model_fields["upload_limit_mib"].default << 20
