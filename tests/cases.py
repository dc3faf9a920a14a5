"""Tests made of a function of a row: rows of tables, refusals and warnings."""

import functools
import inspect
import itertools

import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import compare, mapped


def grid(**values):
    """pytest.mark.parametrize for each name; ids have the values in this order."""

    def parametrized(f):
        for name, of_name in values.items():
            f = pytest.mark.parametrize(name, of_name)(f)
        return f

    return parametrized


def table(rows):
    """A test of rows ``{mode: (check, *lists)}``: ``check`` of one of each list, in all ways."""

    def test(mode, args):
        rows[mode][0](*args)

    cases = [(m, args) for m, (_, *lists) in rows.items() for args in itertools.product(*lists)]
    return pytest.mark.parametrize(("mode", "args"), cases, ids=_words)(test)


def _words(x):
    """A mode, or the names of what it is checked with."""
    named = lambda a: getattr(a, "__name__", str(a))
    return "-".join(map(named, x)) if isinstance(x, tuple) else x


def errors(*rows, error=None):
    """A test of calls that raise. A row is a call, its error unless all have ``error``, a text."""
    rows = rows if error is None else [(call, error, text) for call, text in rows]

    @pytest.mark.parametrize(("call", "kind", "text"), rows)
    def test(call, kind, text):
        with pytest.raises(kind, match=text):
            call()

    return test


def refuse(one, *args, match, error=tf_pfor.NotVectorizableError, function=None, **options):
    """A map of ``one`` raises an error; ``function`` has options of a tf.function around it."""
    run = lambda *rows: mapped(one, *rows, **options)
    with pytest.raises(error, match=match):
        (run if function is None else tf.function(run, autograph=False, **function))(*args)


def warn(one, *args, match, by=None, **options):
    """A map of ``one`` warns of a loop over rows, and has the values of one row after another."""
    with pytest.warns(tf_pfor.FallbackWarning, match=match):
        (by or compare)(one, *args, fallback="loop", **options)


def case(check, *args, **options):
    """Makes a test of the function of a row below: ``check(function, *args, **options)``.

    The test has its name and its marks. Parameters of the test come before the row if the function
    has them. The others are options of ``check``. Options that nobody gives are fixtures.
    """

    def test_of(f):
        marks = [m for m in getattr(f, "pytestmark", []) if m.name == "parametrize"]
        names = [p for m in marks for p in _names(m.args[0])]
        first = [p for p in inspect.signature(f).parameters if p in names]
        needed = inspect.signature(check).parameters.values()
        fixtures = [p.name for p in needed if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
        names += [p for p in fixtures if p not in {*options, *names}]

        def test(**given):
            of_row = [given.pop(p) for p in first]
            one = (lambda *row: f(*of_row, *row)) if of_row else f
            check(one, *args, **options, **given)

        functools.update_wrapper(test, f)
        del test.__wrapped__
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        test.__signature__ = inspect.Signature([inspect.Parameter(p, kind) for p in names])
        return test

    return test_of


def _names(of_marks):
    return of_marks.replace(",", " ").split() if isinstance(of_marks, str) else of_marks
