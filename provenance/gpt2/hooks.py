"""What TransformerLens calls the tensors: its hooks, where the values agree.

Each pair was compared by running TransformerLens 3.9's HookedTransformer on equal weights, without
folding or centring: all agree within 5e-6. Hooks that look alike but mean another value are left out
(`hook_scale` is the root of the variance plus ε), and so is `hook_resid_pre`, which is the
`hook_resid_post` of the layer before.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from provenance.catalogue import Alias, Intermediate
from provenance.naming import HOOK


def _hook(pattern: str) -> Alias:
    return Alias(HOOK, pattern)


def _by_token(pattern: str) -> Alias:
    return Alias(HOOK, pattern, "laid out [B, T, H, head_dim]", axes=("B", "T", "H", "hd"))


def _hidden(pattern: str) -> Alias:
    return Alias(HOOK, pattern, "−∞ at masked cells; equal at all others", hides=True)


HOOKS: Mapping[str, Alias] = {
    "embed.tokens": _hook("hook_embed"),
    "embed.positions": _hook("hook_pos_embed"),
    "h.ln_1.normalized": _hook("blocks.{layer}.ln1.hook_normalized"),
    "h.attn.q": _by_token("blocks.{layer}.attn.hook_q"),
    "h.attn.k": _by_token("blocks.{layer}.attn.hook_k"),
    "h.attn.v": _by_token("blocks.{layer}.attn.hook_v"),
    "h.attn.scores_masked": _hidden("blocks.{layer}.attn.hook_attn_scores"),
    "h.attn.pattern": _hook("blocks.{layer}.attn.hook_pattern"),
    "h.attn.context": _by_token("blocks.{layer}.attn.hook_z"),
    "h.attn.out": _hook("blocks.{layer}.hook_attn_out"),
    "h.resid_mid": _hook("blocks.{layer}.hook_resid_mid"),
    "h.ln_2.normalized": _hook("blocks.{layer}.ln2.hook_normalized"),
    "h.mlp.c_fc.c": _hook("blocks.{layer}.mlp.hook_pre"),
    "h.mlp.h": _hook("blocks.{layer}.mlp.hook_post"),
    "h.mlp.h2": _hook("blocks.{layer}.hook_mlp_out"),
    "h.resid_post": _hook("blocks.{layer}.hook_resid_post"),
    "ln_f.normalized": _hook("ln_final.hook_normalized"),
}
"""The hook of each site that has one."""


def with_hooks(rows: Iterable[Intermediate]) -> Iterator[Intermediate]:
    """The rows with their hooks behind their other names."""
    for row in rows:
        hook = HOOKS.get(row.site)
        yield replace(row, aliases=(*row.aliases, hook)) if hook else row
