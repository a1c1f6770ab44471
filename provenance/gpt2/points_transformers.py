"""Which site each assignment of transformers' modeling_gpt2.py holds, and in which layout.

Facts about release 5.15.0, measured by running it; lines up to 446 are those of the pinned
revision too. `verify` proves every row by value.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from provenance.catalogue import Point
from provenance.names import Address, is_layered
from provenance.witness.testimony import AS_IS, Layout, Place

_HEADS_LAST = Layout("heads behind positions", lambda t: t.transpose(1, 2))
_NO_HEADS = Layout("before the split into heads", lambda t: t.transpose(1, 2).flatten(2))
_ONE_ROW = Layout("one row for the whole batch", lambda t: t[:1])
_NO_BATCH = Layout("without the batch axis", lambda t: t[0])


def _additive(mask: torch.Tensor) -> torch.Tensor:
    lowest = torch.finfo(mask.dtype).min
    return torch.zeros_like(mask).masked_fill(mask == 0, lowest)


_ADDITIVE = Layout("0 where ours has 1, the dtype's minimum where ours has 0", _additive)

_BLOCK_INPUT = "the block's input"


@dataclass(frozen=True, slots=True)
class Held:
    """The site that an assignment holds in the prefill; `grown` is the one it holds in decode steps."""

    site: str
    layout: Layout = AS_IS
    grown: str = ""

    def address(self, step: int, occurrence: int) -> Address:
        """The tensor that the assignment's n-th execution in a step holds."""
        site = self.grown if self.grown and step else self.site
        if site == _BLOCK_INPUT:
            return Address("h.resid_post", occurrence - 1, step) if occurrence else Address("embed.h", None, step)
        return Address(site, occurrence if is_layered(site) else None, step)


def _in(function: str, *rows: tuple[int, str, Held]) -> dict[Place, Held]:
    return {(function, line, expression): held for line, expression, held in rows}


HOLDS: Mapping[Place, Held] = {
    **_in(
        "GPT2Model.forward",
        (549, "input_ids", Held("tokens")),
        (569, "inputs_embeds", Held("embed.tokens")),
        (573, "position_ids", Held("positions", _NO_BATCH)),
        (574, "position_ids", Held("positions", _ONE_ROW)),
        (576, "position_embeds", Held("embed.positions", _ONE_ROW)),
        (577, "hidden_states", Held("embed.h")),
        (583, "causal_mask", Held("h.attn.mask.broadcast", _ADDITIVE)),
        (604, "hidden_states", Held("embed.h")),
        (609, "hidden_states", Held("h.resid_post")),
        (620, "hidden_states", Held("ln_f.out")),
        (622, "hidden_states", Held("ln_f.out")),
    ),
    **_in(
        "GPT2Block.forward",
        (272, "residual", Held(_BLOCK_INPUT)),
        (273, "hidden_states", Held("h.ln_1.out")),
        (274, "attn_output", Held("h.attn.out")),
        (274, "_", Held("h.attn.pattern")),
        (282, "hidden_states", Held("h.resid_mid")),
        (303, "residual", Held("h.resid_mid")),
        (304, "hidden_states", Held("h.ln_2.out")),
        (305, "feed_forward_hidden_states", Held("h.mlp.h2")),
        (307, "hidden_states", Held("h.resid_post")),
    ),
    **_in(
        "GPT2Attention.forward",
        (185, "query_states", Held("h.attn.q", _NO_HEADS)),
        (185, "key_states", Held("h.attn.k", _NO_HEADS)),
        (185, "value_states", Held("h.attn.v", _NO_HEADS)),
        (187, "key_states", Held("h.attn.k")),
        (188, "value_states", Held("h.attn.v")),
        (191, "query_states", Held("h.attn.q")),
        (196, "key_states", Held("h.attn.k", grown="h.attn.k_all")),
        (196, "value_states", Held("h.attn.v", grown="h.attn.v_all")),
        (211, "attn_output", Held("h.attn.context", _HEADS_LAST)),
        (211, "attn_weights", Held("h.attn.pattern")),
        (222, "attn_output", Held("h.attn.merged")),
        (223, "attn_output", Held("h.attn.out")),
        (224, "attn_output", Held("h.attn.out")),
    ),
    **_in(
        "eager_attention_forward",
        (58, "attn_weights", Held("h.attn.scores")),
        (61, "attn_weights", Held("h.attn.scores_masked")),
        (63, "attn_weights", Held("h.attn.pattern")),
        (66, "attn_weights", Held("h.attn.pattern")),
        (67, "attn_weights", Held("h.attn.pattern")),
        (69, "attn_output", Held("h.attn.context")),
        (70, "attn_output", Held("h.attn.context", _HEADS_LAST)),
    ),
    **_in(
        "GPT2MLP.forward",
        (239, "hidden_states", Held("h.mlp.c_fc.c")),
        (240, "hidden_states", Held("h.mlp.h")),
        (241, "hidden_states", Held("h.mlp.h2")),
        (242, "hidden_states", Held("h.mlp.h2")),
    ),
    **_in(
        "GPT2LMHeadModel.forward",
        (695, "hidden_states", Held("ln_f.out")),
        (698, "logits", Held("logits")),
    ),
}


def holders() -> Mapping[str, tuple[tuple[Point, str], ...]]:
    """The assignments that hold each site, in the order of the file, and a word on how or when they do."""
    found: defaultdict[str, list[tuple[Point, str]]] = defaultdict(list)
    for (function, line, expression), held in sorted(HOLDS.items(), key=lambda entry: entry[0][1]):
        point = Point(function, line, expression)
        sites = ("embed.h", "h.resid_post") if held.site == _BLOCK_INPUT else (held.site,)
        when = "in the prefill" if held.grown else ""
        for site in sites:
            found[site].append((point, held.layout.sentence or when))
        if held.grown:
            found[held.grown].append((point, "in decode steps"))
    return {site: tuple(points) for site, points in found.items()}
