"""Records the eager ops of a thread in place of running them."""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_pfor._tf import _eager_ops
from tf_pfor._tf._eager_ops import PASSED
from tf_pfor._tf._functions import op_types
from tf_pfor._tf._stacks import caller, is_called_from
from tf_pfor.core import nests
from tf_pfor.core.errors import NotVectorizableError
from tf_pfor.recording.calls import Calls
from tf_pfor.recording.forms import FOLLOWED, RESOURCE, form_of, name_of
from tf_pfor.recording.gradients import follow
from tf_pfor.recording.kinds import SEEDS, op_type_of, write_refused, writes
from tf_pfor.recording.nodes import Kind, Node, Recorded, results_of
from tf_pfor.recording.tensors import show_ragged

_OF_FUNCTIONS = re.compile(r"^__(?:inference|forward)_(.+)_\d+$")
_ADVICE = {
    "stop_recording": "Put tf.stop_gradient around the values that it shall not follow.",
    "reset": "Begin another tape after the call.",
    "watch": "Watch tensors and variables before the call.",
}


class Recorder(Calls):
    """Records the calls of examples.

    Attributes:
      nodes: the calls that have not run.
      variables: the trainable variables that the calls read: tapes watch them.
      example: the number of the example that runs now.
    """

    def __init__(self, kinds: dict[Any, Any], wait: Callable[[], None]) -> None:
        super().__init__(kinds)
        show_ragged()
        self.nodes: list[Node] = []
        self.variables: dict[Any, tf.Variable] = {}
        self.example = 0
        self._wait = wait
        self._made: list[Node] = []
        self._known: dict[Any, Node] = {}
        self._read: set[int] = set()  # the ids of the variables and tables that the calls read
        self._tapes: weakref.WeakSet[Any] = weakref.WeakSet()  # those that the function begins

    # -----------------------------------------------------------------------
    # What a thread catches
    # -----------------------------------------------------------------------

    def op(self, op_type: str, given: tuple[Any, ...]) -> Any:
        """Records an op, unless its inputs are numbers that no gradient reaches."""
        facts = op_type_of(op_type)
        if facts is None:
            return PASSED
        inputs, lengths = self.inputs(facts, given)
        forms = list(map(form_of, inputs))
        is_known = not any([type(x) is Recorded for x in inputs])
        attrs = given[len(facts.lists) :]
        if is_known and (FOLLOWED.isdisjoint([f[0] for f in forms]) or "Dataset" in op_type):
            for x in attrs if "Dataset" in op_type else ():
                if hasattr(x, "captured_inputs"):  # a function
                    self._runs_now(tf.compat.as_str(x.name), x.captured_inputs)
            return PASSED
        if op_type == "Shape" and inputs[0].shape.is_fully_defined():
            dtype = dict(zip(attrs[::2], attrs[1::2])).get("out_type", tf.int32)
            return tf.constant(inputs[0].shape.as_list(), dtype)
        handles = [x for x, f in zip(inputs, forms) if f[0] == RESOURCE]
        if handles and facts.is_stateful:
            if not is_known:
                raise write_refused(op_type, draws=is_called_from(f"{SEEDS}.py"))
            self._runs_now(op_type, handles)
            return PASSED  # an iterator or the like, of this example alone
        ids = [x._id for x in handles]  # counted up: no other tensor gets it
        self._read.update(ids)
        kinds = self.kinds_of_op(facts, inputs, lengths, attrs, (*ids, *forms))
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

    def runs(self, name: str, inputs: Sequence[Any]) -> Sequence[Any]:
        """Refuses what would run without being recorded."""
        if any(isinstance(x, Recorded) for x in inputs):
            raise NotVectorizableError(
                f"{name} inside of batched() reads a recorded value. Put the function that calls "
                "it into a tf_pfor.cell."
            )
        self._runs_now(name, inputs)
        return inputs

    def _runs_now(self, name: str, inputs: Sequence[Any]) -> None:
        """Refuses an op or a function that writes now what calls before it read later."""
        was_read = not self._read.isdisjoint([x._id for x in inputs if isinstance(x, tf.Tensor)])
        if writes(op_types(name), was_read=was_read):
            name = _OF_FUNCTIONS.sub(r"\1", name)
            raise write_refused(name, draws=is_called_from(f"{SEEDS}.py"))

    def meets(self, handles: Sequence[int], *, writes: bool) -> None:
        """Variables are read when what was recorded runs, and not written."""

    def tape(self, tape: object, method: str) -> None:
        """Refuses what a tape around the call cannot do for one example."""
        if not method:
            self._tapes.add(tape)
        elif "jacobian" in method and tape in self._tapes and _eager_ops.catcher() is self:
            raise NotVectorizableError(
                f"{method}() of a tape inside of batched() traces a function, which cannot be "
                "recorded. Put the tape, and what it follows, into a tf_pfor.cell."
            )
        elif tape not in self._tapes:
            name = type(tape).__name__
            raise NotVectorizableError(
                f"{method}() of a {name} inside of batched(), where the {name} is around the call. "
                "It sees the ops of all examples later, and together. "
                + _ADVICE.get(method, f"Call {method}() after the call of batched().")
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
        kind, leaves, names = self.kind_of_unit(owner, name, fn, args, kwargs)
        self._read.update([x._id for x in kind.captured])
        return self._record(kind, leaves, names)

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
            node.example = self.example
            if kind.may_fail:
                node.line = caller()
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
