"""The chapters of the lessons, and which tensors of each model family have their place in which."""

from collections.abc import Mapping
from dataclasses import dataclass

from provenance.errors import NotFound


@dataclass(frozen=True, slots=True)
class Chapter:
    """One chapter: `summary` says in a sentence what it shows; `sites` are the tensors that it explains."""

    slug: str
    number: int
    title: str
    summary: str
    sites: Mapping[str, tuple[str, ...]]


def _parts(prefix: str, *parts: str) -> tuple[str, ...]:
    return tuple(f"{prefix}.{part}" for part in parts)


_NORM = ("mean", "var", "normalized", "out")

_SCALED = Chapter(
    slug="scaled-dot-product",
    number=1,
    title="Scaled dot-product attention",
    summary="Every query meets every key; why scores are divided by √d before the softmax, and what that prevents.",
    sites={
        "gpt2": _parts(
            "h.attn", "q", "k", "v", "scores_raw", "scores", "softmax.x", "softmax.ex", "pattern", "context"
        ),
        "textbook": _parts("h.attn", "q", "k", "v", "score_raw", "score", "weight", "context"),
    },
)

_HEADS = Chapter(
    slug="multi-head",
    number=2,
    title="Multi-head attention",
    summary="One projection, split into heads that each look elsewhere; what is lost when they are made to agree.",
    sites={
        "gpt2": _parts("h.attn", "c_attn.w", "c_attn.b", "c_attn.c", "merged", "c_proj.w", "c_proj.b", "out"),
        "textbook": _parts("h.attn", "in_proj.w", "in_proj.b", "qkv", "merged", "out_proj.w", "out_proj.b", "out"),
    },
)

_POSITIONS = Chapter(
    slug="positions",
    number=3,
    title="Positions",
    summary="Attention alone knows no order; sines, or a learned table, put it in.",
    sites={
        "gpt2": ("wpe", "positions", "embed.positions", "embed.h"),
        "textbook": ("x", "pe.pos", "pe.div", "pe.angle", "pe", "pe.learned", "embed.positions", "embed.h"),
    },
)

_BLOCK = Chapter(
    slug="block",
    number=4,
    title="The transformer block",
    summary="Attention and an MLP, each added to a stream; where the norms stand, and what that does over layers.",
    sites={
        "gpt2": (
            *_parts("h.ln_1", "g", "b", "u", "s", "normalized", "out"),
            "h.resid_mid",
            *_parts("h.ln_2", "g", "b", "u", "s", "normalized", "out"),
            *_parts("h.mlp", "c_fc.w", "c_fc.b", "c_fc.c", "h", "c_proj.w", "c_proj.b", "h2"),
            "h.resid_post",
            *_parts("ln_f", "g", "b", "u", "s", "normalized", "out"),
        ),
        "textbook": (
            *_parts("h.norm1", "g", "b"),
            *_parts("h.pre.norm1", *_NORM),
            "h.resid_mid",
            *_parts("h.post.norm1", *_NORM),
            *_parts("h.norm2", "g", "b"),
            *_parts("h.pre.norm2", *_NORM),
            *_parts("h.mlp", "fc.w", "fc.b", "hidden", "gelu", "proj.w", "proj.b", "out"),
            "h.resid_post",
            *_parts("h.post.norm2", *_NORM),
            *_parts("norm_f", "g", "b", *_NORM),
        ),
    },
)

_DECODER = Chapter(
    slug="decoder",
    number=5,
    title="The causal decoder",
    summary="A mask hides the future; the next token’s loss; a cache that saves work and changes nothing.",
    sites={
        "gpt2": (
            *("tokens", "wte", "embed.tokens"),
            *_parts("h.attn.mask", "i", "j", "m", "b", "broadcast"),
            "h.attn.scores_masked",
            *_parts("h.attn", "present", "pk", "pv", "k_all", "v_all"),
            *("h.past", "presents", "h_flat", "lm_head.w", "logits_flat", "logits"),
        ),
        "textbook": ("h.attn.mask", "h.attn.score_masked"),
    },
)

CHAPTERS: tuple[Chapter, ...] = (_SCALED, _HEADS, _POSITIONS, _BLOCK, _DECODER)
"""All chapters, in the order in which they are read."""


def chapter(slug: str) -> Chapter:
    """A chapter by its slug. Raises NotFound."""
    for each in CHAPTERS:
        if each.slug == slug:
            return each
    known = ", ".join(each.slug for each in CHAPTERS)
    raise NotFound(f"There is no lesson named {slug[:60]!r}.", hint=f"The lessons are {known}.")


def chapter_of(family: str, site: str) -> Chapter | None:
    """The chapter that explains a site of a model family; None where none does."""
    return next((each for each in CHAPTERS if site in each.sites.get(family, ())), None)
