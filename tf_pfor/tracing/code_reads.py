"""Names that a code object reads from outside: globals, closure cells, modules by attribute."""

from __future__ import annotations

import dataclasses
import dis
import functools
import types

Chain = tuple[str, ...]
"""A name, and the attributes that are read from it one after the other."""

# Names whose use at trace time cannot be seen in values: effects and hidden state.
_EFFECTS = frozenset(
    {
        "__code__",
        "__globals__",
        "_getframe",
        "f_globals",
        "f_locals",
        "get_global_generator",
        "numpy_function",
        "py_func",
        "py_function",
        "set_global_generator",
        "set_random_seed",
        "set_seed",
    }
)
_SIZES = frozenset({"_shape", "_shape_tuple", "get_shape", "int_shape", "shape", "shape_as_list"})
_OF_VALUES = frozenset(
    {"constant_value", "get_static_value", "getattr", "len", "type_spec_from_value"}
)
_ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_GLOBALS = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})
_CELLS = frozenset({"LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"})


@dataclasses.dataclass(frozen=True, slots=True)
class Reads:
    """The names that a function's code, and the code nested in it, may read.

    Attributes:
      names: global (or builtin) names with the attributes read from them.
      cells: the same for closure cells.
      problem: the reason why a trace of this code cannot be kept; "" if there is none.
      asks_sizes: whether it may ask for the static shape of a tensor. ``tf.shape`` does not.
    """

    names: tuple[Chain, ...]
    cells: tuple[Chain, ...]
    problem: str
    asks_sizes: bool


@functools.lru_cache(maxsize=2048)
def reads(code: types.CodeType) -> Reads:
    """Analyses the bytecode of a function."""
    names: dict[Chain, None] = {}
    cells: dict[Chain, None] = {}
    problems: list[str] = []
    _collect(code, frozenset(code.co_freevars), names, cells, problems)
    return Reads(tuple(names), tuple(cells), problems[0] if problems else "", _asks_sizes(code))


def _asks_sizes(code: types.CodeType) -> bool:
    of_tensorflow = False  # whether the step before gave the module
    for step in dis.get_instructions(code):
        if step.opname == "EXTENDED_ARG":
            continue
        if step.argval in _OF_VALUES and step.opname in _ATTRIBUTES | _GLOBALS:
            return True
        if step.opname in _ATTRIBUTES and step.argval in _SIZES and not of_tensorflow:
            return True
        of_tensorflow = step.opname in _GLOBALS | _CELLS and step.argval in ("tf", "tensorflow")
    return any(_asks_sizes(x) for x in code.co_consts if isinstance(x, types.CodeType))


def _collect(
    code: types.CodeType,
    free: frozenset[str],
    names: dict[Chain, None],
    cells: dict[Chain, None],
    problems: list[str],
) -> None:
    where = f"{code.co_name} ({code.co_filename}:{code.co_firstlineno})"
    problems += [f"{where} uses {name}" for name in code.co_names if name in _EFFECTS]
    found: dict[Chain, None] | None = None
    chain: Chain = ()
    for step in dis.get_instructions(code):
        if step.opname == "EXTENDED_ARG":
            continue
        if step.opname in _ATTRIBUTES and chain:
            chain = (*chain, step.argval)
            continue
        if found is not None:
            found[chain] = None
        found, chain = None, ()
        if step.opname in _GLOBALS:
            found, chain = names, (step.argval,)
        elif step.opname in _CELLS and step.argval in free:
            found, chain = cells, (step.argval,)
        elif step.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            problems.append(f"{where} assigns the global {step.argval}")
        elif step.opname in ("STORE_DEREF", "DELETE_DEREF") and step.argval in free:
            problems.append(f"{where} assigns {step.argval} of the function around it")
        elif step.opname == "IMPORT_NAME":
            problems.append(f"{where} imports {step.argval}")
    if found is not None:
        found[chain] = None
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            _collect(inner, free.intersection(inner.co_freevars), names, cells, problems)
