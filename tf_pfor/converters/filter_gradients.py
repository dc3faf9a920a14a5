"""Per-example filter gradients: dF_i from x_i and dy_i, both different in every iteration.

    dF_i[k, c, o] = sum over images b and positions p of x_i[b, p * s + k * d, c] * dy_i[b, p, o]

Three ways to compute it with no loop over the rows: they differ in how much of the filter goes into
one product. ``choose`` picks one from the static shapes by what ``benchmarks/filter_gradients.py``
measured (docs/decisions/0003-filter-gradients.md, with the ways that lost).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from tf_pfor.emit import Dim, Emitter
from tf_pfor.errors import CannotVectorize
from tf_pfor.values import dims


@dataclasses.dataclass(frozen=True, slots=True)
class Window:
    """The geometry of a convolution over any number of spatial axes, channels last.

    Attributes:
      n: the loop length.
      images: images in one iteration.
      size: the spatial input shape.
      kernel: the spatial filter shape.
      out: the spatial output shape.
      strides, dilations: one for each spatial axis.
      pads: (before, after) for each spatial axis.
      depth: input channels.
      features: output channels.
    """

    n: Dim
    images: Dim
    size: tuple[int, ...]
    kernel: tuple[int, ...]
    out: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    depth: int
    features: int

    @classmethod
    def of(
        cls,
        *,
        n: Dim,
        images: Dim,
        size: tuple[int, ...],
        kernel: tuple[int, ...],
        strides: tuple[int, ...],
        dilations: tuple[int, ...],
        padding: str,
        explicit: Sequence[tuple[int, int]] = (),
        depth: int,
        features: int,
    ) -> Window:
        """Works out the zeros around the image and the output shape, as the kernels do."""
        pads: list[tuple[int, int]] = []
        out: list[int] = []
        for i, (x, k, s, d) in enumerate(zip(size, kernel, strides, dilations, strict=True)):
            reach = (k - 1) * d + 1
            if padding == "SAME":
                total = max((-(-x // s) - 1) * s + reach - x, 0)
                pads.append((total // 2, total - total // 2))
            else:
                pads.append(explicit[i] if padding == "EXPLICIT" else (0, 0))
            out.append((x + sum(pads[-1]) - reach) // s + 1)
        if min((*size, *kernel, *out), default=1) < 1:
            raise CannotVectorize("an empty image, filter or output")
        return cls(
            n, images, size, kernel, tuple(out), strides, dilations, tuple(pads), depth, features
        )

    @property
    def taps(self) -> int:
        """Positions in the filter."""
        return int(np.prod(self.kernel))

    @property
    def padded(self) -> tuple[int, ...]:
        """The spatial shape with the zeros around it."""
        return tuple(s + lo + hi for s, (lo, hi) in zip(self.size, self.pads))

    def positions(self, emit: Emitter) -> Dim:
        """Positions in the output, of all images of one iteration."""
        return times(emit, self.images, int(np.prod(self.out)))

    def transposed(self) -> tuple[tuple[int, ...], Window]:
        """The convolution that is the gradient with respect to the input.

        Returns:
          The shape of dy spread out by the strides, and the window over it: with the filter
          reversed, dx[q] = sum over k of spread[q + lo - k * d] * F[k].
        """
        spread = tuple(
            min(o * s, x + lo)
            for o, s, x, (lo, _) in zip(self.out, self.strides, self.size, self.pads)
        )
        pads: list[tuple[int, int]] = []
        for x, y, k, d, (lo, _) in zip(self.size, spread, self.kernel, self.dilations, self.pads):
            reach = (k - 1) * d
            pads.append((reach - lo, x + lo - y))
        if min(p for pair in pads for p in pair) < 0:
            raise CannotVectorize("explicit padding that is wider than the filter")
        back = dataclasses.replace(
            self, size=spread, out=self.size, strides=(1,) * len(spread), pads=tuple(pads),
            depth=self.features, features=self.depth,
        )  # fmt: skip
        return spread, back


def times(emit: Emitter, n: Dim, k: int) -> Dim:
    """N * k."""
    if isinstance(n, int):
        return n * k
    return n if k == 1 else emit("Mul", n, np.int32(k))


def pad(emit: Emitter, x: tf.Tensor, w: Window) -> tf.Tensor:
    """Zeros around the spatial axes, to a multiple of each stride.

    [rows, ...size, c] -> [rows, ...blocks * stride, c].
    """
    pads = [(lo, hi + -p % s) for (lo, hi), p, s in zip(w.pads, w.padded, w.strides, strict=True)]
    if not any(map(any, pads)):
        return x
    return emit("Pad", x, np.asarray([(0, 0), *pads, (0, 0)], np.int32))


def shifts(emit: Emitter, x: tf.Tensor, w: Window, axis: int) -> list[tf.Tensor]:
    """For each tap of one spatial axis what it sees: that axis shrinks from padded to out.

    A slice with a stride is ten times slower than one without: the axis is split into
    [blocks, stride], and what a tap sees is one phase of a run of blocks.
    """
    stride, out, dilation = w.strides[axis], w.out[axis], w.dilations[axis]
    blocks = -(-w.padded[axis] // stride)
    at = axis + 1
    shape = dims(x)
    assert shape is not None
    full = [emit.dim(x, i) for i in range(len(shape))]
    if stride > 1:
        x = emit.reshape(x, [*full[:at], blocks, stride, *full[at + 1 :]])
    rank = len(full) + (stride > 1)
    seen: list[tf.Tensor] = []
    for tap in range(w.kernel[axis]):
        block, phase = divmod(tap * dilation, stride)
        if stride == 1 and block == 0 and out == blocks:
            seen.append(x)
            continue
        begin, end = np.zeros(rank, np.int32), np.zeros(rank, np.int32)
        begin[at], end[at] = block, block + out
        used = 1 << at
        if stride > 1:
            begin[at + 1], end[at + 1] = phase, phase + 1
            used |= 1 << (at + 1)
        others = (1 << rank) - 1 - used  # all of the other axes
        seen.append(
            emit(
                "StridedSlice", x, begin, end, np.ones(rank, np.int32), begin_mask=others,
                end_mask=others, shrink_axis_mask=used & ~(1 << at),
            )
        )  # fmt: skip
    return seen


def gathered(emit: Emitter, x: tf.Tensor, w: Window, axes: Sequence[int]) -> tf.Tensor:
    """The taps of some spatial axes side by side in the channels, the first axis outermost.

    One axis after the other, the last first: as many slices as the sum of the filter's sides,
    not their product, and longer runs of memory.
    """
    for axis in reversed(axes):
        seen = shifts(emit, x, w, axis)
        x = seen[0] if len(seen) == 1 else emit("ConcatV2", seen, np.int32(len(w.kernel) + 1))
    return x


def patches(emit: Emitter, x: tf.Tensor, w: Window) -> tf.Tensor:
    """What each output position sees: [rows, ...size, c] -> [rows, ...out, taps * c]."""
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


Way = Callable[[Emitter, tf.Tensor, tf.Tensor, Window], tf.Tensor]


def choose(w: Window) -> Way:
    """The way for this geometry, by what was measured (decision 0003).

    With few channels a tap is too narrow a product; with many the strips only cost memory.
    """
    return by_taps if w.depth >= 16 else by_strips
