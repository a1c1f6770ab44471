"""The quickstart notebook runs from top to bottom, and what it shows is true."""

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient

from provenance.notebook.workspace import Workspace
from tests.html_tree import tree

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Executed:
    """The outputs of each cell by its id, and the directory in which the traces were kept."""

    outputs: dict[str, list[dict[str, Any]]]
    data: Path

    def shown(self, cell: str, kind: str = "text/plain") -> str:
        """What the last line of a cell gave."""
        (result,) = [output for output in self.outputs[cell] if output["output_type"] == "execute_result"]
        found: str = result["data"][kind]
        return found

    def printed(self, cell: str) -> str:
        """What a cell printed."""
        return "".join(output["text"] for output in self.outputs[cell] if output["output_type"] == "stream")


@pytest.fixture(scope="module")
def notebook(repository: Path) -> Any:
    return nbformat.read(repository / "docs" / "quickstart.ipynb", as_version=4)


@pytest.fixture(scope="module")
def executed(notebook: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Executed]:
    directory = tmp_path_factory.mktemp("quickstart")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TENSOR_PROVENANCE_DATA_DIRECTORY", str(directory / "data"))
        patch.setenv("TENSOR_PROVENANCE_CACHE_DIRECTORY", str(directory / "cache"))
        patch.setenv("JUPYTER_RUNTIME_DIR", str(directory / "runtime"))
        patch.setenv("IPYTHONDIR", str(directory / "ipython"))
        patch.setenv("PYTHONWARNINGS", "default")
        client = NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(directory)}})
        done = client.execute()
        yield Executed({cell["id"]: cell["outputs"] for cell in done.cells if "outputs" in cell}, directory / "data")


def test_it_is_stored_without_outputs(repository: Path) -> None:
    stored = json.loads((repository / "docs" / "quickstart.ipynb").read_text())
    code = [cell for cell in stored["cells"] if cell["cell_type"] == "code"]
    assert code
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


def test_nothing_in_it_complains(executed: Executed) -> None:
    assert not [
        output
        for outputs in executed.outputs.values()
        for output in outputs
        if output["output_type"] == "error" or output.get("name") == "stderr"
    ]


def test_its_trace_lies_where_the_explorer_finds_it(executed: Executed) -> None:
    trace = Workspace(executed.data).traces()[-1]
    assert trace.text == "The quick brown fox jumps over the lazy dog"
    assert executed.shown("record") == repr(trace)


def test_the_values_it_shows_are_those_of_numpy(executed: Executed) -> None:
    shown = ast.literal_eval(executed.shown("values"))
    pattern = Workspace(executed.data).traces()[-1]["h.3.attn.pattern"].torch().numpy()
    assert dict(zip(shown["axes"], shown["shape"], strict=True)) == {"batch": 1, "head": 4, "T": 9, "S": 9}
    visible = pattern[:, :, np.tri(9, dtype=bool)].astype(np.float64)
    assert shown["mean"] == pytest.approx(visible.mean(), rel=1e-12)
    assert shown["mean"] == pytest.approx(9 / 45, rel=1e-6)  # nine rows of sum 1 in 45 visible cells
    assert shown["mean in the summary"] == pytest.approx(visible.mean(), rel=1e-12)
    assert shown["masked cells"] == 4 * 36


def test_the_card_of_the_pattern_shows_what_it_is(executed: Executed) -> None:
    card = tree(executed.shown("tensor", "text/html"))
    assert "[1 batch, 4 head, 9 T, 9 S] float32" in card.text
    assert card.one("img").attributes["src"].startswith("data:image/png;base64,")
    assert not card.all("script")


def test_its_other_answers_are_right(executed: Executed) -> None:
    assert executed.shown("names") == "True"
    assert "tf.exp" in executed.printed("sources")
    assert executed.shown("sources").startswith("@misc{")
    flow = ast.literal_eval(executed.shown("flow"))
    assert flow == ["h.3.attn.softmax.ex", "h.3.attn.pattern", "h.3.attn.context"]
    assert "everything that applies was proven" in executed.shown("verify")
    assert re.search(r"first divergence is h\.3\.attn\.pattern:", executed.shown("edit"))
