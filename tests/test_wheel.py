"""The wheel: what it holds, and that it works from an empty directory in an environment of its own."""

import os
import re
import subprocess
import sys
import sysconfig
import urllib.request
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import pytest

pytestmark = pytest.mark.package


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel, and an empty directory to work in."""

    environment: Path
    working_directory: Path

    def start(self, *command: str) -> "subprocess.Popen[str]":
        """Start a program of the environment, without anything of ours around it."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
        own = {
            "TENSOR_PROVENANCE_DATA_DIRECTORY": str(self.environment / "data"),
            "TENSOR_PROVENANCE_CACHE_DIRECTORY": str(self.environment / "cache"),
            "TENSOR_PROVENANCE_MODEL": "tiny-untrained",
            "TENSOR_PROVENANCE_NETWORK": "no",
            "PYTHONUNBUFFERED": "1",
        }
        program = str(self.environment / "bin" / command[0])
        return subprocess.Popen(
            [program, *command[1:]],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.working_directory,
            env=kept | own,
        )

    def out(self, *command: str) -> str:
        """What a program prints that succeeds without a complaint."""
        with self.start(*command) as running:
            out, err = running.communicate(timeout=120)
        assert (running.returncode, err) == (0, "")
        return out


@pytest.fixture(scope="module")
def wheel(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    command = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(directory),
        str(repository),
    ]
    built = subprocess.run(command, capture_output=True, text=True, cwd=directory)
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = directory.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """A new environment that borrows the packages of the running one, so that nothing is downloaded."""
    directory = tmp_path_factory.mktemp("installed")
    environment = directory / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    (site_packages,) = environment.glob("lib/python3*/site-packages")
    # A line of a .pth file is a path only: the .pth file of the checkout there is not read.
    borrowed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (site_packages / "borrowed.pth").write_text("\n".join(sorted(borrowed)) + "\n")
    (directory / "empty").mkdir()
    installed = Installed(environment, directory / "empty")
    install = ("-m", "pip", "install", "--no-deps", "--no-index", "--ignore-installed", "--quiet", str(wheel))
    with installed.start("python", *install, "--disable-pip-version-check") as pip:
        out, err = pip.communicate(timeout=120)
    assert pip.returncode == 0, out + err
    return installed


def files_below(*folders: Path) -> set[str]:
    """Files as a wheel names them: templates and static files lie inside the package."""
    return {
        str(path.relative_to(folder.parent))
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_holds_the_packages_with_templates_and_static_files_and_nothing_else(
    wheel: Path, repository: Path
) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if not name.endswith("/")}
    packages = files_below(repository / "app", repository / "provenance")
    resources = {f"app/{name}" for name in files_below(repository / "templates", repository / "static")}
    assert {"app/templates/base.html", "app/static/style.css"} <= resources
    assert packages | resources <= held
    rest = held - packages - resources
    assert {name.split("/")[0] for name in rest} == {
        f"tensor_provenance-{metadata.version('tensor-provenance')}.dist-info"
    }
    assert any(name.endswith("/licenses/LICENSE") for name in rest)


def test_it_is_the_wheel_that_runs(installed: Installed) -> None:
    script = (
        "import app, provenance, app.render as r; print(app.__file__, provenance.__file__, r.TEMPLATES, r.STATIC)"
    )
    for path in installed.out("python", "-c", script).split():
        assert Path(path).is_relative_to(installed.environment), path


def test_its_command_line_works(installed: Installed) -> None:
    version = metadata.version("tensor-provenance")
    assert installed.out("tensor-provenance", "--version") == f"tensor-provenance {version}\n"
    assert installed.out("tensor-provenance", "sources", "status").count("At hand: ") >= 2
    shown = installed.out("tensor-provenance", "show", "norm(x, 'ln_1')")
    assert "h.ln_1.out" in shown
    assert "28–38" in shown


@pytest.fixture
def address(installed: Installed) -> Iterator[str]:
    """The address of a server that runs from the wheel."""
    with installed.start("tensor-provenance", "serve", "--port", "0") as server:
        try:
            assert server.stdout is not None
            yield (re.findall(r"http://[\d.:]+", server.stdout.readline()) or [""])[0]
        finally:
            server.terminate()
            _, err = server.communicate(timeout=60)
    assert err == ""


def test_it_serves_pages_and_static_files_from_an_empty_directory(installed: Installed, address: str) -> None:
    for path, kind, part in (
        ("/", "text/html", "Tensor Provenance"),
        ("/static/style.css", "text/css", "{"),
        ("/static/vendor/htmx.min.js", "text/javascript", "htmx"),
        ("/sites/h.ln_1.out", "text/html", "Normalized attention input"),
        ("/sources/openai/gpt-2/src/model.py", "text/html", "def norm"),
        ("/healthz", "application/json", "ok"),
    ):
        with urllib.request.urlopen(address + path, timeout=60) as answer:
            assert answer.status == 200
            assert answer.headers["Content-Type"].startswith(kind), path
            assert part in answer.read().decode(), path
    assert list(installed.working_directory.iterdir()) == []
