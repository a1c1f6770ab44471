"""Chapter 5, the causal decoder: the mask, the next token's loss, the cache, and a token that is changed."""

from dataclasses import dataclass, replace

from app.explorer import Explorer
from app.pages.frame import Frame
from app.pages.lessons.decoder_changed import ChangedText, ChangedVectors, changed_text, changed_vectors
from app.pages.lessons.decoder_mask import MaskPart, mask_part
from app.pages.lessons.decoder_runs import TextRuns, VectorRuns, text_runs, vector_runs
from app.pages.lessons.decoder_text import CachePart, LossPart, cache_part, loss_part
from app.pages.lessons.lesson import Lesson, lesson_frame, lesson_of
from app.pages.lessons.parts import Place, Question, answer, places
from app.pages.lessons.reading import Reading
from app.pages.numbers import count
from provenance.lessons.chapters import chapter
from provenance.lessons.options import Options

SLUG = "decoder"
FIELDS = ("text", "steps", "at", "heads", "length", "layers", "norm")
_IN_GPT2 = ("h.attn.mask.m", "h.attn.scores_masked", "h.attn.pattern", "h.attn.present", "h.attn.k_all", "logits")


@dataclass(frozen=True, slots=True)
class TextPart:
    """What the default model does with the text. `trained` is False where its weights are random."""

    trace_url: str
    model: str
    trained: bool
    loss: LossPart
    cache: CachePart
    changed: ChangedText


@dataclass(frozen=True, slots=True)
class DecoderPage:
    """The chapter on the causal decoder. `text` is None where `no_text` says why the default model has no run."""

    frame: Frame
    lesson: Lesson
    mask: MaskPart
    text: TextPart | None
    no_text: str
    vectors: ChangedVectors
    places: tuple[Place, ...]
    questions: tuple[Question, ...]


def decoder_page(explorer: Explorer, options: Options) -> DecoderPage:
    """The chapter in a state. Raises InvalidOption for a text or a position that cannot be taken."""
    found, vectors = text_runs(explorer, options), vector_runs(explorer, options)
    text = found if isinstance(found, TextRuns) else None
    about, reading = chapter(SLUG), vectors.causal
    mask, changed = mask_part(vectors, text), changed_vectors(vectors, options.config.stream_out)
    part = _text_part(text) if text else None
    return DecoderPage(
        frame=lesson_frame(about, reading),
        lesson=lesson_of(about, options, FIELDS, reading),
        mask=mask,
        text=part,
        no_text=found if isinstance(found, str) else "",
        vectors=changed,
        places=_places(explorer, text.decoded if text else None),
        questions=_questions(vectors, text, mask, part, changed, options.config.stream_out),
    )


def decoder_questions(explorer: Explorer, options: Options) -> tuple[Question, ...]:
    """The chapter's questions with their answers."""
    return decoder_page(explorer, options).questions


def _text_part(runs: TextRuns) -> TextPart:
    model = runs.decoded.trace.recipe.model
    return TextPart(
        trace_url=runs.decoded.trace_url,
        model=model.name,
        trained=model.trained,
        loss=loss_part(runs),
        cache=cache_part(runs),
        changed=changed_text(runs),
    )


def _places(explorer: Explorer, run: Reading | None) -> tuple[Place, ...]:
    found = places(explorer, _IN_GPT2, run)
    if run is None:
        return found
    # The cache and the new keys are joined in decode steps only.
    return tuple(
        replace(place, values_url=run.url(place.site, 0, 1)) if place.site == "h.attn.k_all" else place
        for place in found
    )


def _questions(
    runs: VectorRuns,
    text: TextRuns | None,
    mask: MaskPart,
    part: TextPart | None,
    vectors: ChangedVectors,
    stream_out: str,
) -> tuple[Question, ...]:
    last = runs.causal.trace.layers - 1
    asked = [
        Question(
            f"A text has {mask.length} positions. How many of the scores of one head does the mask hide?",
            answer(
                "{} of {}: counted in the recorded mask. It is T(T − 1)/2, half of all but the diagonal.",
                mask.each,
                count(mask.length**2),
            ),
            runs.causal.link("h.attn.mask"),
        ),
        Question(
            f"The vector at position {vectors.at} is replaced by another. Which positions’ streams change with the "
            "mask, and which without it?",
            answer(
                "With the mask {} of the {} positions, all from {} on: the largest difference before it is {}. "
                "Without the mask {} change, and before it the largest difference is {}.",
                count(vectors.causal.differ_after),
                count(vectors.length),
                str(vectors.at),
                vectors.causal_before,
                count(vectors.unmasked.differ_after + vectors.at - vectors.unmasked.equal_before),
                vectors.unmasked_before,
            ),
            runs.causal.link(stream_out, last),
        ),
    ]
    return (*asked, *(_text_questions(text, part) if text and part else ()))


def _text_questions(runs: TextRuns, part: TextPart) -> tuple[Question, ...]:
    loss, cache, run = part.loss, part.cache, runs.decoded
    return (
        Question(
            "Which token of the text did the model expect least, and what would its loss be if it held all tokens "
            "for equally likely?",
            answer(
                "“{}”, with a loss of {}; guessing evenly among {} tokens costs {}. The mean over the text is {}.",
                loss.hardest.text,
                loss.hardest_loss,
                loss.vocabulary,
                loss.uniform,
                loss.mean,
            ),
            run.link("logits"),
        ),
        Question(
            f"How many numbers does the cache hold after {cache.positions} tokens, and how many at the model’s full "
            f"context of {cache.context.text}?",
            answer(
                "{} for each token, so {}; at full context {}, which is {} MiB in float32.",
                cache.per_token,
                cache.total,
                cache.at_context,
                cache.at_context_mib,
            ),
            run.link("h.attn.present", 0, 1),
        ),
        Question(
            f"The prompt has {cache.prompt} tokens and {cache.steps} more are chosen. How many positions run through "
            "the blocks with a cache, and how many without?",
            answer(
                "{} with it, {} without: each step would run the whole text again.", cache.run_with, cache.run_without
            ),
            run.link("h.attn.k_all", 0, run.trace.last_step),
        ),
    )
