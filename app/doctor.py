"""The check-up of everything that can go wrong here: settings, data, sources, models, versions, the port."""

import difflib
import http.client
import os
import re
import socket
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

from app.cli_sources import status
from app.doctor_disk import check_cache, check_data, check_traces, check_uploads, repair, size
from app.findings import Diagnosis, Finding, attention, fine, wrong
from app.settings import Settings, load_settings
from provenance.errors import InvalidInput
from provenance.gpt2.pins import PINS
from provenance.gpt2.stored import file_sha256
from provenance.model_sources import Kind, Source
from provenance.models import Models
from provenance.places import NAME, PREFIX

SETTINGS, SOURCES, MODELS, VERSIONS, PORT = "Settings", "Cited sources", "Models", "Versions", "Port"

_QUICK_MODEL_BYTES = 1 << 30
_SHA256 = re.compile(r"[0-9a-f]{64}")
_WAIT_SECONDS = 2.0


def diagnose(*, deep: bool = False, repairing: bool = False) -> Diagnosis:
    """Look at everything, after a repair where one is asked for. What is wrong is a finding, and no error.

    `deep` reads every stored byte; without it only so much as takes seconds.
    """
    found = list(check_environment(os.environ))
    try:
        settings = load_settings()
    except InvalidInput as error:
        unset = "Set it to something else, or unset it; then run this again for all the rest."
        return Diagnosis(findings=[*found, wrong(SETTINGS, error.message, error.hint or unset)])
    repaired = list(repair(settings, deep=deep)) if repairing else []
    return Diagnosis(
        findings=[
            *repaired,
            *found,
            *check_data(settings),
            *check_traces(settings, deep=deep),
            *check_uploads(settings),
            *check_cache(settings),
            *check_sources(settings),
            *check_models(settings, deep=deep),
            *check_versions(),
            check_port(settings),
        ]
    )


def check_environment(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Whether each of our environment variables is one that exists."""
    known = [f"{PREFIX}{name.upper()}" for name in Settings.model_fields]
    given = sorted(name for name in environment if name.upper().startswith(PREFIX))
    unknown = [name for name in given if name.upper() not in known]
    for name in unknown:
        near = difflib.get_close_matches(name.upper(), known, n=2)
        meant = f"Did you mean {' or '.join(near)}?" if near else f"Unset it; settings are: {', '.join(known)}."
        yield attention(SETTINGS, f"There is no setting {name}; it has no effect.", meant)
    if not unknown:
        yield fine(SETTINGS, f"{', '.join(given)}." if given else "All as they come.")


def check_sources(settings: Settings) -> Iterator[Finding]:
    """Whether each cited file is at hand, with the pinned bytes."""
    for file in status(settings, PINS):
        name = f"{file.repository} {file.path}"
        if not file.at_hand:
            said = "; ".join(f"{carrier.carrier}: {carrier.detail or carrier.state}" for carrier in file.carriers)
            yield wrong(SOURCES, f"{name} is not at hand ({said}).", f"Run `{NAME} sources fetch`.")
            continue
        seen = "the pinned revision's own" if file.settled else f"as in {file.release}"
        advice = "" if file.settled else f"`{NAME} sources fetch` asks the git host which blob the revision has."
        yield fine(SOURCES, f"{name}: blob {(file.blob or '')[:12]}, {seen}, from {file.origin}.", advice)


def check_models(settings: Settings, *, deep: bool) -> Iterator[Finding]:
    """Whether each model on offer can be loaded, and has the bytes that it should have."""
    try:
        models = Models(settings.model_directories)
    except InvalidInput as error:
        yield wrong(MODELS, error.message, error.hint)
        return
    sources = models.sources()
    if settings.model not in [source.name for source in sources]:
        yield wrong(
            MODELS, f"The model {settings.model!r} of the settings is not known.", f"`{NAME} models` lists all."
        )
    for source in sources:
        if source.available:
            yield _model(models, source, deep=deep)
        elif source.name == settings.model or source.kind is not Kind.HUB:
            yield wrong(MODELS, f"{source.name} is not here.", source.advice)
    away = [source.name for source in sources if not source.available and source.kind is Kind.HUB]
    if away:
        yield fine(MODELS, f"Not here: {', '.join(away)}.", f"`{NAME} models fetch NAME` gets one.")


def _model(models: Models, source: Source, *, deep: bool) -> Finding:
    if source.directory is None:
        return fine(MODELS, f"{source.name}: {source.kind.value}.")
    stored = sum(path.stat().st_size for path in source.directory.iterdir() if path.is_file())
    if stored > _QUICK_MODEL_BYTES and not deep:
        return fine(MODELS, f"{source.name} is here, {size(stored)}; its bytes were not read.", "--deep reads them.")
    found = models.inspect(source.name)
    again = f"Fetch it again: `{NAME} models fetch {source.name}`." if source.kind is Kind.HUB else ""
    if found.problem:
        return wrong(MODELS, f"{source.name} cannot be loaded: {found.problem}", again or f"See {source.directory}.")
    for file in found.files:
        if not _is_as_published(file):
            return wrong(MODELS, f"{file} is not what was published.", f"Delete {file.resolve()}. {again}")
    return fine(MODELS, f"{source.name} is here, {size(stored)}, weights SHA-256 {(found.sha256 or '')[:12]}.")


def _is_as_published(file: Path) -> bool:
    """The hub's cache names a large file by its SHA-256, and links to it."""
    real = file.resolve()
    return not (file.is_symlink() and _SHA256.fullmatch(real.name)) or file_sha256(real) == real.name


def check_versions() -> Iterator[Finding]:
    """Whether the installed packages are those that this project asks for."""
    misfits = 0
    for requirement in map(Requirement, metadata.requires(NAME) or ()):
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            installed = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            misfits += 1
            yield wrong(VERSIONS, f"{requirement.name} is not installed.", f"pip install '{requirement}'")
            continue
        # A local label says how torch was built (+cpu), not which release it is.
        if not requirement.specifier.contains(Version(installed).public, prereleases=True):
            misfits += 1
            yield attention(
                VERSIONS,
                f"{requirement.name} {installed} is installed; this project asks for {requirement.specifier}.",
                f"pip install '{requirement}'",
            )
    rest = "all other packages" if misfits else "all packages"
    own = f"{NAME} {metadata.version(NAME)}, torch {metadata.version('torch')}"
    yield fine(VERSIONS, f"{own}; {rest} as asked for.")


def check_port(settings: Settings) -> Finding:
    """Whether the server can listen where the settings say, or does so already."""
    place = f"{settings.host}, port {settings.port}"
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        socket.create_server((settings.host, settings.port), family=family).close()
    except OSError as error:
        if _answers(settings):
            return fine(PORT, f"{place}: Tensor Provenance answers there.")
        reason = (error.strerror or str(error)).partition(" (while")[0]
        return attention(PORT, f"{place}: {reason}.", f"Choose another: {PREFIX}PORT, or `{NAME} serve --port N`.")
    return fine(PORT, f"{place}: free.")


def _answers(settings: Settings) -> bool:
    connection = http.client.HTTPConnection(settings.host, settings.port, timeout=_WAIT_SECONDS)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
