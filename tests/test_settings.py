"""Settings: each is documented, read from the environment, and refused with its name and value."""

import os
from pathlib import Path

import pytest

from app.settings import PREFIX, Settings, load_settings
from provenance.errors import InvalidInput


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_says_what_it_means(name: str) -> None:
    assert len(Settings.model_fields[name].description or "") > 10


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
