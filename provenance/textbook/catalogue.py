"""The textbook transformer's catalogue: every named intermediate of the forward pass, in order of computation."""

from provenance.axes import Axis, Counts
from provenance.catalogue import Catalogue
from provenance.textbook.config import FAMILY
from provenance.textbook.operations import OPERATIONS
from provenance.textbook.rows_attention import ATTENTION
from provenance.textbook.rows_mlp import MLP
from provenance.textbook.rows_model import INPUT, OUTPUT

AXES = (
    Axis("B", "batch", "sequences run together", Counts.BATCH),
    Axis("T", "", "positions of the sequence, as queries", Counts.TOKEN),
    Axis("S", "", "the same positions, as keys", Counts.KEY),
    Axis("d", "d", "channels of the residual stream", Counts.CHANNEL),
    Axis("3d", "3d", "queries, keys and values side by side", Counts.CHANNEL),
    Axis("m", "mlp", "hidden units of the MLP", Counts.CHANNEL),
    Axis("H", "head", "attention heads", Counts.HEAD),
    Axis("hd", "head_dim", "channels of one head", Counts.CHANNEL),
    Axis("C", "max_len", "positions of the longest sequence", Counts.POSITION),
    Axis("f", "freq", "frequencies, each for one sine and one cosine", Counts.CHANNEL),
    Axis("1", "", "an axis of one", Counts.ONE),
)

CATALOGUE = Catalogue(FAMILY, (*INPUT, *ATTENTION, *MLP, *OUTPUT), OPERATIONS, AXES)
