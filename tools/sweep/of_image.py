"""Sweep of tf.image."""

from __future__ import annotations

from tools.sweep.cases import Case, call, each, floats, integers, positive

_IMAGE = positive(6, 6, 3)
IMAGE: list[Case] = [
    *each("tf.image",
        "rgb_to_grayscale rgb_to_hsv hsv_to_rgb rgb_to_yiq rgb_to_yuv yiq_to_rgb yuv_to_rgb "
        "flip_left_right flip_up_down rot90 transpose per_image_standardization", _IMAGE),
    call("tf.image.image_gradients", positive(1, 6, 6, 3)),
    call("tf.image.sobel_edges", positive(1, 6, 6, 3)),
    call("tf.image.grayscale_to_rgb", positive(6, 6, 1)),
    call("tf.image.total_variation", _IMAGE),
    *[call(f"tf.image.{k}", _IMAGE, 0.3)
        for k in ("adjust_brightness", "adjust_contrast", "adjust_gamma", "adjust_hue",
        "adjust_saturation", "central_crop")],
    *[call(f"tf.image.{k}", _IMAGE, positive(), label="of the row")
        for k in ("adjust_brightness", "adjust_contrast", "adjust_gamma", "adjust_hue",
        "adjust_saturation")],
    call("tf.image.crop_and_resize", positive(1, 6, 6, 3), positive(2, 4), [0, 0], [3, 3]),
    call("tf.image.crop_to_bounding_box", _IMAGE, 1, 1, 3, 3),
    call("tf.image.crop_to_bounding_box", _IMAGE, integers(high=3), integers(high=3), 3, 3,
        label="of the row"),
    call("tf.image.pad_to_bounding_box", _IMAGE, 1, 1, 9, 9),
    call("tf.image.pad_to_bounding_box", _IMAGE, integers(high=3), integers(high=3), 9, 9,
        label="of the row"),
    call("tf.image.draw_bounding_boxes", positive(1, 6, 6, 3), positive(1, 2, 4),
        [[1.0, 0.0, 0.0]]),
    call("tf.image.extract_glimpse", positive(1, 6, 6, 3), [3, 3], floats(1, 2), noise="zero"),
    call("tf.image.extract_patches", positive(1, 6, 6, 3), [1, 2, 2, 1], [1, 2, 2, 1], [1, 1, 1, 1],
        "VALID"),
    call("tf.image.combined_non_max_suppression", positive(1, 4, 1, 4), positive(1, 4, 1), 2, 3),
    call("tf.image.non_max_suppression", positive(4, 4), positive(4), 2),
    call("tf.image.non_max_suppression_with_scores", positive(4, 4), positive(4), 2),
    call("tf.image.non_max_suppression_overlaps", positive(4, 4), positive(4), 2),
    call("tf.image.non_max_suppression_padded", positive(1, 4, 4), positive(1, 4), 2,
        pad_to_max_output_size=True),
    call("tf.image.psnr", _IMAGE, positive(6, 6, 3), 1.0),
    call("tf.image.ssim", positive(12, 12, 3), positive(12, 12, 3), 1.0),
    call("tf.image.ssim_multiscale", positive(32, 32, 1), positive(32, 32, 1), 1.0,
        power_factors=(0.5, 0.5), filter_size=3),
    *[call("tf.image.resize", _IMAGE, [4, 4], k, label=k)
        for k in ("bilinear", "nearest", "bicubic", "area", "lanczos3", "gaussian",
        "mitchellcubic")],
    call("tf.image.resize", _IMAGE, [4, 4], antialias=True, label="antialias"),
    call("tf.image.resize_with_pad", _IMAGE, 4, 5),
    call("tf.image.resize_with_crop_or_pad", _IMAGE, 4, 9),
    call("tf.image.stateless_random_flip_left_right", _IMAGE, integers(2)),
    call("tf.image.stateless_random_brightness", _IMAGE, 0.2, integers(2)),
    call("tf.image.stateless_random_contrast", _IMAGE, 0.2, 0.5, integers(2)),
    call("tf.image.stateless_random_hue", _IMAGE, 0.2, integers(2)),
    call("tf.image.stateless_random_saturation", _IMAGE, 0.2, 0.5, integers(2)),
    call("tf.image.stateless_random_crop", _IMAGE, [3, 3, 3], integers(2)),
    call("tf.image.stateless_sample_distorted_bounding_box", [6, 6, 3],
        positive(1, 1, 4, low=0.0, high=0.3), integers(2)),
    call("tf.image.random_flip_left_right", _IMAGE, random=True),
    call("tf.image.random_brightness", _IMAGE, 0.2, random=True),
    call("tf.image.random_crop", _IMAGE, [3, 3, 3], random=True),
    call("tf.image.sample_distorted_bounding_box", [6, 6, 3], positive(1, 1, 4, low=0.0, high=0.3),
        min_object_covered=0.1, random=True),
    call("tf.image.generate_bounding_box_proposals", positive(1, 2, 2, 1), positive(1, 2, 2, 4),
        positive(1, 5), positive(2, 2, 1, 4)),
]  # fmt: skip
