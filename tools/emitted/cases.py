"""Cases: samples and programs of the tests, each a map whose graph is emitted but not run.

A sample is named as its tests name it, ``sample:MatMul``; the graph has a map for each set of its
inputs that may vary. A program is named with its mode: ``program:beam_search, tape around``.
"""

from __future__ import annotations

import functools
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

from tests import harness, program_modes
from tests.programs import ALL as PROGRAMS
from tests.sample import Sample
from tests.samples import ALL as SAMPLES
from tf_pfor.core.errors import FallbackWarning
from tools.emitted.canonical import canonical


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
