"""Every op sample with invariants of several origins, at several sites of the call, pairwise.

For every topic each pair of an origin and a site occurs, spread over its samples. Which cells
there are follows from the samples alone.
"""

import functools
import re

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests import call_sites, harness
from tests.expectations import LOOPED, SITES_FAIL, SITES_LOOPED
from tests.samples import ALL, MODULES, TOPICS
from tf_pfor.core import nests

# What their samples do changes state, or is random: they run with another invariant beside them.
STATEFUL = ("debug", "generator", "random", "variables", "variables_scatter")
# Keras has no inputs of these dtypes.
NOT_FOR_KERAS = ("complex64", "complex128", "object", "string")
# Nor outputs of bytes in a sum.
TEXT_OUT = ("Encode", "SerializeTensor")
# XLA compiles what these become, not the ops themselves.
NOT_KEPT_BY_XLA = ("TensorListConcat", "TensorListConcatV2")
# In a tf.data map of batches of unknown size these kernels of TensorFlow give zeros now and then. A
# batch that is written by hand has the zeros, too.
RACES = "FusedBatchNormGrad"
# In a tf.data map these kernels of oneDNN fail for one example as well.
NOT_IN_DATASETS = ("QuantizedConv2D", "QuantizedDepthwiseConv2D")
SAMPLES = {s.name: s for s in ALL}
TOPIC_OF = {s.name: topic for topic, samples in TOPICS.items() for s in samples}


@functools.cache
def dtypes_of(name):
    return {tf.as_dtype(np.asarray(a).dtype).name for a in SAMPLES[name].arguments((), 0)}


def fits(name, origin, site):
    """Whether a sample can be asked for at a site with invariants of an origin."""
    s = SAMPLES[name]
    if site == "compiled":
        return s.xla
    if site in call_sites.UNKNOWN_N and not s.unknown:
        return False
    if site == "dataset" and name.startswith(RACES):
        return False
    if site == "dataset" and TOPIC_OF[name] == "quantized" and name.startswith(NOT_IN_DATASETS):
        return False
    if site in ("fit", "functional"):
        if TOPIC_OF[name] == "strings" or name.startswith(TEXT_OUT):
            return False
        return not dtypes_of(name) & set(NOT_FOR_KERAS) and (site == "functional" or not s.random)
    return True


def cells():
    """All (sample, origin, site), by topic; what is listed as a gap is there as well."""
    for topic, samples in TOPICS.items():
        names = [s.name for s in samples]
        listed = [c for c in (*SITES_FAIL, *SITES_LOOPED) if TOPIC_OF[c[0]] == topic]
        for cell in dict.fromkeys([*call_sites.cover(names, fits), *listed]):
            group = pytest.mark.xdist_group(cell[0])
            yield pytest.param(*cell, marks=group, id=f"{topic}.{'-'.join(cell)}")


def body_of(s, subset, site):
    """A body for ``call_sites`` and its invariants, of which there is one at least."""
    others = [i for i in range(len(s.inputs)) if i not in subset]
    seed = [a for i, a in enumerate(s.arguments((), 0)) if i in others]
    order = [*subset, *others]

    def one(row, shared):
        given = dict(zip(order, [*row, *shared]))
        return nests.flatten(s.fn(*[given[i] for i in range(len(s.inputs))]))

    if others:
        return one, seed
    kept = not (site == "compiled" and s.op_type in NOT_KEPT_BY_XLA)
    if s.random or TOPIC_OF[s.name] in STATEFUL or not kept:
        return lambda row, shared: [*one(row, []), shared[0] * 2.0], [np.float32([1.0, 2.0])]
    return lambda row, shared: [*one(row, []), *one(shared, [])], s.arguments((), 0)


def state_of(topic):
    """The variables of the module of a topic's samples."""
    held = vars(MODULES[topic]).values()
    states = [x.state if isinstance(x, tf.random.Generator) else x for x in held]
    return [x for x in states if isinstance(x, tf.Variable)]


def run(name, origin, site, fallback):
    s, choice, n = SAMPLES[name], call_sites.turn(name, origin, site), 3
    some = [v for v in s.subsets() if len(v) < len(s.inputs)] or s.subsets()
    subset = some[choice % len(some)]
    args = s.arguments(subset, n)
    rows = [args[i] for i in subset]
    body, shared = body_of(s, subset, site)
    origin, site = call_sites.possible(body, rows, shared, origin, site)
    if harness.case(name, subset) in LOOPED:
        fallback = "loop"
    api = call_sites.APIS[choice // 7 % len(call_sites.APIS)]
    state = state_of(TOPIC_OF[name])
    found = call_sites.run(
        body, rows, shared, origin, site, api=api, fallback=fallback, state=state
    )
    given = shared if origin == "numpy" else [tf.constant(x) for x in shared]
    one = tf.function(lambda row: nests.flatten(body(row, given)), autograph=False)
    looped = [[x.numpy() for x in one([tf.constant(x[r]) for x in rows])] for r in range(n)]
    expected = call_sites.wanted(looped, site)
    assert len(found) == len(expected)
    for f, e in zip(found, expected):
        if site == "fit":
            np.testing.assert_allclose(f, e, max(10 * s.rtol, 1e-4), max(10 * s.atol, 1e-4))
        else:
            harness.assert_close(s, f"{name} {subset}, {origin}, {site}, {api}", f, e)


def test_lists_are_sorted_and_name_samples():
    for cells in (list(SITES_FAIL), list(SITES_LOOPED)):
        assert cells == sorted(set(cells))
        for name, origin, site in cells:
            assert name in SAMPLES
            assert (origin, site) in call_sites.PAIRS
            assert fits(name, origin, site)


@pytest.mark.parametrize("topic", TOPICS)
def test_every_pair_occurs_in_every_topic(topic):
    names = [s.name for s in TOPICS[topic]]
    covered = {
        pair for _, *pair in map(tuple, call_sites.cover(names, fits)) for pair in [tuple(pair)]
    }
    possible = {p for p in call_sites.PAIRS if any(fits(name, *p) for name in names)}
    assert covered == possible


@pytest.mark.parametrize(("name", "origin", "site"), list(cells()))
def test_call_sites(name, origin, site):
    cell = (name, origin, site)
    if cell in SITES_FAIL:
        with pytest.raises(Exception, match=re.escape(SITES_FAIL[cell])):
            run(*cell, "loop")
        return
    if cell in SITES_LOOPED:
        with pytest.raises(tf_pfor.NotVectorizableError):
            run(*cell, "error")
    run(*cell, "loop" if cell in SITES_LOOPED else "error")
