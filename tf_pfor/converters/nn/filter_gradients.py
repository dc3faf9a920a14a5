"""Per-example filter gradients: dF_i from x_i and dy_i, both different in every iteration.

    dF_i[k, c, o] = sum over images b and positions p of x_i[b, p * s + k * d, c] * dy_i[b, p, o]

Three ways to compute it with no loop over the rows: they differ in how much of the filter goes into
one product. ``choose`` picks one from the static shapes, as measured by
``benchmarks/kernels/filter_gradients.py``. docs/decisions/0003-filter-gradients.md has the ways
that lost.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from tf_pfor.core.emit import Dim, Emitter
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.values import dims


@dataclasses.dataclass(frozen=True, slots=True)
class Window:
    """The geometry of a convolution over any number of spatial axes, channels last.

    Attributes:
      n: the loop length.
      images: images in one iteration.
      size: the spatial input shape, tensors where it is unknown.
      kernel: the spatial filter shape.
      out: the spatial output shape, likewise.
      strides, dilations: one for each spatial axis.
      pads: (before, after) for each spatial axis.
      depth: input channels.
      features: output channels.
    """

    n: Dim
    images: Dim
    size: tuple[Dim, ...]
    kernel: tuple[int, ...]
    out: tuple[Dim, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[tuple[Dim, Dim], ...]
    depth: int
    features: int

    @classmethod
    def of(
        cls,
        emit: Emitter,
        *,
        n: Dim,
        images: Dim,
        size: tuple[Dim, ...],
        kernel: tuple[int, ...],
        strides: tuple[int, ...],
        dilations: tuple[int, ...],
        padding: str,
        explicit: Sequence[tuple[int, int]] = (),
        depth: int,
        features: int,
    ) -> Window:
        """Works out the zeros around the image and the output shape, as the kernels do."""
        math = emit.dim_math
        pads: list[tuple[Dim, Dim]] = []
        out: list[Dim] = []
        for i, (x, k, s, d) in enumerate(zip(size, kernel, strides, dilations, strict=True)):
            reach = (k - 1) * d + 1
            if padding == "SAME":
                blocks = math("FloorDiv", math("AddV2", x, s - 1), s)
                needed = math("AddV2", math("Mul", math("Sub", blocks, 1), s), reach)
                total = math("Maximum", math("Sub", needed, x), 0)
                before = math("FloorDiv", total, 2)
                pads.append((before, math("Sub", total, before)))
                out.append(blocks)
            else:
                pads.append(explicit[i] if explicit else (0, 0))
                room = math("AddV2", x, sum(explicit[i] if explicit else (0, 0)) - reach)
                out.append(math("AddV2", math("FloorDiv", room, s), 1))
        if min((d for d in (*size, *kernel, *out) if isinstance(d, int)), default=1) < 1:
            raise CannotVectorize("an empty image, filter or output")
        return cls(
            n, images, size, kernel, tuple(out), strides, dilations, tuple(pads), depth, features
        )

    @property
    def taps(self) -> int:
        """Positions in the filter."""
        return int(np.prod(self.kernel))

    def padded(self, emit: Emitter) -> tuple[Dim, ...]:
        """The spatial shape with the zeros around it."""
        add = functools.partial(emit.dim_math, "AddV2")
        return tuple(add(add(s, lo), hi) for s, (lo, hi) in zip(self.size, self.pads))

    def positions(self, emit: Emitter) -> Dim:
        """Positions in the output, of all images of one iteration."""
        return functools.reduce(functools.partial(emit.dim_math, "Mul"), self.out, self.images)

    def transposed(self, emit: Emitter) -> tuple[tuple[Dim, ...], Window]:
        """The convolution that is the gradient with respect to the input.

        Returns:
          The shape of dy spread out by the strides, and the window over it. With the filter
          reversed, dx[q] = sum over k of spread[q + lo - k * d] * F[k].
        """
        math = emit.dim_math
        reaches = [(k - 1) * d for k, d in zip(self.kernel, self.dilations)]
        if any(isinstance(lo, int) and lo > r for (lo, _), r in zip(self.pads, reaches)):
            raise CannotVectorize("explicit padding that is wider than the filter")
        spread: list[Dim] = []
        pads: list[tuple[Dim, Dim]] = []
        for x, o, s, (lo, _), r in zip(self.size, self.out, self.strides, self.pads, reaches):
            seen = math("AddV2", x, lo)
            spread.append(math("Minimum", math("Mul", o, s), seen))
            pads.append((math("Sub", r, lo), math("Sub", seen, spread[-1])))
        back = dataclasses.replace(
            self,
            size=tuple(spread),
            out=self.size,
            strides=(1,) * len(spread),
            pads=tuple(pads),
            depth=self.features,
            features=self.depth,
        )
        return tuple(spread), back


def pad(emit: Emitter, x: tf.Tensor, w: Window) -> tf.Tensor:
    """Zeros around the spatial axes, to a multiple of each stride.

    [rows, ...size, c] -> [rows, ...blocks * stride, c].
    """
    pads: list[tuple[Dim, Dim]] = [(0, 0)]
    for (lo, hi), size, stride in zip(w.pads, w.padded(emit), w.strides, strict=True):
        rest = (
            0 if stride == 1 else emit.dim_math("FloorMod", emit.dim_math("Sub", 0, size), stride)
        )
        pads.append((lo, emit.dim_math("AddV2", hi, rest)))
    pads.append((0, 0))
    flat = [d for pair in pads for d in pair]
    if all(isinstance(d, int) for d in flat):
        return emit("Pad", x, np.asarray(pads, np.int32)) if any(flat) else x
    return emit("Pad", x, emit.reshape(emit.shape_vector(flat), [len(pads), 2]))


def shifts(emit: Emitter, x: tf.Tensor, w: Window, axis: int) -> list[tf.Tensor]:
    """For each tap of one spatial axis its view of x: that axis shrinks from padded to out.

    A slice with a stride is ten times slower than a slice without. So the axis is split into
    [blocks, stride], and a tap sees one phase of a run of blocks.
    """
    stride, out, dilation = w.strides[axis], w.out[axis], w.dilations[axis]
    size = w.padded(emit)[axis]
    blocks = emit.dim_math("FloorDiv", emit.dim_math("AddV2", size, stride - 1), stride)
    at = axis + 1
    shape = dims(x)
    assert shape is not None
    if stride > 1:
        full = [emit.dim(x, i) for i in range(len(shape))]
        x = emit.reshape(x, [*full[:at], blocks, stride, *full[at + 1 :]])
    rank = len(shape) + (stride > 1)
    seen: list[tf.Tensor] = []
    for tap in range(w.kernel[axis]):
        block, phase = divmod(tap * dilation, stride)
        if stride == 1 and block == 0 and isinstance(out, int) and out == blocks:
            seen.append(x)
            continue
        begin = np.zeros(rank, np.int32)
        end: list[Dim] = [0] * rank
        begin[at], end[at] = block, emit.dim_math("AddV2", out, block)
        used = 1 << at
        if stride > 1:
            begin[at + 1], end[at + 1] = phase, phase + 1
            used |= 1 << (at + 1)
        others = (1 << rank) - 1 - used  # all of the other axes
        seen.append(
            emit(
                "StridedSlice",
                x,
                begin,
                emit.shape_vector(end),
                np.ones(rank, np.int32),
                begin_mask=others,
                end_mask=others,
                shrink_axis_mask=used & ~(1 << at),
            )
        )
    return seen


def gathered(emit: Emitter, x: tf.Tensor, w: Window, axes: Sequence[int]) -> tf.Tensor:
    """The taps of some spatial axes side by side in the channels, the first axis outermost.

    The axes come one after the other, the last first. So there are as many slices as the sum of the
    filter's sides, not their product, and longer runs of memory.
    """
    for axis in reversed(axes):
        seen = shifts(emit, x, w, axis)
        x = seen[0] if len(seen) == 1 else emit("ConcatV2", seen, np.int32(len(w.kernel) + 1))
    return x


def patches(emit: Emitter, x: tf.Tensor, w: Window) -> tf.Tensor:
    """The patch that each output position sees: [rows, ...size, c] -> [rows, ...out, taps * c]."""
    return gathered(emit, pad(emit, x, w), w, range(len(w.kernel)))


# ---------------------------------------------------------------------------
# The ways
# ---------------------------------------------------------------------------


def by_patches(emit: Emitter, x: tf.Tensor, dy: tf.Tensor, w: Window) -> tf.Tensor:
    """One product: all taps side by side. Reads dy once, writes the patches once."""
    return _products(emit, x, dy, w, split=0)


def by_strips(emit: Emitter, x: tf.Tensor, dy: tf.Tensor, w: Window) -> tf.Tensor:
    """One product for each tap of the first axis, the taps of the others side by side."""
    return _products(emit, x, dy, w, split=1)


def by_taps(emit: Emitter, x: tf.Tensor, dy: tf.Tensor, w: Window) -> tf.Tensor:
    """One product for each tap: the least memory."""
    return _products(emit, x, dy, w, split=len(w.kernel))


def _products(emit: Emitter, x: tf.Tensor, dy: tf.Tensor, w: Window, split: int) -> tf.Tensor:
    """[n*b, ...size, c], [n*b, ...out, o] -> [n, ...kernel, c, o].

    The taps of the first ``split`` spatial axes have products of their own.
    """
    positions = w.positions(emit)
    depth = w.depth * int(np.prod(w.kernel[split:]))
    b = emit.reshape(dy, [w.n, positions, w.features])
    seen = [gathered(emit, pad(emit, x, w), w, range(split, len(w.kernel)))]
    for axis in range(split):
        seen = [y for z in seen for y in shifts(emit, z, w, axis)]
    products = [
        emit("BatchMatMulV2", emit.reshape(y, [w.n, positions, depth]), b, adj_x=True) for y in seen
    ]  # each [n, taps' * c, o]
    made = products[0] if len(products) == 1 else emit("ConcatV2", products, np.int32(1))
    return emit.reshape(made, [w.n, *w.kernel, w.depth, w.features])


def by_channels(emit: Emitter, x: tf.Tensor, dy: tf.Tensor, w: Window) -> tf.Tensor:
    """For one channel: the filter gradient of a depthwise convolution, rows as its channels."""
    assert isinstance(w.n, int)
    images, numbers = (
        emit.reshape(t, [w.n, w.images, *size, last])
        for t, size, last in ((x, w.size, 1), (dy, w.out, w.features))
    )
    order = np.asarray([1, 2, 3, 0, 4], np.int32)
    images = emit.reshape(emit("Transpose", images, order), [w.images, *w.size, w.n])
    width = w.n * w.features
    numbers = emit.reshape(emit("Transpose", numbers, order), [w.images, *w.out, width])
    pads = [0, 0, *(int(p) for both in w.pads for p in both), 0, 0]  # type: ignore[arg-type]
    made = emit(
        "DepthwiseConv2dNativeBackpropFilter",
        images,
        [*w.kernel, w.n, w.features],
        numbers,
        strides=[1, *w.strides, 1],
        padding="EXPLICIT",
        explicit_paddings=pads,
    )
    made = emit("Transpose", made, np.asarray([2, 0, 1, 3], np.int32))
    return emit.reshape(made, [w.n, *w.kernel, 1, w.features])


def _is_of_channels(w: Window) -> bool:
    known = all(isinstance(p, int) and p >= 0 for both in w.pads for p in both)
    is_plain = len(set(w.strides)) == 1 and set(w.dilations) == {1}
    is_image = len(w.kernel) == 2 and w.depth == 1 and isinstance(w.n, int) and w.n > 0
    is_narrow = w.features <= 4
    return known and is_plain and is_image and is_narrow


Way = Callable[[Emitter, tf.Tensor, tf.Tensor, Window], tf.Tensor]


def choose(w: Window) -> Way:
    """The way for this geometry, by what was measured (decision 0003).

    With few channels a tap is too narrow a product; with many the strips only cost memory. From one
    channel to few there is a kernel of its own, which is slow for many (decision 0003).
    """
    if _is_of_channels(w):
        return by_channels
    return by_taps if w.depth >= 16 else by_strips
