"""Programs of many fields, as users write them, against a loop over their rows.

Each runs over an unknown number of rows with gradients in the body and with a tape around the
map, and by its turn in one mode more. What is not vectorized stands in tables; a test fails when
a gap closes and stays listed.
"""

import re
import warnings

import pytest
import tensorflow as tf

from tests.program_modes import MODES, Mode, body_of, compare, is_float
from tests.programs import ALL
from tf_pfor.errors import FallbackWarning, PforError

# (program, mode): a part of the warning. Some of its ops run in a loop over rows.
LOOPED: dict[tuple[str, str], str] = {}

# (program, mode): a part of the error. The fallback is of no help.
REFUSED: dict[tuple[str, str], str] = {}

# (program, mode): the error of TensorFlow's, and a part of its text, where ours would say more.
FAILS: dict[tuple[str, str], tuple[type[Exception], str]] = {}

# Programs of which XLA cannot compile one row: a part of its error.
NOT_FOR_XLA: dict[str, str] = {}

# Others of which XLA cannot compile the gradient of one row.
NO_XLA_GRADIENTS: dict[str, str] = {}

# (program, mode): the seconds that it took.
LEFT_OUT: dict[tuple[str, str], int] = {}

# Programs of which the first mode always runs; all else is slow.
FAST = frozenset[str]()

ALWAYS = ("gradients", "tape around")
ALWAYS_OF_INTEGERS = ("values", "two maps")


def runs(name: str, mode: str) -> bool:
    """Whether one row of a program can run in a mode."""
    unable = [*NOT_FOR_XLA, *(NO_XLA_GRADIENTS if MODES[mode].tape else ())]
    return (name, mode) not in LEFT_OUT and not (MODES[mode].compiled and name in unable)


def modes_of(turn: int, name: str) -> list[str]:
    """The modes of a program: two, and one by its turn."""
    rows = ALL[name].rows(1).values()
    always = ALWAYS if any(map(is_float, rows)) else ALWAYS_OF_INTEGERS
    others = [mode for mode in MODES if mode not in always and runs(name, mode)]
    return [*(mode for mode in always if runs(name, mode)), others[turn % len(others)]]


def cases():
    names = sorted(ALL)
    chosen = {name: modes_of(turn, name) for turn, name in enumerate(names)}
    listed = {*LOOPED, *REFUSED, *FAILS}
    for name in names:
        modes = chosen[name] + [mode for mode in MODES if (name, mode) in listed]
        for mode in dict.fromkeys(modes):
            fast = name in FAST and mode == modes[0]
            yield pytest.param(name, mode, marks=() if fast else pytest.mark.slow)


@pytest.mark.parametrize(("name", "mode"), cases())
def test_programs(name, mode):
    case, program = (name, mode), ALL[name]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FallbackWarning)
        if case in REFUSED:
            with pytest.raises(PforError, match=re.escape(REFUSED[case])):
                compare(program, MODES[mode], fallback=True)
        elif case in FAILS:
            error, text = FAILS[case]
            with pytest.raises(error, match=re.escape(text)):
                compare(program, MODES[mode], fallback=True)
        else:
            compare(program, MODES[mode], fallback=case in LOOPED)
    if case in LOOPED:
        assert any(LOOPED[case] in str(w.message) for w in caught), "it is vectorized now"


@pytest.mark.slow
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
