"""Programs of many fields, as users write them, against a loop over their rows.

Each runs in each mode that one row of it can run in. What is not vectorized stands in tables; a
test fails when a gap closes and stays listed.
"""

import re
import warnings

import pytest
import tensorflow as tf

from tests.program_modes import MODES, Mode, body_of, compare
from tests.programs import ALL
from tf_pfor.core.errors import FallbackWarning, PforError

BRANCHES = "give results of different shapes, (6, 4) and (3, 4)"
OPTIONAL = "a loop changes an optional"
CARRIED = "run in a sequential loop"  # ops of its gradient, not the loop itself
SLICE = "the length of the slice may differ between iterations"
STATE = "a loop that changes state, with trip counts that differ, inside another map"
ITEMS = "changes from trip to trip, and a gradient, or a TensorArray, keeps each"

# (program, mode): a part of the warning. Some of its ops run in a loop over rows.
LOOPED = {
    ("growing_attention_by_row", "gradients"): ITEMS,
    ("growing_attention_by_row", "gradients in two maps"): ITEMS,
    ("growing_attention_by_row", "no rows"): ITEMS,
    ("growing_attention_by_row", "one row"): ITEMS,
    ("growing_vector_by_row", "gradients"): CARRIED,
    ("growing_vector_by_row", "no rows"): CARRIED,
    ("growing_vector_by_row", "one row"): CARRIED,
    ("map_to_ragged", "gradients"): SLICE,
    ("map_to_ragged", "no rows"): SLICE,
    ("map_to_ragged", "one row"): SLICE,
    ("map_to_ragged", "gradients in two maps"): SLICE,
    ("map_to_ragged", "tape around"): SLICE,
    ("map_to_ragged", "two maps"): SLICE,
    ("map_to_ragged", "values"): SLICE,
    ("optional", "gradients"): OPTIONAL,
    ("optional", "gradients in two maps"): OPTIONAL,
    ("optional", "no rows"): OPTIONAL,
    ("optional", "one row"): OPTIONAL,
    ("optional", "two maps"): OPTIONAL,
    ("optional", "values"): OPTIONAL,
}

STRINGS = "Under jit_compile the body reads"
GROWS = "under jit_compile a TensorArray of size 0 does not grow"

# (program, mode): a part of the error. The fallback is of no help.
REFUSED = {
    ("beam_search", "compiled gradients"): BRANCHES,
    ("greedy_decoding", "compiled"): GROWS,
    ("growing_attention", "compiled"): GROWS,
    ("growing_attention_by_row", "compiled"): GROWS,
    ("optional", "tape around"): "makes lists in a loop over rows, which has no gradient",
    ("reversed_text", "compiled"): STRINGS,
    ("shift_reduce_parser", "compiled gradients"): "lists whose length is not known before running",
    ("words_of_a_sentence", "compiled"): STRINGS,
}

INVALID = tf.errors.InvalidArgumentError

GROWN = "A variable of the loop .* changes its shape"

# (program, mode): an error when it runs: ours, or of TensorFlow where ours should come first.
FAILS = {
    ("growing_vector_by_row", "gradients in two maps"): (INVALID, GROWN),
    ("growing_vector_by_row", "two maps"): (INVALID, GROWN),
    ("shift_reduce_parser", "compiled, tape around"): (INVALID, "with op ScatterNd must be"),
}

UNKNOWN_OPS = "Detected unsupported operations"
LIST_SIZE = "XLA compilation requires a fixed tensor list size"
RANGE = "with op Range must be a compile-time constant"

# Programs of which XLA cannot compile one row: a part of its error.
NOT_FOR_XLA = {
    "breadth_first_search": "Slice dim size 1 greater than dynamic slice dimension: 0",
    "chain_of_lookups": UNKNOWN_OPS,
    "growing_vector": "Input and output shapes of loop body do not match",
    "growing_vector_by_row": "Input and output shapes of loop body do not match",
    "gru_with_attention": RANGE,
    "map_to_ragged": UNKNOWN_OPS,
    "optional": UNKNOWN_OPS,
    "reversed_text": UNKNOWN_OPS,
    "sparse_tensor": UNKNOWN_OPS,
}

# Others of which XLA cannot compile the gradient of one row.
NO_XLA_GRADIENTS = {
    "bubble_sort": LIST_SIZE,
    "checked_growth": LIST_SIZE,
    "gauss_newton": LIST_SIZE,
    "golden_section": LIST_SIZE,
    "greedy_decoding": LIST_SIZE,
    "growing_attention": UNKNOWN_OPS,
    "growing_attention_by_row": UNKNOWN_OPS,
    "insertion_sort": LIST_SIZE,
    "integer_powers": LIST_SIZE,
    "lbfgs": LIST_SIZE,
    "line_search": LIST_SIZE,
    "masked_attention": LIST_SIZE,
    "no_items": LIST_SIZE,
    "ragged_tensor": LIST_SIZE,
    "relaxation": LIST_SIZE,
    "stack_machine": LIST_SIZE,
    "tangent_of_a_network": LIST_SIZE,
}

# Others that are not compiled: XLA draws other numbers, or ends the process, also of one row.
OTHERWISE_UNDER_XLA = ("hamiltonian_monte_carlo", "rejection_sampling", "words_of_a_sentence")


def runs(name: str, mode: str) -> bool:
    """Whether one row of a program can run in a mode."""
    unable = {*NOT_FOR_XLA, *OTHERWISE_UNDER_XLA, *(NO_XLA_GRADIENTS if MODES[mode].tape else ())}
    return not (MODES[mode].compiled and name in unable)


CASES = [(name, mode) for name in sorted(ALL) for mode in MODES if runs(name, mode)]


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_programs(name, mode):
    case, program = (name, mode), ALL[name]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FallbackWarning)
        if case in REFUSED:
            with pytest.raises(PforError, match=re.escape(REFUSED[case])):
                compare(program, MODES[mode], fallback=True)
        elif case in FAILS:
            error, text = FAILS[case]
            with pytest.raises(error, match=text):
                compare(program, MODES[mode], fallback=True)
        else:
            compare(program, MODES[mode], fallback=case in LOOPED)
    if case in LOOPED:
        assert any(LOOPED[case] in str(w.message) for w in caught), "it is vectorized now"


@pytest.mark.parametrize(
    ("name", "tape", "text"),
    [(name, "", text) for name, text in NOT_FOR_XLA.items()]
    + [(name, "body", text) for name, text in NO_XLA_GRADIENTS.items()],
)
def test_xla_cannot_compile_one_row(name, tape, text):
    body, _ = body_of(ALL[name], Mode(tape))
    row = {k: x[0] for k, x in ALL[name].rows(1).items()}
    with pytest.raises(tf.errors.OpError, match=re.escape(text)):
        tf.function(body, jit_compile=True)(row)
