"""The TensorFlow stand-in: what it computes, against NumPy, and what it refuses."""

from typing import Any

import numpy
import numpy.typing
import pytest
import torch

from provenance.errors import InvalidInput
from provenance.witness.tensorflow_standin import Tensor, TensorFlow, unwrap, wrap


def test_variables_are_made_once_and_reused_only_when_asked() -> None:
    tf = TensorFlow({"a/b/w": torch.ones(2)})
    with (
        tf.variable_scope("a", reuse=True),
        tf.variable_scope("b"),
        pytest.raises(InvalidInput, match="before"),
    ):
        tf.get_variable("w", [2])
    with tf.variable_scope("a"), tf.variable_scope("b"):
        assert tf.get_variable("w", [2]).tolist() == [1, 1]
        with pytest.raises(InvalidInput, match="twice"):
            tf.get_variable("w", [2])
    with tf.variable_scope("a", reuse=True), tf.variable_scope("b"):
        assert tf.get_variable("w", [2]).tolist() == [1, 1]


def test_the_stand_in_computes_as_numpy_does() -> None:
    tf = TensorFlow({})
    values = numpy.arange(1, 25, dtype=numpy.float32).reshape(2, 3, 4) / 7
    x = wrap(torch.from_numpy(values))
    lower = tf.convert_to_tensor(tf.range(5)[:, None] >= tf.range(5))
    rows = numpy.array([[1, 0], [0, 1]])
    pairs: list[tuple[Tensor, numpy.typing.NDArray[Any]]] = [
        (tf.reduce_max(x, axis=-1, keepdims=True), values.max(-1, keepdims=True)),
        (tf.reduce_mean(x, axis=1), values.mean(1)),
        (tf.reduce_sum(x, axis=-1, keepdims=True), values.sum(-1, keepdims=True)),
        (tf.square(x), values**2),
        (tf.pow(x, 3), values**3),
        (tf.rsqrt(x), 1 / numpy.sqrt(values)),
        (tf.exp(x), numpy.exp(values)),
        (tf.tanh(x), numpy.tanh(values)),
        (tf.reshape(x, [4, -1]), values.reshape(4, 6)),
        (tf.transpose(x, [2, 0, 1]), values.transpose(2, 0, 1)),
        (tf.expand_dims(x, axis=0), values[None]),
        (tf.tile(x, [2, 1, 3]), numpy.tile(values, (2, 1, 3))),
        (tf.split(x, 2, axis=2)[1], values[..., 2:]),
        (tf.stack([x, x], axis=1), numpy.stack([values, values], 1)),
        (tf.unstack(x, axis=1)[2], values[:, 2]),
        (tf.concat([x, x], axis=-2), numpy.concatenate([values, values], -2)),
        (tf.gather(x, wrap(torch.from_numpy(rows))), values[rows]),
        (tf.matmul(x, x, transpose_b=True), values @ values.transpose(0, 2, 1)),
        (tf.cast(lower, torch.float32), numpy.tri(5, dtype=numpy.float32)),
        (numpy.sqrt(2.0) * (1 - x), numpy.float32(numpy.sqrt(2.0)) * (1 - values)),
    ]
    for ours, expected in pairs:
        assert type(ours) is Tensor
        assert ours.shape.as_list() == list(expected.shape)
        numpy.testing.assert_allclose(unwrap(ours).numpy(), expected, rtol=2e-6)
    assert (x.shape.ndims, x.shape[-1].value, tf.shape(x)) == (3, 4, [2, 3, 4])
    assert unwrap(x).data_ptr() == torch.from_numpy(values).data_ptr()
    with pytest.raises(InvalidInput, match="size 4"):
        tf.split(x, 3, axis=2)
    with pytest.raises(InvalidInput, match="3 multiples"):
        tf.tile(x, [2, 2])
