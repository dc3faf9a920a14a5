"""Cases: samples, programs and cells, each a map whose graph is emitted but not run.

A sample is named as its tests name it, ``sample:MatMul``; the graph has a map for each set of its
inputs that may vary. A program is named with its mode: ``program:beam_search, tape around``.
A cell of the table of contexts is named by its body and its context: ``cell:bucketize, x[:k]``.
"""

from __future__ import annotations

import functools
import itertools
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from tests import harness, program_modes
from tests.emitted.canonical import canonical
from tests.programs import ALL as PROGRAMS
from tests.sample import Sample
from tests.samples import ALL as SAMPLES
from tf_pfor.core.errors import FallbackWarning
from tools.contexts.bodies import BODIES, Body
from tools.contexts.contexts import Context, contexts

# Those that can be traced as a whole.
CONTEXTS = (
    "chunks of ragged rows",
    "in a branch",
    "map in map",
    "map in map, x[:k]",
    "ragged inner axis",
    "ragged rows",
    "sparse rows",
    "tape around, ragged",
    "tape in body, ragged",
    "vmap, axis 1",
    "x[:k]",
)


class Emitted(NamedTuple):
    """The graph of a case in canonical form, and the seconds to emit it and to make the form."""

    lines: list[str]
    emission: float
    form: float


def cases() -> dict[str, Callable[[], Any]]:
    """Functions that emit: each traces a map anew and gives the ``ConcreteFunction``."""
    found: dict[str, Callable[[], Any]] = {
        f"sample:{s.name}": functools.partial(_of_sample, s) for s in SAMPLES
    }
    for program in PROGRAMS.values():
        for name, mode in program_modes.MODES.items():
            case = functools.partial(_of_program, program, mode)
            found[f"program:{program.name}, {name}"] = case
    for body, name in itertools.product(BODIES, CONTEXTS):
        found[f"cell:{body.name}, {name}"] = functools.partial(_of_cell, body, contexts()[name])
    return found


def emitted(case: Callable[[], Any]) -> Emitted:
    """Emits a case; ops that are looped in it are no news here."""
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        function = case()
    middle = time.perf_counter()
    lines = canonical(function)
    return Emitted(lines, middle - begin, time.perf_counter() - middle)


def _of_sample(sample: Sample) -> Any:
    runs = [harness.Run(sample, subset, "loop") for subset in sample.subsets()]
    return harness.function_of(runs, 3, sample.unknown)


def _of_program(program: Any, mode: program_modes.Mode) -> Any:
    function, _ = program_modes.map_of(program, mode, fallback=True)
    return function.get_concrete_function()


def _of_cell(body: Body, context: Context) -> Any:
    row, _ = body.make()
    run = tf.function(lambda: context.run(row, {"fallback": "loop"}), autograph=False)
    return run.get_concrete_function()
