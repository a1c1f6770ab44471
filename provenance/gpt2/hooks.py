"""What TransformerLens calls the tensors: its hooks, where the values agree.

Each pair was compared by running TransformerLens 3.9's HookedTransformer on equal weights, without
folding or centring: all agree within 5e-6. Hooks that look alike but mean another value are left out
(`hook_scale` is the root of the variance plus ε), and so is `hook_resid_pre`, which is the
`hook_resid_post` of the layer before.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from provenance.catalogue import Alias, Intermediate

HOOK = "TransformerLens' hook"

_BY_TOKEN = "laid out [B, T, H, head_dim]"
_VISIBLE = "−∞ at masked cells; equal at all others"


def _hook(pattern: str, note: str = "") -> Alias:
    return Alias(HOOK, pattern, note)


HOOKS: Mapping[str, Alias] = {
    "embed.tokens": _hook("hook_embed"),
    "embed.positions": _hook("hook_pos_embed"),
    "h.ln_1.normalized": _hook("blocks.{layer}.ln1.hook_normalized"),
    "h.attn.q": _hook("blocks.{layer}.attn.hook_q", _BY_TOKEN),
    "h.attn.k": _hook("blocks.{layer}.attn.hook_k", _BY_TOKEN),
    "h.attn.v": _hook("blocks.{layer}.attn.hook_v", _BY_TOKEN),
    "h.attn.scores_masked": _hook("blocks.{layer}.attn.hook_attn_scores", _VISIBLE),
    "h.attn.pattern": _hook("blocks.{layer}.attn.hook_pattern"),
    "h.attn.context": _hook("blocks.{layer}.attn.hook_z", _BY_TOKEN),
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
