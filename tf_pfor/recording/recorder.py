"""Records the eager ops of a thread in place of running them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor._tf import _eager_ops
from tf_pfor._tf._eager_ops import PASSED
from tf_pfor.core import nests
from tf_pfor.core.errors import NotVectorizableError, UnsupportedStateError
from tf_pfor.core.nests import Nest
from tf_pfor.recording.forms import FOLLOWED, RESOURCE, form_of, name_of, opened
from tf_pfor.recording.gradients import follow
from tf_pfor.recording.kinds import SMALL, KindsOfOp, OpType, kind_of_unit, op_type_of
from tf_pfor.recording.nodes import Kind, Node, Recorded, results_of

_WRITES = ("Assign", "Resource")


class Recorder:
    """Records calls, and finds the kind of each.

    Attributes:
      kinds: the kinds that were recorded before, kept between calls of a batched function.
      nodes: the calls that have not run.
      variables: the trainable variables that the calls read: tapes watch them.
    """

    def __init__(self, kinds: dict[Any, Any], wait: Callable[[], None]) -> None:
        self.kinds = kinds
        self.nodes: list[Node] = []
        self.variables: dict[Any, tf.Variable] = {}
        self._wait = wait
        self._made: list[Node] = []
        self._known: dict[Any, Node] = {}
        self._constants: dict[Any, tf.Tensor] = {}

    # -----------------------------------------------------------------------
    # What a thread catches
    # -----------------------------------------------------------------------

    def op(self, op_type: str, given: tuple[Any, ...]) -> Any:
        """Records an op, unless its inputs are numbers that no gradient reaches."""
        facts = op_type_of(op_type)
        if facts is None:
            return PASSED
        inputs, lengths = self._inputs(facts, given)
        forms = list(map(form_of, inputs))
        is_known = not any([type(x) is Recorded for x in inputs])
        if is_known and (FOLLOWED.isdisjoint([f[0] for f in forms]) or "Dataset" in op_type):
            return PASSED
        attrs = given[len(facts.lists) :]
        if op_type == "Shape" and inputs[0].shape.is_fully_defined():
            dtype = dict(zip(attrs[::2], attrs[1::2])).get("out_type", tf.int32)
            return tf.constant(inputs[0].shape.as_list(), dtype)
        handles = [x for x, f in zip(inputs, forms) if f[0] == RESOURCE]
        if handles and facts.is_stateful:
            if is_known and not op_type.startswith(_WRITES):
                return PASSED  # an iterator or the like, of this example alone
            raise UnsupportedStateError(
                f"{op_type} writes a variable or a resource inside of batched(), where examples "
                "have no order. Write it after the call, from what the function returns."
            )
        ids = [x._id for x in handles]  # counted up: no other tensor gets it
        key = (op_type, _hashable(attrs), *lengths, *ids, *forms)
        kinds = self.kinds.get(key)
        if kinds is None:
            kinds = self.kinds[key] = KindsOfOp(facts, inputs, lengths, attrs)
        kind = kinds.of(inputs)
        varying = [inputs[i] for i in kinds.varying]
        return self._record(kind, varying, [name_of(inputs[i], forms[i]) for i in kinds.varying])

    def function(
        self, called: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Records the call of a ``tf.function`` as one."""
        leaves = nests.flatten((args, kwargs))
        if not any(
            isinstance(x, tf.Tensor) and (type(x) is Recorded or form_of(x)[0] in FOLLOWED)
            for x in leaves
        ):
            return PASSED
        name = getattr(called, "__name__", "function")
        return self.unit(called, name, called, args, kwargs)

    def custom_gradient(self, name: str, outputs: Sequence[Any]) -> None:
        """Refuses a gradient that a tape could not see."""
        if any(isinstance(x, Recorded) for x in nests.flatten(outputs)):
            raise NotVectorizableError(
                f"tf.custom_gradient of {name} inside of batched(): put the function that calls it "
                "into a tf_pfor.cell."
            )

    def accessed(self, variable: tf.Variable) -> None:
        """Keeps a variable for the tapes around."""
        if variable.trainable:
            self.variables[variable.ref()] = variable

    def runs(self, name: str, inputs: Sequence[Any]) -> None:
        """Refuses what would run without being recorded."""
        if any(isinstance(x, Recorded) for x in inputs):
            raise NotVectorizableError(
                f"{name} inside of batched() reads a recorded value. Put the function that calls "
                "it into a tf_pfor.cell."
            )

    def forget(self) -> None:
        """Lets go of all calls. What they have made stays as long as a value of it does."""
        for node in self._made:
            node.inputs = node.results = []
        self._made.clear()
        self._known.clear()

    # -----------------------------------------------------------------------
    # Calls
    # -----------------------------------------------------------------------

    def unit(
        self,
        owner: object,
        name: str,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Records the call of a Python function of tensors as one."""
        leaves: list[Any] = []
        names: list[Any] = []
        form = opened((args, kwargs) if kwargs else args, leaves, names)
        key = id(owner), form
        found = self.kinds.get(key)
        if found is None:
            others = [x for x in leaves if not isinstance(x, tf.Tensor)]
            kind = kind_of_unit(name, fn, args, kwargs)
            found = self.kinds[key] = kind, (owner, others)  # their ids stay theirs
        if len(names) < len(leaves):
            leaves = [x for x in leaves if isinstance(x, tf.Tensor)]
        return self._record(found[0], leaves, names)

    def _inputs(self, op_type: OpType, given: tuple[Any, ...]) -> tuple[list[Any], list[int]]:
        """The inputs of an op, with lists opened, and the lengths of the lists; -1 for others.

        Integers that no other input has the dtype of become tensors: an index may differ between
        calls that run together.
        """
        found: list[Any] = []
        lengths: list[int] = []
        for x, is_list, is_alone in zip(given, op_type.lists, op_type.are_alone):
            if is_list:
                found += map(_as_tensor, x)
                lengths.append(len(x))
                continue
            if not isinstance(x, tf.Tensor):
                x = _as_tensor(x)
                if is_alone and not isinstance(x, (tf.Tensor, float)):
                    x = self._integers(x)
            found.append(x)
            lengths.append(-1)
        return found, lengths

    def _integers(self, x: Nest) -> Any:
        """A tensor of integers that were given as Python's or NumPy's; other things stay."""
        array = np.asarray(x)
        if array.dtype.kind != "i":
            return x
        key = type(x), array.dtype, array.shape, array.tobytes()
        if key not in self._constants:
            self._constants[key] = tf.constant(x)
        return self._constants[key]

    def _record(self, kind: Kind, inputs: list[Any], names: list[Any]) -> Any:
        key = (kind, *names)
        node = self._known.get(key) if kind.may_share else None
        if node is None:
            depth = 0
            for x in inputs:
                if type(x) is Recorded and x.node.depth > depth:
                    depth = x.node.depth
            nodes = self.nodes
            node = self._known[key] = Node(kind, inputs, depth + 1, self._wait, len(nodes))
            nodes.append(node)
            self._made.append(node)
        results = node.results or results_of(node)
        if _eager_ops.is_taped():
            results = self._taped(kind, inputs, results)
        return kind.pack(results)

    def _taped(self, kind: Kind, inputs: list[Any], results: list[Recorded]) -> list[Recorded]:
        """Copies of the results of a call, which the tapes of this thread follow.

        They are copies because an equal call may have run before the tape began.
        """
        results = [x.copy() for x in results]
        for variable in kind.graph.trainable_variables if kind.graph else ():
            _eager_ops.watch(variable)

        def call(fn: Callable[..., Any], tensors: list[Any]) -> list[Any]:
            return self.unit(fn, f"the gradient of {kind.name}", fn, tuple(tensors), {})

        follow(kind, inputs, results, call)
        return results


def _as_tensor(x: Nest) -> Any:
    """An input of an op as a tensor, if it is one or holds one; else as it was given."""
    if isinstance(x, tf.Variable):
        return tf.convert_to_tensor(x)
    if isinstance(x, tf.Tensor):
        return x
    if isinstance(x, (list, tuple)):
        items = nests.flatten(x)
        if any(isinstance(item, tf.Tensor) for item in items):
            return tf.stack(x)
        if not any(isinstance(item, np.ndarray) for item in items):
            return x
        x = np.asarray(x)
    if hasattr(x, "__tf_tensor__") or (isinstance(x, np.ndarray) and x.size > SMALL):
        return tf.convert_to_tensor(x)
    return x


def _hashable(attrs: tuple[Any, ...]) -> Any:
    try:
        hash(attrs)
    except TypeError:
        return repr(attrs)
    return attrs
