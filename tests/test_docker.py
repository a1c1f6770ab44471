"""What can be checked of the Dockerfile without a Docker engine."""

import json
import re
import tomllib
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from urllib.parse import urlsplit

import pytest

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
    assert found.keys() - own.keys() == {"PATH", "HF_HUB_OFFLINE"}
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
