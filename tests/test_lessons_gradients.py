"""The gradient of a result at the residual stream: by hand, by finite differences, and against the model itself."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from provenance.lessons.gradients import WayBack, way_back
from provenance.prompt import Drawn
from provenance.textbook.config import Config
from provenance.textbook.model import Textbook
from provenance.textbook.shelf import Textbooks

SMALL = Config(n_layer=3, n_head=2, n_embd=8)


def streams_of(model: Textbook) -> list[np.ndarray]:
    """The stream that enters the first block, and what each block hands on, as the model computes them."""
    seen: dict[str, torch.Tensor] = {}
    model.forward(
        model.begin(torch.arange(5)[None], Drawn(2, 0))["x"], lambda place, tensor: seen.setdefault(place, tensor)
    )
    return [seen[place].double().numpy() for place in model.residuals]


def followed(config: Config, seed: int = 0, weights: dict[str, torch.Tensor] | None = None) -> WayBack:
    model = Textbooks().load(config.name)
    given = weights or dict(model.weights)
    return way_back(
        config, streams_of(model)[0], {place: cells.double().numpy() for place, cells in given.items()}, seed
    )


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("changes", [{}, {"temperature": 0.5}, {"scaled": False}, {"positions": "none"}])
def test_the_blocks_that_are_differentiated_give_the_models_own_stream(
    norm: str, causal: bool, changes: dict[str, object]
) -> None:
    config = replace(SMALL, norm=norm, causal=causal, **changes)  # type: ignore[arg-type]
    assert followed(config).leaving == pytest.approx(streams_of(Textbooks().load(config.name))[-1], abs=2e-6)


@settings(max_examples=12, deadline=None)
@given(st.sampled_from(["post", "pre"]), st.booleans(), st.integers(0, 1000))
def test_a_step_along_the_gradient_changes_the_sum_by_its_length(norm: str, causal: bool, seed: int) -> None:
    way = followed(replace(SMALL, norm=norm, causal=causal), seed)  # type: ignore[arg-type]
    assert way.slope == pytest.approx(way.length, rel=1e-5)
    assert way.length == pytest.approx(way.sizes[0] * math.sqrt(2 * 5 * 8), rel=1e-12)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_each_size_is_that_of_the_models_own_finite_differences(norm: str) -> None:
    config = replace(SMALL, norm=norm, causal=True)  # type: ignore[arg-type]
    model = Textbooks().load(config.name)
    exact = Textbook(config, {place: cells.double() for place, cells in model.weights.items()}, model.info)
    drawn = torch.randn((2, 5, 8), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    moves = 1e-4 * torch.eye(80, dtype=torch.float64).view(80, 2, 5, 8)
    for layer, stream in enumerate(streams_of(model)):
        sides = []
        for sign in (1, -1):
            moved = (torch.from_numpy(stream) + sign * moves).flatten(0, 1)  # all of them as one batch
            kept = {model.residuals[layer]: moved}
            for segment in model.segments[layer + 1 :]:
                kept = {**kept, **exact.run(segment, kept, ())}
            result = list(kept.values())[-1].view(80, 2, 5, 8)
            sides.append((drawn * result).sum((1, 2, 3)))
        gradient = (sides[0] - sides[1]) / 2e-4
        assert followed(config).sizes[layer] == pytest.approx(float(gradient.square().mean().sqrt()), rel=1e-6)


def test_blocks_that_write_nothing_pass_the_gradient_of_a_pre_norm_stream_on_as_it_is() -> None:
    config = replace(SMALL, norm="pre")
    model = Textbooks().load(config.name)
    silent = {
        place: torch.zeros_like(cells) if ".out_proj." in place or ".proj." in place else cells
        for place, cells in model.weights.items()
    }
    way = followed(config, weights=silent)
    assert way.sizes == pytest.approx([way.sizes[0]] * 4, rel=1e-12)
    assert way.growth == pytest.approx(1)


def test_the_gradient_before_the_last_norm_is_that_of_a_layer_norm_by_hand() -> None:
    config = replace(SMALL, norm="pre", n_layer=1)
    model = Textbooks().load(config.name)
    way = followed(config, seed=7)
    x = way.leaving
    drawn = torch.randn(x.shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64).numpy()
    r = drawn * model.weights["norm_f.g"].double().numpy()
    deviation = np.sqrt(x.var(axis=-1, keepdims=True) + config.epsilon)
    n = (x - x.mean(axis=-1, keepdims=True)) / deviation
    by_hand = (r - r.mean(axis=-1, keepdims=True) - n * (r * n).mean(axis=-1, keepdims=True)) / deviation
    assert way.sizes[-1] == pytest.approx(math.sqrt(np.square(by_hand).mean()), rel=1e-12)


def test_a_post_norm_result_is_the_stream_itself_so_its_gradient_is_what_was_drawn() -> None:
    drawn = torch.randn((2, 5, 8), generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    assert followed(SMALL, seed=3).sizes[-1] == pytest.approx(float(drawn.square().mean().sqrt()), rel=1e-12)
