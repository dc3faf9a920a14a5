"""Every op sample through every check of the harness."""

import pytest

from tests import harness
from tests.expectations import LOOPED
from tests.samples import ALL, TOPICS
from tf_pfor.core.registry import REGISTRY

_IDS = [s.name for s in ALL]


def _each(samples):
    """One test for each sample, named ``topic.Sample``: select a topic with ``-k "topic."``."""
    topic = {s.name: name for name, group in TOPICS.items() for s in group}
    ids = [f"{topic[s.name]}.{s.name}" for s in samples]
    return pytest.mark.parametrize("sample", samples, ids=ids)


def test_sample_names_are_unique():
    assert sorted(_IDS) == sorted(set(_IDS))


def test_expectations_are_sorted_and_name_samples():
    assert list(LOOPED) == sorted(set(LOOPED))
    known = {harness.case(s.name, subset) for s in ALL for subset in s.subsets()}
    assert set(LOOPED) <= known


# Ops that cannot be compared for one iteration: files are written or read, regions are drawn, a
# limit ends them. Other tests are for lookup tables, and for ops that only XLA or a GPU computes.
# Shapes that gradients broadcast to are constants.
WITHOUT_SAMPLE = (
    "BroadcastGradientArgs",
    "CloseSummaryWriter",
    "CudnnRNN",
    "CudnnRNNBackprop",
    "CudnnRNNBackpropV2",
    "CudnnRNNBackpropV3",
    "CudnnRNNV2",
    "CudnnRNNV3",
    "FlushSummaryWriter",
    "FractionalAvgPool",
    "FractionalMaxPool",
    "LookupTableExportV2",
    "LookupTableFindV2",
    "LookupTableInsertV2",
    "LookupTableRemoveV2",
    "LookupTableSizeV2",
    "MatchingFiles",
    "ReadFile",
    "ResourceCountUpTo",
    "SegmentMaxV2",
    "SegmentMinV2",
    "SegmentProdV2",
    "SegmentSumV2",
    "WriteAudioSummary",
    "WriteGraphSummary",
    "WriteHistogramSummary",
    "WriteImageSummary",
    "WriteRawProtoSummary",
    "WriteScalarSummary",
    "WriteSummary",
    "XlaBroadcastHelper",
    "XlaConcatND",
    "XlaConv",
    "XlaConvV2",
    "XlaDot",
    "XlaDotV2",
    "XlaDynamicSlice",
    "XlaDynamicUpdateSlice",
    "XlaEinsum",
    "XlaGather",
    "XlaKeyValueSort",
    "XlaOptimizationBarrier",
    "XlaPad",
    "XlaReduce",
    "XlaReducePrecision",
    "XlaReduceWindow",
    "XlaRemoveDynamicDimensionSize",
    "XlaScatter",
    "XlaSelectAndScatter",
    "XlaSelfAdjointEig",
    "XlaSetBound",
    "XlaSetDynamicDimensionSize",
    "XlaSharding",
    "XlaSort",
    "XlaSplitND",
    "XlaSvd",
    "XlaVariadicReduce",
    "XlaVariadicReduceV2",
    "XlaVariadicSort",
)


def test_every_registered_op_has_a_sample():
    missing = set(REGISTRY.op_types()) - {s.op_type for s in ALL}
    assert sorted(missing) == list(WITHOUT_SAMPLE)


@_each(ALL)
def test_outcome(sample):
    harness.check_outcome(sample, set(LOOPED))


@_each(ALL)
def test_values(sample):
    harness.check_values(sample)


@_each([s for s in ALL if len(s.subsets()) > 1])
def test_sizes(sample):
    harness.check_sizes(sample)


@_each([s for s in ALL if s.grad])
def test_gradients(sample):
    harness.check_gradients(sample)


@_each([s for s in ALL if s.xla])
def test_xla(sample):
    harness.check_xla(sample)


@_each(ALL)
def test_nested(sample):
    harness.check_nested(sample)


@_each([s for s in ALL if not s.random])
def test_folded(sample):
    harness.check_folded(sample)
