"""Sizes of variable-length rows: the row of each entry, on CPUs and on other devices."""

import numpy as np
import pytest
import tensorflow as tf

from tf_pfor.layouts import cpu_kernels
from tf_pfor.layouts.ragged import Ragged
from tf_pfor.layouts.row_sizes import RowSizes


@pytest.mark.parametrize("on_cpus", [True, False])
@pytest.mark.parametrize("lengths", [[2, 0, 0, 3], [0, 0, 4, 0], [0, 0], [0], [], [1]])
def test_the_row_of_each_entry(lengths, on_cpus, monkeypatch):
    monkeypatch.setattr(cpu_kernels, "may_run", lambda: on_cpus)

    @tf.function
    def rows():
        return RowSizes.of(tf.constant(lengths, tf.int32)).rows

    np.testing.assert_array_equal(rows(), np.repeat(np.arange(len(lengths)), lengths))


def test_rows_that_are_full_are_cut_along_each_axis():
    @tf.function
    def cut():
        sizes = [RowSizes.of(tf.constant([k, k]), most=k, full=k) for k in (3, 2)]
        return Ragged.from_padded(tf.reshape(tf.range(40), [2, 5, 4]), sizes).trimmed()

    np.testing.assert_array_equal(cut(), np.arange(40).reshape(2, 5, 4)[:, :3, :2])
