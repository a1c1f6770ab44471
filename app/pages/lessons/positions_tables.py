"""Position tables side by side: sines, a learned one that is untrained, and GPT-2's."""

from dataclasses import dataclass

import numpy as np

from app.pages.lessons.parts import Cell, Figure, Row, Table, apart, figure
from app.pages.lessons.positions_runs import Runs
from app.pages.lessons.reading import Array, Reading
from app.pages.numbers import count, measure
from app.pictures.curves import CurvesPicture, Series, curves
from provenance.lessons.positions import Similarity, divisors, row_norms, similarities, table

MOST_DISTANCE = 256
_SHOWN = (1, 2, 4, 8, 16, 32, 64, 128, 256)


@dataclass(frozen=True, slots=True)
class PositionTable:
    """One table of positions (C, d): where it was recorded, and what it is called here."""

    name: str
    reading: Reading
    site: str

    @property
    def rows(self) -> Array:
        """Its rows, one for each position."""
        return self.reading.array(self.site)


def tables_of(runs: Runs) -> tuple[PositionTable, ...]:
    """The tables that are compared: GPT-2's where it is here."""
    found = [
        PositionTable("sines and cosines", runs.sines, "pe"),
        PositionTable("learned, untrained", runs.learned, "pe.learned"),
    ]
    if isinstance(runs.gpt2, Reading):
        model = runs.gpt2.trace.recipe.model
        trained = "trained" if model.trained else "untrained"
        found.append(PositionTable(f"wpe of {model.name}, {trained}", runs.gpt2, "wpe"))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Alike:
    """How alike the rows of each table are by distance, for every distance that all of them have."""

    tables: tuple[PositionTable, ...]
    distances: tuple[int, ...]
    found: tuple[tuple[Similarity, ...], ...]

    @property
    def chart(self) -> CurvesPicture | None:
        """The means as curves, with the ends as bands."""
        series = [
            Series(
                each.name,
                self.distances,
                tuple(one.mean for one in found),
                tuple(one.low for one in found),
                tuple(one.high for one in found),
            )
            for each, found in zip(self.tables, self.found, strict=True)
        ]
        return curves(series, "distance", "Mean cosine similarity of two rows")

    @property
    def table(self) -> Table:
        """The means at a few distances, and how far they depend on where the pair stands."""
        columns = ["Distance k"]
        for each in self.tables:
            columns += [each.name, "± by place"]
        return Table(
            "Cosine similarity of the rows i and i + k: its mean over all i, and half of the span that it has",
            tuple(columns),
            tuple(self._row(k) for k in self.distances if k in _SHOWN),
        )

    def _row(self, distance: int) -> Row:
        at = self.distances.index(distance)
        cells: list[Cell] = []
        for each, found in zip(self.tables, self.found, strict=True):
            cells += [
                each.reading.live(apart(found[at].mean), each.site),
                each.reading.live(apart(found[at].spread / 2), each.site),
            ]
        return Row(str(distance), tuple(cells))


def alike(tables: tuple[PositionTable, ...]) -> Alike:
    """Compare the rows of some tables at every distance from 0 on that leaves each of them pairs enough."""
    most = min(MOST_DISTANCE, *(len(each.rows) // 2 for each in tables))
    distances = tuple(range(most + 1))
    return Alike(tables, distances, tuple(similarities(each.rows, distances) for each in tables))


def sizes_table(tables: tuple[PositionTable, ...]) -> Table:
    """How many rows, how long they are, and how many of their numbers are parameters."""

    def row(each: PositionTable) -> Row:
        norms = row_norms(each.rows)
        learned = each.rows.size if each.site != "pe" else 0
        live = each.reading.live
        cells = (
            live(count(each.rows.shape[0]), each.site),
            live(count(each.rows.shape[1]), each.site),
            live(count(learned), each.site),
            live(measure(float(norms.min())), each.site),
            live(measure(float(norms.max())), each.site),
        )
        return Row(each.name, cells, each.reading.url(each.site))

    return Table(
        caption="The tables: their size, and the length of their rows",
        columns=("Table", "positions C", "channels d", "parameters", "shortest row", "longest row"),
        rows=tuple(row(each) for each in tables),
    )


def pictures(tables: tuple[PositionTable, ...]) -> tuple[Figure, ...]:
    """The heatmaps that the application has of each table."""
    return tuple(figure(each.reading, each.site, f"{each.name}:") for each in tables)


def sinusoidal_like(rows: Array) -> Array:
    """A sinusoidal table of another table's shape (C, d); an odd last channel stays without."""
    size, width = rows.shape
    made = table(np.arange(float(size))[:, None], divisors(width))
    return made[:, :width]
