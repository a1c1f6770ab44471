"""The runs that the chapter on the block reads, measured once for its text and its questions."""

from dataclasses import dataclass

from app.explorer import Explorer
from app.pages.lessons.block_gradients import Back, back
from app.pages.lessons.block_sizes import Half, Sizes, halves_of, sizes_of
from app.pages.lessons.block_streams import GPT2_SITES, Streamed, streamed, textbook_sites
from app.pages.lessons.parts import small
from app.pages.lessons.positions_runs import gpt2_or_reason
from app.pages.lessons.reading import Live, Reading, Readings
from app.pages.numbers import Number, measure
from provenance.lessons.block import farthest, gelu, gelu_tanh
from provenance.lessons.options import Options


@dataclass(frozen=True, slots=True)
class Gelus:
    """The largest difference between the two forms of GELU on a run's pre-activations, and where it is."""

    difference: Live
    at: Number


@dataclass(frozen=True, slots=True)
class Runs:
    """All runs of the chapter. `gpt2` is None where the default model is not here; `no_gpt2` says why."""

    options: Options
    main: Reading
    post: Streamed
    pre: Streamed
    listing: Reading
    prose: Reading
    gpt2: Streamed | None
    no_gpt2: str
    halves: tuple[Half, ...]
    sizes: Sizes
    backs: tuple[Back, Back]
    gelus: Gelus
    gpt2_gelus: Gelus | None

    @property
    def here(self) -> Streamed:
        """The stream of the state that the form shows."""
        return self.pre if self.options.norm == "pre" else self.post


def runs_of(explorer: Explorer, options: Options) -> Runs:
    """The runs of a state, recorded where they are not stored."""
    readings = Readings(explorer)
    main, other = (readings.textbook(options.but(norm=norm)) for norm in _norms(options))
    post, pre = (main, other) if options.norm == "post" else (other, main)
    post_stream = streamed("post-norm", post, textbook_sites(options.but(norm="post")))
    pre_stream = streamed("pre-norm", pre, textbook_sites(options.but(norm="pre")))
    found = gpt2_or_reason(readings)
    gpt2 = found if isinstance(found, Reading) else None
    return Runs(
        options=options,
        main=main,
        post=post_stream,
        pre=pre_stream,
        listing=post if not options.causal else readings.textbook(options.but(norm="post", causal=False)),
        prose=pre if options.causal else readings.textbook(options.but(norm="pre", causal=True)),
        gpt2=streamed(gpt2.trace.recipe.model.name, gpt2, GPT2_SITES) if gpt2 else None,
        no_gpt2="" if isinstance(found, Reading) else found,
        halves=halves_of(main),
        sizes=sizes_of(explorer, main, gpt2),
        backs=(back(post_stream), back(pre_stream)),
        gelus=gelus_of(main, "h.mlp.hidden", (0,)),
        gpt2_gelus=gelus_of(gpt2, "h.mlp.c_fc.c", range(gpt2.trace.layers)) if gpt2 else None,
    )


def _norms(options: Options) -> tuple[str, str]:
    return (options.norm, "pre" if options.norm == "post" else "post")


def gelus_of(reading: Reading, site: str, layers: range | tuple[int, ...]) -> Gelus:
    """Compare the exact GELU with its tanh form on the recorded pre-activations of some layers."""
    inputs = ((layer, reading.array(site, layer)) for layer in layers)
    apart = [(farthest(gelu(x), gelu_tanh(x), x), layer) for layer, x in inputs]
    worst, layer = max(apart, key=lambda found: found[0].difference)
    return Gelus(reading.live(small(worst.difference), site, layer), measure(worst.at))
