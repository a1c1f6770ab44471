"""Settings: each is documented, read from the environment, and refused with its name and value."""

import os
from pathlib import Path

import pytest

from app.settings import PREFIX, Settings, load_settings
from provenance.errors import InvalidInput

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_is_documented_with_its_meaning(name: str) -> None:
    rows = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith(f"| `{name}` |")]
    assert len(rows) == 1
    meaning = Settings.model_fields[name].description
    assert meaning
    assert meaning.split(";")[0] in rows[0]


def test_lists_of_paths_are_split_at_the_systems_separator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"{PREFIX}MODEL_DIRECTORIES", f"/a{os.pathsep}{os.pathsep}/b c")
    assert load_settings().model_directories == (Path("/a"), Path("/b c"))


def test_an_override_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"{PREFIX}PORT", "8001")
    assert load_settings().port == 8001
    assert load_settings(port=8002).port == 8002


def test_a_wrong_value_is_refused_with_key_and_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"{PREFIX}PORT", "eighty")
    with pytest.raises(InvalidInput, match="TENSOR_PROVENANCE_PORT cannot be 'eighty'"):
        load_settings()
