"""The tensors that the API gives: every summary is NumPy's of the values in the .npy file."""

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from api_client import FOX, Api, running

from provenance.gpt2.catalogue import CATALOGUE
from provenance.gpt2.checkpoints import SEEDED
from provenance.names import Address, is_layered
from provenance.variants import catalogue_of

STEPS = 1
LAYERS = 2
QUANTILES = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("api")) as api:
        yield api


@pytest.fixture(scope="module")
def trace(api: Api) -> str:
    """The address of the fox with one decode step."""
    return api.record(prompt=FOX, steps=STEPS)


def addresses() -> list[Address]:
    """Every tensor of the fox's trace."""
    return [
        Address(row.site, layer, step)
        for step in range(STEPS + 1)
        for row in catalogue_of(CATALOGUE, SEEDED["tiny-untrained"][0].variants)
        if row.steps.cover(step)
        for layer in (range(LAYERS) if is_layered(row.site) else [None])
    ]


@pytest.mark.parametrize(("step", "shape"), [(0, [1, 9, 32]), (1, [1, 1, 32])])
def test_the_prefill_has_all_tokens_and_a_decode_step_one(api: Api, trace: str, step: int, shape: list[int]) -> None:
    summary = api.json(f"{trace}/tensors/h.0.ln_1.out?step={step}")
    assert (summary["name"], summary["shape"], summary["dtype"]) == ("norm(x, 'ln_1')", shape, "float32")
    assert (summary["step"], summary["layer"]) == (step, 0)
    assert summary == api.json(f"{trace}/tensors/h.0.ln_1.out{'@1' if step else ''}")
    values = api.values(f"{trace}/tensors/h.0.ln_1.out.npy?step={step}")
    assert (list(values.shape), values.dtype) == (shape, np.float32)


@pytest.mark.parametrize("address", addresses(), ids=str)
@pytest.mark.slow
def test_each_summary_is_numpys_of_the_same_values(api: Api, trace: str, address: Address) -> None:
    summary = api.json(f"{trace}/tensors/{address}")
    values = api.values(f"{trace}/tensors/{address}.npy")
    assert summary["shape"] == list(values.shape)
    assert (summary["dtype"], summary["npy_dtype"]) == (values.dtype.name, values.dtype.name)
    assert summary["count_total"] == values.size
    assert summary["replay_bit_for_bit"] in (True, None)
    masked_by = CATALOGUE.row(address.site).masked_by
    if masked_by:
        visible = api.values(f"{trace}/tensors/{Address(masked_by, address.layer, address.step)}.npy")
        assert visible.dtype == np.bool_
        values = values[np.broadcast_to(visible, values.shape)]
    assert summary["count_masked"] == summary["count_total"] - values.size
    _compare(summary, values.astype(np.float64).ravel())


def _compare(summary: Any, values: np.ndarray[Any, np.dtype[np.float64]]) -> None:
    assert (summary["count_finite"], summary["count_nan"]) == (values.size, 0)
    assert (summary["count_posinf"], summary["count_neginf"]) == (0, 0)
    assert summary["count_zero"] == np.count_nonzero(values == 0)
    assert (summary["min"], summary["max"]) == (values.min(), values.max())
    # A mean near 0 is a difference of large sums, whose order NumPy and we may choose.
    assert summary["mean"] == pytest.approx(values.mean(), rel=1e-12, abs=1e-15 * np.abs(values).sum())
    assert summary["std"] == pytest.approx(values.std(), rel=1e-12)
    assert summary["l2"] == pytest.approx(np.sqrt((values**2).sum()), rel=1e-12)
    assert [q for q, _ in summary["quantiles"]] == list(QUANTILES)
    assert [value for _, value in summary["quantiles"]] == pytest.approx(np.quantile(values, QUANTILES), rel=1e-12)
    counts, edges = np.histogram(values, bins=64)
    assert summary["histogram_counts"] == counts.tolist()
    assert summary["histogram_edges"] == edges.tolist()


def test_bfloat16_is_handed_out_as_float32_and_says_so(api: Api) -> None:
    trace = api.record(prompt=FOX, dtype="bfloat16")
    summary = api.json(f"{trace}/tensors/h.0.attn.q")
    assert (summary["dtype"], summary["npy_dtype"]) == ("bfloat16", "float32")
    answer = api.ask("GET", f"{trace}/tensors/h.0.attn.q.npy")
    assert answer.headers["X-Tensor-Dtype"] == "bfloat16"
    assert answer.headers["Content-Disposition"].endswith('.h.0.attn.q.npy"')
    values = np.load(io.BytesIO(answer.content))
    assert values.dtype == np.float32
    assert torch.equal(torch.from_numpy(values).bfloat16().float(), torch.from_numpy(values))
    assert summary["max"] == values.max()


def test_what_is_not_finite_is_counted_and_the_answer_is_strict_json(
    api: Api, trace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    strange = torch.tensor([[[float("nan"), float("inf"), -float("inf"), 2.0, 0.0]]])
    monkeypatch.setattr(api.explorer, "tensor", lambda *_: strange)
    monkeypatch.setattr(api.explorer, "_summaries", type(api.explorer._summaries)())
    answer = api.ask("GET", f"{trace}/tensors/ln_f.out")
    assert "NaN" not in answer.text
    assert "Infinity" not in answer.text
    summary = answer.json()
    counts = [summary[f"count_{kind}"] for kind in ("total", "finite", "nan", "posinf", "neginf", "zero")]
    assert counts == [5, 2, 1, 1, 1, 1]
    assert (summary["min"], summary["max"], summary["mean"]) == (0, 2, 1)
    monkeypatch.setattr(api.explorer, "tensor", lambda *_: strange[..., :3])
    nothing = api.json(f"{trace}/tensors/ln_f.s")
    assert (nothing["min"], nothing["std"], nothing["quantiles"]) == (None, None, [])
