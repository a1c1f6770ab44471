"""Files of named tensors: what is read and written exactly, and what a hostile file is refused for."""

import io
import json
import pickle
import struct
import tracemalloc
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib import format as npy
from safetensors import safe_open

from provenance.errors import InvalidInput, TooLarge, UnreadableFile
from provenance.statistics import compiled
from provenance.tensor_files import (
    Format,
    Spec,
    raw_bytes,
    read_tensors,
    stream_npz,
    stream_safetensors,
    write_tensors,
)


@pytest.fixture(autouse=True, scope="module")
def _alone() -> None:
    """Peaks of memory are measured below: what earlier tests have made another thread prepare is ready first."""
    if (thread := compiled._preparation.thread) is not None:
        thread.join()


NAMED: dict[str, torch.Tensor] = {
    "m": torch.tensor([True, False, True]),
    "h.0.attn.q@2": torch.randn(1, 3, 2),
    "wide": torch.tensor([1 / 3, -0.0], dtype=torch.float64),
    "model/h0/ln_1": torch.tensor([float("nan"), float("inf"), -float("inf")]),
    "one": torch.tensor(5),
    "none": torch.zeros(0, 4),
    "half": torch.tensor([1.5, -2.0], dtype=torch.float16),
    "small": torch.tensor([[-128, 127]], dtype=torch.int8),
    "turned": torch.arange(6.0).reshape(2, 3).T,
}


def npz(*, compressed: bool = False, **arrays: Any) -> bytes:
    stream = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(stream, **arrays)
    return stream.getvalue()


def zipped(*members: tuple[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return stream.getvalue()


def array_file(header: str, content: bytes) -> bytes:
    """An .npy with a header of any text."""
    text = header.encode() + b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + content


def tensor_file(header: object, content: bytes = b"") -> bytes:
    """A safetensors file with a header of any content."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + content


def entry(start: int, end: int, *, shape: list[int] | None = None, dtype: str = "F32") -> dict[str, object]:
    return {"dtype": dtype, "shape": [(end - start) // 4] if shape is None else shape, "data_offsets": [start, end]}


def refused(content: bytes, match: str, **limits: int) -> UnreadableFile:
    with pytest.raises(UnreadableFile, match=match) as caught:
        read_tensors(content, name="port.npz", **limits)
    assert "port.npz" in caught.value.message
    assert caught.value.hint
    return caught.value


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return (one.dtype, one.shape, bytes(raw_bytes(one))) == (other.dtype, other.shape, bytes(raw_bytes(other)))


def read_or_refused(content: bytes) -> None:
    """No other error may come out of it, and a little file takes little memory."""
    try:
        found = read_tensors(content, limit_bytes=1 << 20)
    except UnreadableFile:
        return
    assert sum(tensor.nbytes for tensor in found.values()) <= 1 << 20


# --- what is written is read back, by us and by the libraries themselves ---


@pytest.mark.parametrize("format", Format)
@pytest.mark.parametrize("as_path", [True, False])
def test_what_is_written_is_read_back_bit_for_bit(format: Format, as_path: bool, tmp_path: Path) -> None:
    path = tmp_path / f"some.{format.value}"
    write_tensors(path, NAMED.items(), format)
    back = read_tensors(path if as_path else path.read_bytes())
    assert back.keys() == NAMED.keys()
    assert all(same(back[name], tensor) for name, tensor in NAMED.items())


def test_the_safetensors_library_reads_what_is_written_with_its_metadata(tmp_path: Path) -> None:
    path = tmp_path / "some.safetensors"
    write_tensors(path, NAMED.items(), Format.SAFETENSORS, {"manifest": '{"a": "ü"}'})
    back = safetensors.torch.load_file(path)
    assert all(same(back[name], tensor) for name, tensor in NAMED.items())
    with safe_open(path, "np") as opened:
        assert opened.metadata() == {"manifest": '{"a": "ü"}'}


def test_every_value_of_a_safetensors_file_is_aligned() -> None:
    stream = io.BytesIO()
    write_tensors(stream, NAMED.items(), Format.SAFETENSORS)
    content = stream.getvalue()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    assert length % 8 == 0
    assert all(header[name]["data_offsets"][0] % tensor.dtype.itemsize == 0 for name, tensor in NAMED.items())


def test_numpy_reads_what_is_written() -> None:
    stream = io.BytesIO()
    write_tensors(stream, NAMED.items(), Format.NPZ)
    with np.load(io.BytesIO(stream.getvalue()), allow_pickle=False) as back:
        assert list(back) == list(NAMED)
        for name, tensor in NAMED.items():
            np.testing.assert_array_equal(back[name], tensor.numpy())
            assert back[name].dtype == tensor.numpy().dtype


def test_metadata_may_be_known_only_after_the_last_tensor() -> None:
    seen: list[str] = []

    def named() -> Iterator[tuple[str, torch.Tensor]]:
        for name, tensor in NAMED.items():
            seen.append(name)
            yield name, tensor

    stream = io.BytesIO()
    write_tensors(stream, named(), Format.SAFETENSORS, lambda: {"seen": str(len(seen))})
    (length,) = struct.unpack("<Q", stream.getvalue()[:8])
    assert json.loads(stream.getvalue()[8 : 8 + length])["__metadata__"] == {"seen": str(len(NAMED))}


def test_equal_tensors_make_equal_files() -> None:
    assert b"".join(stream_npz(NAMED.items())) == b"".join(stream_npz(NAMED.items()))


def test_bfloat16_stays_in_safetensors_and_is_wider_in_npz() -> None:
    values = torch.tensor([1.5, -3.0], dtype=torch.bfloat16)
    for format, dtype in ((Format.SAFETENSORS, torch.bfloat16), (Format.NPZ, torch.float32)):
        stream = io.BytesIO()
        write_tensors(stream, [("x", values)], format)
        back = read_tensors(stream.getvalue())["x"]
        assert back.dtype == dtype
        assert torch.equal(back.float(), values.float())


@pytest.mark.parametrize("format", Format)
def test_a_name_that_comes_twice_is_refused(format: Format) -> None:
    with pytest.raises(InvalidInput, match="'x'"):
        write_tensors(io.BytesIO(), [("x", torch.ones(1)), ("x", torch.ones(1))], format)


@pytest.mark.parametrize(("name", "format"), [("a.npz", Format.NPZ), ("b.SafeTensors", Format.SAFETENSORS)])
def test_the_ending_says_the_format(name: str, format: Format) -> None:
    assert Format.of(Path(name)) is format


@pytest.mark.parametrize("name", ["a", "a.npy", "a.pt", ".npz/a"])
def test_another_ending_is_refused_with_those_that_are_known(name: str) -> None:
    with pytest.raises(InvalidInput, match=r"\.safetensors or \.npz"):
        Format.of(Path(name))


def test_a_stream_of_safetensors_is_the_file_in_pieces() -> None:
    big = torch.arange(1 << 20).float()
    specs = [Spec("big", big.dtype, tuple(big.shape)), Spec("m", torch.bool, (3,))]
    pieces = list(stream_safetensors(specs, iter([big, NAMED["m"]]), {"a": "b"}))
    assert len(pieces) > 4
    back = safetensors.torch.load(b"".join(pieces))
    assert torch.equal(back["big"], big)
    assert torch.equal(back["m"], NAMED["m"])


@pytest.mark.parametrize("tensor", [torch.zeros(3), torch.zeros(2, dtype=torch.float64)])
def test_a_streamed_tensor_that_is_not_as_announced_stops_the_stream(tensor: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="not as announced"):
        list(stream_safetensors([Spec("x", torch.float32, (2,))], iter([tensor])))


@pytest.mark.parametrize("format", Format)
def test_writing_holds_one_tensor_at_a_time(format: Format, tmp_path: Path) -> None:
    size, count = 1 << 20, 24
    values = ((f"t{n}", torch.full((size // 4,), float(n))) for n in range(count))
    tracemalloc.start()
    write_tensors(tmp_path / "many", values, format)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (tmp_path / "many").stat().st_size > size * count
    assert peak < 6 * size  # Python's own memory: the pieces of one tensor


TENSORS = st.dictionaries(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=20),
    st.tuples(
        st.lists(st.integers(0, 3), max_size=4),
        st.sampled_from(
            [torch.float64, torch.float32, torch.float16, torch.int64, torch.int16, torch.uint8, torch.bool]
        ),
    ),
    max_size=5,
)


@settings(deadline=None)
@given(TENSORS, st.sampled_from(Format))
def test_any_names_shapes_and_dtypes_come_back(
    drawn: dict[str, tuple[list[int], torch.dtype]], format: Format
) -> None:
    named = {name: torch.arange(torch.Size(s).numel()).reshape(s).to(d) for name, (s, d) in drawn.items()}
    named.pop("__metadata__", None)
    stream = io.BytesIO()
    write_tensors(stream, named.items(), format)
    back = read_tensors(stream.getvalue())
    assert back.keys() == named.keys()
    assert all(same(back[name], tensor) for name, tensor in named.items())


# --- what others write ---


@pytest.mark.parametrize("compressed", [True, False])
def test_numpys_own_files_are_read(compressed: bool) -> None:
    arrays = {
        "big_endian": np.arange(6).reshape(2, 3).astype(">f4"),
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "big_whole": np.array([-2, 300], dtype=">i8"),
        "scalar": np.float32(2.5),
        "empty": np.zeros((3, 0)),
        "a/b/../c": np.ones(2, dtype=bool),
    }
    back = read_tensors(npz(compressed=compressed, **arrays))
    assert list(back) == list(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(back[name].numpy(), array)
        assert back[name].is_contiguous()
    assert back["big_endian"].dtype == torch.float32


def test_unsigned_numbers_come_back_wider_with_their_values() -> None:
    back = read_tensors(npz(a=np.array([65535], dtype="<u2"), b=np.array([2**32 - 1], dtype=">u4")))
    assert (back["a"].dtype, back["a"].item()) == (torch.int32, 65535)
    assert (back["b"].dtype, back["b"].item()) == (torch.int64, 2**32 - 1)


def test_the_libraries_own_safetensors_are_read_whatever_the_file_is_called(tmp_path: Path) -> None:
    path = tmp_path / "called.npz"
    safetensors.numpy.save_file({"x": np.arange(3.0)}, path, {"format": "np"})
    assert torch.equal(read_tensors(path)["x"], torch.arange(3, dtype=torch.float64))
    assert torch.equal(
        read_tensors(safetensors.torch.save({"y": torch.ones(2).bfloat16()}))["y"].float(), torch.ones(2)
    )


def test_values_that_are_not_aligned_are_read_as_they_are() -> None:
    content = tensor_file(
        {"m": entry(0, 3, shape=[3], dtype="BOOL"), "f": entry(3, 11)}, b"\x01\x00\x01" + struct.pack("<2f", 1.5, 2)
    )
    back = read_tensors(content)
    assert back["f"].tolist() == [1.5, 2]
    assert back["m"].tolist() == [True, False, True]


def test_names_are_kept_whatever_is_in_them() -> None:
    name = "../../etc/\x1b[31m\n<script>"
    assert list(read_tensors(zipped((f"{name}.npy", array_bytes(np.ones(1)))))) == [name]
    assert list(read_tensors(tensor_file({name: entry(0, 4)}, bytes(4)))) == [name]


def array_bytes(array: Any, version: tuple[int, int] | None = None) -> bytes:
    stream = io.BytesIO()
    npy.write_array(stream, array, version)
    return stream.getvalue()


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_every_version_of_numpys_format_is_read(version: tuple[int, int]) -> None:
    content = zipped(("x.npy", array_bytes(np.arange(4.0), version)))
    assert read_tensors(content)["x"].tolist() == [0, 1, 2, 3]


def test_nothing_in_it_is_a_file_too() -> None:
    assert read_tensors(npz()) == {}
    assert read_tensors(tensor_file({})) == {}


# --- what is refused ---


class _Traitor:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return (pytest.fail, ("a pickle was loaded",))


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "is empty"),
        (b"\x00" * 20, "neither"),
        (b"name,value\n1,2\n", "neither"),
        (array_bytes(np.ones(2)), "single array"),
        (pickle.dumps(_Traitor()), "pickle"),
        (zipped(("archive/data.pkl", pickle.dumps(_Traitor()))), r"never read"),
        (zipped(("x.npy", array_bytes(np.ones(2))), ("notes.txt", b"hello")), r"notes\.txt"),
        (npz(x=np.ones(2))[:-30], "cannot be read as npz"),
    ],
)
def test_what_is_no_file_of_tensors_is_refused_with_what_it_is(content: bytes, match: str) -> None:
    refused(content, match)


def test_what_torch_saves_is_refused_as_a_pickle() -> None:
    stream = io.BytesIO()
    torch.save({"x": torch.ones(2)}, stream)
    refused(stream.getvalue(), "pickle")


def test_python_objects_are_refused_and_not_unpickled() -> None:
    refused(npz(x=np.array([_Traitor()], dtype=object)), "Python objects under 'x'")


@pytest.mark.parametrize(
    ("array", "dtype"),
    [
        (np.ones(2, dtype="complex64"), "complex64"),
        (np.array(["a"]), "str"),
        (np.array([b"a"]), "bytes"),
        (np.ones(2, dtype="u8"), "uint64"),
        (np.zeros(2, dtype=[("a", "f4")]), "void"),
        (np.zeros(2, dtype="V2"), "bfloat16 has no form"),
        (np.zeros(2, dtype="M8[s]"), "datetime64"),
        (np.ones(2, dtype=np.longdouble), "float128|longdouble"),
    ],
)
def test_dtypes_that_are_not_read_are_named(array: Any, dtype: str) -> None:
    refused(npz(good=np.ones(1), bad=array), f"'bad' of dtype .*({dtype})")


@pytest.mark.parametrize("dtype", ["C64", "F8_E4M3", "U64", "NEW", None, 5, "x" * 1000])
def test_dtypes_of_safetensors_that_are_not_read_are_named(dtype: Any) -> None:
    error = refused(tensor_file({"bad": {"dtype": dtype, "shape": [0], "data_offsets": [0, 0]}}), "'bad' of dtype")
    assert len(str(error)) < 400


@pytest.mark.parametrize("length", [2**63, 2**31, 1000, 2])
def test_a_header_longer_than_the_file_or_cut_off_is_refused(length: int) -> None:
    refused(struct.pack("<Q", length) + b'{"x":1}', "header")


def test_a_header_over_the_limit_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "port.npz"
    with path.open("wb") as stream:
        stream.write(struct.pack("<Q", 1 << 33) + b"{")
        stream.truncate((1 << 33) + 8)  # sparse: it takes no disk
    tracemalloc.start()
    with pytest.raises(UnreadableFile, match="declares a header of 8589934592 bytes"):
        read_tensors(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize(
    "header",
    [
        b"{not json}",
        b'{"x": 1}',
        b'{"x": [] }',
        b'{"x": ' + b"[" * 100_000,
        b'{"x": ' + b"9" * 10_000 + b"}",
        b"{\xff\xfe}",
        b'{"x": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0], "dtype": "F32"}}',
        b'{"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}, "x": {"dtype": "F32", "shape": [1], '
        b'"data_offsets": [0, 4]}}',
        b'{"\\ud800": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}',
    ],
)
def test_a_header_that_is_no_header_is_refused(header: bytes) -> None:
    refused(tensor_file(header, bytes(4)), "header|dtype|cannot be read as safetensors")


@pytest.mark.parametrize(
    "entries",
    [
        {"x": entry(0, 400, shape=[100])},
        {"x": entry(0, 4, shape=[100])},
        {"x": entry(4, 0, shape=[1])},
        {"x": entry(-4, 0, shape=[1])},
        {"x": entry(0, 4, shape=[-1])},
        {"x": entry(0, 4, shape=[2**62, 2**62])},
        {"x": entry(0, 8), "y": entry(4, 12)},
        {"x": entry(0, 4), "y": entry(8, 12)},
        {"x": entry(0, 4)},
        {"x": entry(0, 2**64)},
        {"x": {"dtype": "F32", "shape": [1.5], "data_offsets": [0, 4]}},
        {"x": {"dtype": "F32"}},
    ],
)
def test_offsets_that_overlap_leave_the_file_or_do_not_fit_the_shape_are_refused(entries: object) -> None:
    refused(tensor_file(entries, bytes(12)), "cannot be read as safetensors")


def test_a_zip_bomb_is_refused_before_it_is_unpacked() -> None:
    zeros = array_file("{'descr': '|u1', 'fortran_order': False, 'shape': (30000000,)}", bytes(30_000_000))
    content = zipped(*[(f"{n}.npy", zeros) for n in range(3)], compression=zipfile.ZIP_DEFLATED)
    assert len(content) < 200_000
    tracemalloc.start()
    with pytest.raises(TooLarge, match="64 MiB"):
        read_tensors(content, limit_bytes=64 << 20)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


def test_a_member_that_unpacks_to_more_than_it_declares_is_refused() -> None:
    zeros = array_file("{'descr': '|u1', 'fortran_order': False, 'shape': (3000000,)}", bytes(3_000_000))
    content = bytearray(zipped(("x.npy", zeros), compression=zipfile.ZIP_DEFLATED))
    for signature, at in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        start = content.rindex(signature) + at
        assert content[start : start + 4] == struct.pack("<I", len(zeros))
        content[start : start + 4] = struct.pack("<I", 1000)
    refused(bytes(content), "more values under 'x' than it holds|CRC", limit_bytes=1 << 20)


@pytest.mark.parametrize(
    "shape", ["(2**40,)", "(1000000000000,)", "(-1,)", "(10**9, 10**9, 0, 5)", "(3,)", "(1,)", "2"]
)
def test_an_array_that_declares_more_or_less_than_it_holds_is_refused(shape: str) -> None:
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}"
    refused(zipped(("x.npy", array_file(header, bytes(8)))), "'x'|cannot be read")


def test_a_header_that_is_code_is_not_run() -> None:
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (__import__('os').getpid(),)}"
    refused(zipped(("x.npy", array_file(header, bytes(8)))), "cannot be read as npz")


@pytest.mark.parametrize(
    "header", ["(", "'", "{'descr': [('a', 'b')], 'shape': (1,)}", "(" * 300, "{[]: 1}", "{'shape': (2L,)}"]
)
def test_a_header_that_no_parser_understands_is_refused(header: str) -> None:
    refused(zipped(("x.npy", array_file(header, bytes(8)))), "'x' is no array")


def test_a_member_that_starts_far_outside_the_file_is_refused() -> None:
    content = zipped(("x.npy", array_bytes(np.ones(1))))
    start, end = content.rindex(b"PK\x01\x02"), content.rindex(b"PK\x05\x06")
    listed = bytearray(content[start:end])
    extra = struct.pack("<HHQ", 1, 8, 2**64 - 100)
    listed[30:32], listed[42:46] = struct.pack("<H", len(extra)), b"\xff" * 4
    listed += extra
    tail = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1, 1, len(listed), start, 0)
    refused(content[:start] + bytes(listed) + tail, "cannot be read as npz")


def test_a_header_of_very_many_parts_is_not_even_parsed() -> None:
    bomb = b'{"x": [' + b"[]," * 2_000_000 + b"[]]}"
    tracemalloc.start()
    with pytest.raises(UnreadableFile, match="more parts"):
        read_tensors(tensor_file(bomb), name="port.npz")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * len(bomb)


@pytest.mark.parametrize("content", [b"", b"\x93NUM", b"\x93NUMPY\x09\x00", b"\x93NUMPY\x01\x00\xff\xff{"])
def test_a_member_that_is_no_array_is_refused(content: bytes) -> None:
    refused(zipped(("x.npy", content)), "cannot be read as npz")


def test_two_members_of_one_name_are_refused() -> None:
    one = ("x.npy", array_bytes(np.ones(1)))
    with pytest.warns(UserWarning, match="Duplicate"):
        content = zipped(one, one)
    refused(content, "two tensors named 'x'")


def test_a_damaged_member_is_refused() -> None:
    content = bytearray(npz(x=np.arange(64.0)))
    content[content.index(b"\x93NUMPY") + 200] ^= 1
    refused(bytes(content), "cannot be read as npz")


def test_other_ways_of_packing_are_refused() -> None:
    refused(zipped(("x.npy", array_bytes(np.ones(1))), compression=zipfile.ZIP_BZIP2), "packs 'x'")


def test_a_member_under_a_password_is_refused() -> None:
    content = bytearray(npz(x=np.ones(1)))
    for signature, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.rindex(signature) + at] |= 1
    refused(bytes(content), "packs 'x'")


def test_more_tensors_than_allowed_are_refused_in_both_formats() -> None:
    arrays: dict[str, Any] = {f"t{n}": np.ones(1) for n in range(5)}
    for content in (npz(**arrays), safetensors.numpy.save(arrays)):
        assert len(read_tensors(content, most_tensors=5)) == 5
        refused(content, "more than 4 tensors", most_tensors=4)


def test_a_table_of_contents_of_many_entries_is_not_even_listed() -> None:
    member = zipped(("a.npy", b""))
    start = member.index(b"PK\x01\x02")
    listed = member[start : member.index(b"PK\x05\x06")]
    table = listed * 60_000
    content = member[:start] + table + struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1, 1, len(table), start, 0)
    tracemalloc.start()
    with pytest.raises(UnreadableFile, match="table of contents is too long"):
        read_tensors(content, most_tensors=100)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 << 20


@pytest.mark.parametrize("format", Format)
def test_a_file_over_the_limit_is_refused_with_the_limit(format: Format) -> None:
    stream = io.BytesIO()
    write_tensors(stream, [("x", torch.zeros(1 << 19))], format)
    with pytest.raises(TooLarge, match="'the file' holds more than the 1 MiB allowed here"):
        read_tensors(stream.getvalue(), limit_bytes=1 << 20)
    assert read_tensors(stream.getvalue(), limit_bytes=3 << 20)["x"].shape == (1 << 19,)


def test_a_path_that_is_no_file_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent.npz"):
        with pytest.raises(UnreadableFile, match="is no file"):
            read_tensors(path)


@settings(deadline=None)
@given(st.binary(max_size=200), st.sampled_from([b"", b"PK\x03\x04", b"\x93NUMPY", b"\x0a\0\0\0\0\0\0\0{"]))
def test_any_bytes_are_read_or_refused(content: bytes, start: bytes) -> None:
    read_or_refused(start + content)


GOOD = (
    npz(a=np.arange(6.0), b=np.ones((2, 2), dtype="f4")),
    safetensors.numpy.save({"a": np.arange(6.0), "b": np.ones(3)}),
)


@settings(deadline=None)
@given(st.sampled_from(GOOD), st.data())
def test_a_good_file_with_bytes_changed_is_read_or_refused(good: bytes, data: st.DataObject) -> None:
    content = bytearray(good)
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    read_or_refused(bytes(content))
