"""Who may import whom: imports go down only, and each heavy library has its few places."""

import ast
import graphlib
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# From the bottom to the top. A module imports lower layers only; a package may import itself.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors",),
    ("names", "axes", "naming", "syntax", "durable"),
    ("citation",),
    ("catalogue", "markup", "statistics", "vocabulary"),
    ("lookup", "order", "places", "prompt", "showcase", "sources", "summary", "citing", "variants"),
    ("digest", "model", "pictures", "selection", "vectors"),
    ("edits", "model_sources"),
    ("trace", "citing_trace"),
    ("storage", "migration", "inputs"),
    ("trace_files",),
    ("cited", "store", "verdict", "editing", "schemes", "tensor_files"),
    ("cited_bytes", "departures"),
    ("witness",),
    ("gpt2", "textbook"),
    ("catalogues", "recorder"),
    ("models", "families"),
    ("parity", "lessons"),
    ("difference",),
    ("comparison", "verification", "lens", "golden", "export", "recording"),
    ("compare_names", "compare_positions"),
    ("compare", "compare_pair"),
    ("effect", "attribution"),
    ("notebook",),
)

# Only these know which model families there are.
KNOW_FAMILIES = (
    "provenance.gpt2", "provenance.textbook", "provenance.catalogues", "provenance.models", "provenance.families",
    "provenance.lessons",
)  # fmt: skip

TORCH = (
    "provenance.digest", "provenance.model", "provenance.model_sources", "provenance.trace",
    "provenance.storage", "provenance.store",
    "provenance.trace_files", "provenance.recorder", "provenance.summary", "provenance.lens",
    "provenance.parity", "provenance.verification", "provenance.compare", "provenance.witness",
    "provenance.editing", "provenance.schemes", "provenance.tensor_files", "provenance.difference",
    "provenance.golden", "provenance.export", "provenance.effect", "provenance.attribution",
    "provenance.notebook", "provenance.pictures", "provenance.comparison", "provenance.compare_names",
    "provenance.compare_positions", "provenance.compare_pair", "provenance.recording",
    "provenance.gpt2.model", "provenance.gpt2.arithmetic", "provenance.gpt2.writes",
    "provenance.gpt2.weights", "provenance.gpt2.checkpoints", "provenance.gpt2.keys",
    "provenance.gpt2.stored", "provenance.gpt2.witnesses", "provenance.gpt2.witness_tensorflow",
    "provenance.gpt2.points_transformers", "provenance.gpt2.training",
    "provenance.textbook.model", "provenance.textbook.weights", "provenance.lessons.gradients",
    "app.explorer", "app.engine", "app.engine_client", "app.channel", "app.comparing", "app.api",
    "app.uploads", "app.pictures", "app.pages.values",
)  # fmt: skip

WHERE = {
    "torch": TORCH,
    "safetensors": ("provenance.trace_files", "provenance.gpt2", "provenance.tensor_files"),
    "git": ("provenance.sources",),
    "numba": ("provenance.statistics.machine",),
    "fastapi": ("app",),
    "starlette": ("app",),
    "jinja2": ("app",),
    "jinja2_fragments": ("app",),
    "markupsafe": ("app",),
    "uvicorn": ("app",),
    "prometheus_client": ("app.metrics",),
    "typer": ("app",),
    "pydantic_settings": ("app.settings",),
    "transformers": ("provenance.gpt2.witnesses",),
    "tensorflow": ("provenance.witness.tensorflow_real",),
    "requests": (),
    "httpx": (),
}

WITHOUT_TORCH = (
    "provenance.gpt2.catalogue", "provenance.gpt2.pins", "provenance.gpt2.config", "provenance.lookup",
    "provenance.sources", "provenance.prompt", "provenance.citing", "provenance", "provenance.notebook.sites",
    "provenance.textbook.catalogue", "provenance.textbook.config",
)  # fmt: skip

LINES = {"provenance": 300, "app": 300, "static": 300, "tests": 600}
STYLE_LINES = 600


@lru_cache
def files() -> dict[str, Path]:
    """Every module of the two packages, by its dotted name."""
    found = {}
    for path in [*ROOT.glob("provenance/**/*.py"), *ROOT.glob("app/**/*.py")]:
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@lru_cache
def modules() -> dict[str, ast.Module]:
    """What stands in them."""
    return {name: ast.parse(path.read_text()) for name, path in files().items()}


def imported(tree: ast.AST, known: frozenset[str]) -> set[str]:
    """The modules that a tree imports, at any depth; `from app import routes` is app.routes."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are written in full"
            assert node.module is not None
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (names & known) or {node.module}
    return found


@lru_cache
def imports() -> dict[str, set[str]]:
    known = frozenset(modules())
    return {name: imported(tree, known) for name, tree in modules().items()}


def within(module: str, places: tuple[str, ...]) -> bool:
    return any(module == place or module.startswith(f"{place}.") for place in places)


def layer(module: str) -> int:
    part = module.split(".")[1]
    return next(number for number, parts in enumerate(LAYERS) if part in parts)


OURS = sorted(name for name in files() if name.startswith("provenance."))


def test_every_module_has_its_layer() -> None:
    placed = {part for parts in LAYERS for part in parts}
    assert {name.split(".")[1] for name in OURS} <= placed


@pytest.mark.parametrize("module", OURS)
def test_imports_go_down_only(module: str) -> None:
    package = ".".join(module.split(".")[:2])
    for other in imports()[module]:
        if other.startswith("provenance.") and not within(other, (package,)):
            assert layer(other) < layer(module), f"{module} imports {other}"


@pytest.mark.parametrize("module", OURS)
def test_nothing_below_the_app_imports_it(module: str) -> None:
    assert not [other for other in imports()[module] if within(other, ("app",))]


@pytest.mark.parametrize("module", [name for name in OURS if not within(name, KNOW_FAMILIES)])
def test_only_the_registries_know_a_model_family(module: str) -> None:
    assert not [other for other in imports()[module] if within(other, ("provenance.gpt2", "provenance.textbook"))]


@pytest.mark.parametrize("library", WHERE)
def test_a_library_is_imported_in_its_places_only(library: str) -> None:
    importing = {name for name, found in imports().items() if any(within(other, (library,)) for other in found)}
    assert {name for name in importing if not within(name, WHERE[library])} == set()


def test_no_module_imports_itself_in_a_circle() -> None:
    ours = {name: {other for other in found if other in modules()} - {name} for name, found in imports().items()}
    packages = {name for name in ours if any(other.startswith(f"{name}.") for other in ours)}
    graph = {name: found - packages for name, found in ours.items() if name not in packages}
    tuple(graphlib.TopologicalSorter(graph).static_order())


def test_modules_with_tensors_keep_their_annotations_as_objects() -> None:
    lazy = {name for name, found in imports().items() if "__future__" in found}
    assert {name for name in lazy if within(name, TORCH)} == set()


def test_the_catalogue_is_read_without_torch() -> None:
    script = f"import sys, {', '.join(WITHOUT_TORCH)}\nprint('torch' in sys.modules, 'transformers' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"


def sized_files() -> list[tuple[Path, int]]:
    found = [(path, top) for folder, top in LINES.items() for path in sorted((ROOT / folder).rglob("*.py"))]
    found += [(path, LINES["static"]) for path in sorted((ROOT / "static").rglob("*.js"))]
    return found + [(path, STYLE_LINES) for path in sorted((ROOT / "static").rglob("*.css"))]


@pytest.mark.parametrize(("path", "most"), sized_files(), ids=lambda value: getattr(value, "name", str(value)))
def test_files_stay_short(path: Path, most: int) -> None:
    lines = len(path.read_text().splitlines())
    assert lines <= most, f"{path.relative_to(ROOT)} has {lines} lines"


# --- the checks themselves ---


def test_an_import_is_seen_wherever_it_stands() -> None:
    source = "def f():\n    import torch.nn as t\nif 1:\n    from app import routes, VERSION\nfrom git.exc import E\n"
    assert imported(ast.parse(source), frozenset({"app.routes"})) == {"torch.nn", "app.routes", "git.exc"}
    assert within("torch.nn", ("torch",))
    assert not within("torchvision", ("torch",))
