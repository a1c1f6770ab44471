"""Files of named tensors, safetensors and npz: read from anywhere without trust, and written as a stream."""

from provenance.tensor_files.reading import MOST_TENSORS, read_tensors
from provenance.tensor_files.writing import Format, Spec, raw_bytes, stream_npz, stream_safetensors, write_tensors

__all__ = [
    "MOST_TENSORS",
    "Format",
    "Spec",
    "raw_bytes",
    "read_tensors",
    "stream_npz",
    "stream_safetensors",
    "write_tensors",
]
