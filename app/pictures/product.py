"""A dot product as the sum that it is: one bar for each product."""

from dataclasses import dataclass

import numpy as np

from app.pages.numbers import Number, measure, rounded
from app.pictures.parts import Mark
from provenance.pictures.cells import Array, exact

_WIDTH, _HEIGHT = 640.0, 140.0


@dataclass(frozen=True, slots=True)
class Product:
    """The bar of one channel; `sign` is `plus` or `minus`."""

    x: float
    y: float
    width: float
    height: float
    sign: str
    says: str


@dataclass(frozen=True, slots=True)
class ProductPicture:
    """The products of two vectors, their sum, and the cell that the sum is, up to a factor."""

    width: float
    height: float
    zero: float
    bars: tuple[Product, ...]
    ticks: tuple[Mark, ...]
    plus: Number
    minus: Number
    total: Number
    factor: Number | None
    cell: Number
    difference: Number
    alternative: str


def product_picture(left: Array, right: Array, cell: np.generic) -> ProductPicture:
    """The sum over channels of `left` times `right`, and the cell that holds it.

    `factor` is None where the cell is the sum itself; `difference` is what rounding leaves between
    the cell and the sum times the factor.
    """
    one, other = left.astype(np.float64), right.astype(np.float64)
    products = one * other
    total, value = float(products.sum()), float(cell)
    factor = _factor(value, total)
    low, high = min(0.0, float(products.min())), max(0.0, float(products.max()))
    span = (high - low) or 1.0
    step = _WIDTH / len(products)
    bars = []
    for n, product in enumerate(products.tolist()):
        top, bottom = max(product, 0.0), min(product, 0.0)
        says = f"channel {n}: {rounded(one[n])} × {rounded(other[n])} = {rounded(product)}"
        bars.append(
            Product(
                round(n * step + step * 0.1, 2),
                round(_HEIGHT * (high - top) / span, 2),
                round(step * 0.8, 2),
                round(max(0.5, _HEIGHT * (top - bottom) / span), 2),
                "minus" if product < 0 else "plus",
                says,
            )
        )
    plus, minus = float(products[products > 0].sum()), float(products[products < 0].sum())
    strongest = int(np.argmax(np.abs(products)))
    every = next(n for n in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024) if len(products) / n <= 16)
    return ProductPicture(
        width=_WIDTH,
        height=_HEIGHT,
        zero=round(_HEIGHT * high / span, 2),
        bars=tuple(bars),
        ticks=tuple(Mark(round((n + 0.5) * step, 2), str(n)) for n in range(0, len(products), every)),
        plus=measure(plus),
        minus=measure(minus),
        total=measure(total),
        factor=None if factor == 1 else measure(factor),
        cell=Number(rounded(value), exact(cell)),
        difference=measure(abs(value - factor * total)),
        alternative=(
            f"{len(products)} products: the positive ones sum to {rounded(plus)}, the negative ones to "
            f"{rounded(minus)}, all to {rounded(total)}. The strongest is channel {strongest} with "
            f"{rounded(float(products[strongest]))}."
        ),
    )


def _factor(value: float, total: float) -> float:
    """What the sum is multiplied by, in four digits; 1 where rounding alone tells them apart."""
    if total == 0 or not np.isfinite(value / total):
        return 1.0
    factor = value / total
    return 1.0 if abs(factor - 1) < 1e-3 else float(f"{factor:.4g}")
