"""TransformerLens' hooks: each is listed for the site whose values it has, and for no other."""

from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from conftest import TINY, tiny_model_of

from provenance.gpt2.catalogue import CATALOGUE
from provenance.lookup import find, search
from provenance.naming import HOOK

# Measured with TransformerLens 3.9.0: hook, site, how its axes lie, and the largest difference seen.
FACTS = (
    ("hook_embed", "embed.tokens", "same", 0.0),
    ("hook_pos_embed", "embed.positions", "same", 0.0),
    ("blocks.{layer}.ln1.hook_normalized", "h.ln_1.normalized", "same", 2.0e-6),
    ("blocks.{layer}.attn.hook_q", "h.attn.q", "by token", 2.2e-6),
    ("blocks.{layer}.attn.hook_k", "h.attn.k", "by token", 1.6e-6),
    ("blocks.{layer}.attn.hook_v", "h.attn.v", "by token", 1.7e-6),
    ("blocks.{layer}.attn.hook_attn_scores", "h.attn.scores_masked", "visible", 1.5e-6),
    ("blocks.{layer}.attn.hook_pattern", "h.attn.pattern", "same", 2.4e-7),
    ("blocks.{layer}.attn.hook_z", "h.attn.context", "by token", 8.4e-7),
    ("blocks.{layer}.hook_attn_out", "h.attn.out", "same", 1.1e-6),
    ("blocks.{layer}.hook_resid_mid", "h.resid_mid", "same", 3.6e-6),
    ("blocks.{layer}.ln2.hook_normalized", "h.ln_2.normalized", "same", 1.9e-6),
    ("blocks.{layer}.mlp.hook_pre", "h.mlp.c_fc.c", "same", 1.7e-6),
    ("blocks.{layer}.mlp.hook_post", "h.mlp.h", "same", 1.8e-6),
    ("blocks.{layer}.hook_mlp_out", "h.mlp.h2", "same", 1.8e-6),
    ("blocks.{layer}.hook_resid_post", "h.resid_post", "same", 3.6e-6),
    ("ln_final.hook_normalized", "ln_f.normalized", "same", 1.5e-6),
)
NOTES = {"same": "", "by token": "laid out [B, T, H, head_dim]", "visible": "−∞ at masked cells; equal at all others"}
IDS = (11, 7, 96, 0, 7, 42)
ABSOLUTE = 5e-5


def test_exactly_the_hooks_whose_values_agree_are_listed() -> None:
    listed = {(a.pattern, row.site, a.note) for row in CATALOGUE for a in row.aliases if a.scheme == HOOK}
    assert listed == {(hook, site, NOTES[layout]) for hook, site, layout, _ in FACTS}
    assert max(difference for *_, difference in FACTS) < ABSOLUTE


@pytest.mark.parametrize(("hook", "site"), [fact[:2] for fact in FACTS])
def test_a_hook_finds_its_tensor_and_its_layer(hook: str, site: str) -> None:
    row, address = find(CATALOGUE, hook.replace("{layer}", "7"))
    assert row.site == site
    assert (address.layer if address else None) == (7 if "{layer}" in hook else None)
    best = search(CATALOGUE, hook.replace("{layer}", "7"))[0]
    assert (best.row.site, HOOK in best.reason) == (site, True)


def test_hooks_that_only_look_alike_are_nobodys_name() -> None:
    patterns = {a.pattern for row in CATALOGUE for a in row.aliases}
    assert not [p for p in patterns if p.endswith(("hook_scale", "hook_resid_pre", "hook_result"))]


def test_the_values_agree_where_transformer_lens_is_installed() -> None:
    lens: Any = pytest.importorskip("transformer_lens", exc_type=ImportError)
    if not hasattr(lens, "HookedTransformer"):
        pytest.skip("TransformerLens 4 has no HookedTransformer")
    convert = import_module("transformer_lens.pretrained.weight_conversions.gpt2").convert_gpt2_weights
    model = tiny_model_of(TINY)
    ours: dict[str, torch.Tensor] = {}

    def tap(place: str, tensor: torch.Tensor) -> torch.Tensor:
        ours[place] = tensor
        return tensor

    model.forward(torch.tensor([IDS]), None, tap)
    config = lens.HookedTransformerConfig(
        n_layers=TINY.n_layer, d_model=TINY.n_embd, n_ctx=TINY.n_ctx, d_head=TINY.n_embd // TINY.n_head,
        n_heads=TINY.n_head, d_mlp=TINY.n_inner, d_vocab=TINY.n_vocab, act_fn="gelu_new", eps=TINY.epsilon,
        normalization_type="LN", original_architecture="GPT2LMHeadModel", dtype=torch.float32,
    )  # fmt: skip
    theirs = lens.HookedTransformer(config)
    state = convert(_as_transformers(model.weights), config)
    off = {"fold_ln": False, "center_writing_weights": False, "center_unembed": False, "fold_value_biases": False}
    theirs.load_and_process_state_dict(state, **off)
    _, cache = theirs.run_with_cache(torch.tensor([IDS]))
    for hook, site, layout, _ in FACTS:
        for layer in range(TINY.n_layer if "{layer}" in hook else 1):
            value = cache[hook.replace("{layer}", str(layer))].float()
            value = value.transpose(1, 2) if layout == "by token" else value
            own = ours[site.replace("h.", f"h.{layer}.", 1) if site.startswith("h.") else site]
            seen = torch.isfinite(value)
            assert (layout == "visible") == (not bool(seen.all()))
            np.testing.assert_allclose(value[seen].numpy(), own[seen].numpy(), rtol=0, atol=ABSOLUTE, err_msg=hook)


def _as_transformers(weights: dict[str, torch.Tensor]) -> Any:
    """The weights in a model of the transformers library, from which TransformerLens converts."""
    transformers: Any = import_module("transformers")
    config = transformers.GPT2Config(
        n_layer=TINY.n_layer, n_head=TINY.n_head, n_embd=TINY.n_embd, n_positions=TINY.n_ctx,
        vocab_size=TINY.n_vocab, n_inner=TINY.n_inner, layer_norm_epsilon=TINY.epsilon,
    )  # fmt: skip
    model = transformers.GPT2LMHeadModel(config)
    state = {}
    for place, tensor in weights.items():
        path, _, last = place.rpartition(".")
        name = f"{path}.{'bias' if last == 'b' else 'weight'}" if path else f"{place}.weight"
        state[f"transformer.{name}"] = tensor[0] if last == "w" and tensor.dim() == 3 else tensor
    assert model.load_state_dict(state, strict=False).unexpected_keys == []
    return model
