"""The chapter on positions: what order an attention sees without them, and two ways to put it in."""

from dataclasses import dataclass

import numpy as np

from app.explorer import Explorer
from app.pages.frame import Frame
from app.pages.lessons.lesson import Lesson, lesson_frame, lesson_of
from app.pages.lessons.parts import Check, Figure, Place, Question, Table, check, places, small
from app.pages.lessons.positions_questions import questions_of
from app.pages.lessons.positions_runs import Runs, Shuffled, runs_of, shuffle_table
from app.pages.lessons.positions_tables import (
    Alike,
    PositionTable,
    alike,
    pictures,
    sinusoidal_like,
    sizes_table,
    tables_of,
)
from app.pages.lessons.reading import Live, Reading
from app.pages.numbers import Number, count, measure
from app.pictures.curves import CurvesPicture
from provenance.lessons import positions as numbers
from provenance.lessons.chapters import chapter
from provenance.lessons.options import Options

SLUG = "positions"
FIELDS = ("positions", "length", "d", "heads", "layers", "seed")
TURN = 5
"""The distance of the turn that is checked."""

_GPT2_SITES = ("wpe", "positions", "embed.positions", "embed.h")


@dataclass(frozen=True, slots=True)
class Sines:
    """The sinusoidal table, checked; `rounding` is the step of float32 at the largest angle."""

    checks: tuple[Check, ...]
    turned: Check
    shortest_wave: Live
    longest_wave: Live
    positions: Live
    length: Number
    shortest_row: Live
    longest_row: Live
    largest_angle: Live
    rounding: Number
    formula_apart: Live
    distances: Number


@dataclass(frozen=True, slots=True)
class Apart:
    """GPT-2's table beside a sinusoidal one of its shape: the largest entry of each, and the largest difference."""

    name: str
    trained: bool
    learned: Live
    difference: Live
    largest: Live
    parameters: Live


@dataclass(frozen=True, slots=True)
class PositionsPage:
    """The chapter. `no_gpt2` says why the default model is not shown, where it is not."""

    frame: Frame
    lesson: Lesson
    order: tuple[int, ...]
    swapped: Check
    shuffles: Table
    without: Shuffled
    invariant: Live
    equivariant: Live
    with_positions: Live
    kind: str
    masked: Live
    first_weight: Live
    second_weight: Live
    sines: Sines
    pictures: tuple[Figure, ...]
    sizes: Table
    chart: CurvesPicture | None
    alike: Table
    apart: Apart | None
    no_gpt2: str
    places: tuple[Place, ...]
    questions: tuple[Question, ...]


def positions_page(explorer: Explorer, options: Options) -> PositionsPage:
    """The chapter in a state. Raises Unavailable and Busy where a run cannot be had."""
    runs = runs_of(explorer, options)
    tables = tables_of(runs)
    compared = alike(tables)
    gpt2 = runs.gpt2 if isinstance(runs.gpt2, Reading) else None
    masked = runs.causal.given
    first = masked.array("h.attn.weight")
    return PositionsPage(
        frame=lesson_frame(chapter(SLUG), runs.main),
        lesson=lesson_of(chapter(SLUG), options, FIELDS, runs.main),
        order=runs.order,
        swapped=_swapped(runs.without),
        shuffles=shuffle_table(runs),
        without=runs.without,
        invariant=runs.without.live(runs.without.found.in_place),
        equivariant=runs.without.live(runs.without.found.in_order),
        with_positions=runs.with_positions.live(runs.with_positions.found.in_order),
        kind=runs.with_positions.options.positions,
        masked=runs.causal.live(runs.causal.found.in_order),
        first_weight=masked.live(measure(float(first[:, :, 0, 0].min())), "h.attn.weight"),
        second_weight=masked.live(measure(float(first[:, :, 1, 0].mean())), "h.attn.weight"),
        sines=_sines(runs, compared),
        pictures=pictures(tables),
        sizes=sizes_table(tables),
        chart=compared.chart,
        alike=compared.table,
        apart=_apart(tables) if gpt2 else None,
        no_gpt2="" if gpt2 else str(runs.gpt2),
        places=places(explorer, _GPT2_SITES, gpt2),
        questions=questions_of(runs, tables),
    )


def _swapped(without: Shuffled) -> Check:
    """The run in the new order, predicted from the run in the given one."""
    given = without.given.array(without.output_site, without.last)
    return check(
        without.other,
        without.output_site,
        without.last,
        given[:, list(without.order)],
        r"f(P\,x) = P\,f(x)",
        (),
        "the output for the given order, its rows moved like those of the input",
    )


def _sines(runs: Runs, compared: Alike) -> Sines:
    read = runs.sines
    place, frequencies, pe = read.array("pe.pos"), read.array("pe.div"), read.array("pe")
    norms, waves = numbers.row_norms(pe), numbers.wave_lengths(frequencies)
    largest = float((place * frequencies).max())
    return Sines(
        checks=(
            check(
                read,
                "pe.div",
                None,
                numbers.divisors(pe.shape[1]).reshape(frequencies.shape),
                r"\omega_i = \exp\left(-\frac{2i}{d} \ln 10000\right) = 10000^{-2i/d}",
                (),
                f"recomputed from d = {pe.shape[1]} alone",
            ),
            check(
                read,
                "pe",
                None,
                numbers.table(place, frequencies.ravel()),
                r"\mathrm{pe}_{p,2i} = \sin(p\,\omega_i), \quad \mathrm{pe}_{p,2i+1} = \cos(p\,\omega_i)",
                ("pe.pos", "pe.div"),
            ),
            check(
                read,
                "embed.h",
                None,
                read.array("x") + read.array("embed.positions"),
                r"h_{b,t} = x_{b,t} + \mathrm{pe}_t",
                ("x", "embed.positions"),
            ),
        ),
        turned=check(
            read,
            "pe",
            None,
            numbers.turned(pe, frequencies.ravel(), TURN),
            r"\begin{pmatrix} \sin((p+k)\,\omega) \\ \cos((p+k)\,\omega) \end{pmatrix} = "
            r"\begin{pmatrix} \cos k\omega & \sin k\omega \\ -\sin k\omega & \cos k\omega \end{pmatrix} "
            r"\begin{pmatrix} \sin p\,\omega \\ \cos p\,\omega \end{pmatrix}",
            ("pe", "pe.div"),
            f"each row made by turning the one {TURN} places off, from the recorded",
        ),
        shortest_wave=read.live(measure(float(waves.min())), "pe.div"),
        longest_wave=read.live(measure(float(waves.max())), "pe.div"),
        positions=read.live(count(len(pe)), "pe"),
        length=measure(float(np.sqrt(pe.shape[1] / 2))),
        shortest_row=read.live(measure(float(norms.min())), "pe"),
        longest_row=read.live(measure(float(norms.max())), "pe"),
        largest_angle=read.live(measure(largest), "pe.angle"),
        rounding=small(float(np.spacing(np.float32(largest)))),
        formula_apart=read.live(small(_formula_apart(compared, frequencies.ravel())), "pe"),
        distances=count(compared.distances[-1]),
    )


def _formula_apart(compared: Alike, frequencies: numbers.Array) -> float:
    """How far the measured similarities of the sinusoidal table are from their formula, over all distances."""
    return max(
        max(abs(end - numbers.similarity_by_formula(frequencies, one.distance)) for end in (one.low, one.high))
        for one in compared.found[0]
    )


def _apart(tables: tuple[PositionTable, ...]) -> Apart:
    each = tables[-1]
    rows, model = each.rows, each.reading.trace.recipe.model
    made = sinusoidal_like(rows)
    return Apart(
        name=model.name,
        trained=model.trained,
        learned=each.reading.live(measure(float(np.abs(rows).max())), each.site),
        difference=each.reading.live(measure(numbers.largest_difference(rows, made)), each.site),
        largest=each.reading.live(measure(float(np.abs(made).max())), each.site),
        parameters=each.reading.live(count(rows.size), each.site),
    )
