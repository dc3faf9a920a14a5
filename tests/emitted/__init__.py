"""The computation of a graph, as text: a canonical form, and its digest.

tf_pfor is a compiler. The results of a map follow from the graph that it emits. So two runs that
emit graphs of one digest give the same results. Modules: ``canonical`` makes the form, ``cases``
emits the graphs of samples and programs of the tests.
"""

from tests.emitted.canonical import canonical, counts, digest, digest_of

__all__ = ["canonical", "counts", "digest", "digest_of"]
