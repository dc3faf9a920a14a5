"""Regions of images that are drawn: each row draws its own, by the law of the kernel."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests.comparisons import strict_map, value_and_gradient

IMAGES = tf.random.stateless_normal([5, 2, 7, 9, 3], [1, 2])
RATIO = [1.0, 1.44, 1.7, 1.0]


@pytest.mark.parametrize(
    ("kind", "pseudo_random", "overlapping"),
    list(itertools.product(["Avg", "Max"], [False, True], [False, True])),
)
def test_fractional_pool(kind, pseudo_random, overlapping):
    op = getattr(tf.raw_ops, f"Fractional{kind}Pool")

    def body(x):
        return list(
            op(value=x, pooling_ratio=RATIO, pseudo_random=pseudo_random, overlapping=overlapping)
        )

    found, rows, columns = strict_map(body, IMAGES)
    assert found.shape[1:] == body(IMAGES[0])[0].shape
    reduce = np.max if kind == "Max" else np.mean
    images, rows, columns = IMAGES.numpy(), rows.numpy(), columns.numpy()
    for i, a, b in itertools.product(range(5), range(4), range(5)):
        window = images[i, :, rows[i, a] : rows[i, a + 1] + overlapping,
                        columns[i, b] : columns[i, b + 1] + overlapping]  # fmt: skip
        np.testing.assert_allclose(found[i, :, a, b], reduce(window, (1, 2)), 1e-4, 1e-5)
    assert (rows[:, -1] == 7).all()
    assert (columns[:, -1] == 9).all()
    ends = strict_map(lambda _: body(IMAGES[0])[1], tf.zeros([3000]))
    steps = ends[:, 1:] - ends[:, :-1]
    assert set(np.unique(steps)) == {1, 2}
    one = tf.function(body)
    wanted = np.stack([one(IMAGES[0])[1] for _ in range(600)])
    np.testing.assert_allclose(np.mean(ends, 0), np.mean(wanted, 0), atol=0.12)


def test_fractional_pool_of_a_seed_draws_the_same_regions():
    def body(x):
        return list(tf.nn.fractional_max_pool(x, 1.5, seed=3))

    found, one = strict_map(body, IMAGES), tf.function(body)
    for i in range(5):
        for got, want in zip(found, one(IMAGES[i])):
            np.testing.assert_array_equal(got[i], want)


@pytest.mark.parametrize("own", [{}, {"seed": 1, "seed2": 2}], ids=["chance", "seeds"])
def test_rows_and_columns_are_drawn_apart(own):
    def body(x):
        ratio = [1.0, 1.5, 1.5, 1.0]
        _, rows, columns = tf.raw_ops.FractionalMaxPool(value=x, pooling_ratio=ratio, **own)
        return rows, columns

    try:
        tf.random.set_seed(1)
        rows, columns = strict_map(body, tf.zeros([400, 1, 8, 8, 1]))
    finally:
        tf.random.set_seed(None)
    assert 0.03 < np.mean((rows == columns).numpy().all(1)) < 0.25  # 10 ways to draw each


def test_fractional_pool_has_gradients_and_stands_in_maps_of_maps():
    pooled, found = value_and_gradient(
        lambda: strict_map(lambda x: tf.nn.fractional_max_pool(x, 1.5)[0], IMAGES), IMAGES
    )
    assert np.sum(found) == pytest.approx(np.size(pooled))
    pairs = tf.reshape(IMAGES[:4], [2, 2, *IMAGES.shape[1:]])
    nested = strict_map(
        lambda xs: strict_map(lambda x: tf.nn.fractional_avg_pool(x, [1, 1.5, 1.5, 1])[0], xs),
        pairs,
    )
    assert nested.shape == [2, 2, 2, 4, 6, 3]


BOXES = np.float32([[[0.1, 0.2, 0.7, 0.8], [0.0, 0.0, 0.3, 0.3]]])
CROPS = {
    "boxes": ([37, 53, 3], BOXES, {"min_object_covered": 0.3}),
    "no boxes": ([20, 100, 3], np.zeros([1, 0, 4], np.float32), {
        "use_image_if_no_bounding_boxes": True, "area_range": [0.3, 0.9],
        "aspect_ratio_range": [0.5, 2.0],
    }),
    "often in vain": ([8, 8, 3], BOXES[:, :1], {"min_object_covered": 0.9, "max_attempts": 5}),
}  # fmt: skip


@pytest.mark.parametrize("name", CROPS)
def test_distorted_box(name):
    size, boxes, options = CROPS[name]

    def body(_):
        return list(tf.image.sample_distorted_bounding_box(size, boxes, **options))

    found = strict_map(body, tf.zeros([6000]))
    one = tf.function(body)
    wanted = [np.stack(c) for c in zip(*[one(tf.zeros([])) for _ in range(2000)])]
    for got, want in zip(found, wanted):
        assert got.shape[1:] == want.shape[1:]
        assert got.dtype == want.dtype
        spread = np.std(want, 0) + 1e-3
        np.testing.assert_allclose(np.mean(got, 0), np.mean(want, 0), atol=0.12 * spread.max())
        np.testing.assert_allclose(np.std(got, 0), np.std(want, 0), atol=0.12 * spread.max())


def test_distorted_box_refuses_boxes_beyond_the_image():
    with pytest.raises(tf.errors.InvalidArgumentError, match="must be in"):
        strict_map(
            lambda x: list(tf.image.sample_distorted_bounding_box([9, 9, 3], x)),
            tf.constant(2.0 * BOXES[None]),
        )


@pytest.mark.parametrize("count", [0, 1, 2])
def test_distorted_box_with_any_number_of_boxes(count):
    """An image without boxes has the whole image as its object, if that is allowed."""

    @tf.function(input_signature=[tf.TensorSpec([None, 1, None, 4])])
    def crops(boxes):
        def body(x):
            return tf.image.sample_distorted_bounding_box(
                [30, 30, 3], x, min_object_covered=0.5, use_image_if_no_bounding_boxes=True,
                area_range=[0.02, 0.3],
            )[2]  # fmt: skip

        return strict_map(body, boxes)

    boxes = np.repeat(BOXES[None, :, :count] * 0.3, 400, 0)
    crop = crops(boxes).numpy()[:, 0, 0]
    if count == 0:  # no crop of this area covers half of the image
        np.testing.assert_allclose(crop, np.tile(np.float32([0, 0, 1, 1]), [400, 1]))
        return
    sides = np.minimum(crop[:, None, 2:], boxes[:, 0, :, 2:]) - np.maximum(
        crop[:, None, :2], boxes[:, 0, :, :2]
    )
    covered = np.prod(np.maximum(sides, 0), -1) / np.prod(
        boxes[:, 0, :, 2:] - boxes[:, 0, :, :2], -1
    )
    assert (np.max(covered, 1) > 0.3).mean() > 0.95


def test_distorted_box_of_no_boxes_is_refused_when_it_runs():
    @tf.function(input_signature=[tf.TensorSpec([None, 1, None, 4])])
    def crops(boxes):
        return strict_map(lambda x: tf.image.sample_distorted_bounding_box([9, 9, 3], x)[0], boxes)

    assert crops(np.zeros([0, 1, 0, 4], np.float32)).shape == [0, 3]
    with pytest.raises(tf.errors.InvalidArgumentError, match="No bounding boxes provided"):
        crops(np.zeros([2, 1, 0, 4], np.float32))
