"""Reads and writes of variables in one graph of the body, and their order.

The edges of data and control in the graph give the order (automatic control dependencies order all
accesses to one variable). Two accesses see the same *version* of a variable when the same writes
come before both.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.core.errors import Refused

QUERIES = frozenset(["DeviceIndex", "VarIsInitializedOp", "VariableShape"])
SUMS = frozenset(["AssignAddVariableOp", "AssignSubVariableOp"])
ASSIGNMENTS = SUMS | {"AssignVariableOp"}
READS = frozenset(
    [
        "LookupTableExportV2",
        "LookupTableFindV2",
        "LookupTableSizeV2",
        "ReadVariableOp",
        "ResourceGather",
        "ResourceGatherNd",
    ]
)
PLACED = frozenset(
    ["ResourceScatterNdUpdate", "ResourceScatterUpdate", "ResourceStridedSliceAssign"]
)
"""Writes to places of a variable: the handle, the places, the value."""
SKIPS = frozenset(["RngReadAndSkip", "RngSkip"])
"""Draws of a generator that one skip for all iterations replaces."""
HARMLESS = frozenset(["Assert", "CheckNumerics", "CheckNumericsV2", "Empty", "Placeholder"])
"""Stateful by their definition; nothing else notices that they run."""


def may_repeat(op: tf.Operation) -> bool:
    """Whether an op that runs once more gives the same result, and nothing else notices."""
    schema = _tf.schema(op.type)
    if schema is None:
        return False
    if not schema.is_stateful or op.type in HARMLESS | QUERIES:
        return True
    inner = _tf.functions_of(op)
    return bool(inner) and all(may_repeat(o) for graph in inner for o in graph.get_operations())


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Access:
    """One op that touches one variable.

    Attributes:
      op: the op, which may be a call of a function or a branch.
      handle: the key of the variable's handle in this graph.
      writes: whether it may change the variable.
    """

    op: tf.Operation
    handle: Hashable
    writes: bool


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Update:
    """A read-modify-write: an assignment of the variable's own value, or a sum that rows read.

    Attributes:
      assign: the AssignVariableOp, AssignAddVariableOp or AssignSubVariableOp.
      reads: the ops that read the version of the variable that the assignment replaces.
      later: the ops that read what the assignment has made of it, before anything else changes it.
    """

    assign: tf.Operation
    reads: tuple[tf.Operation, ...]
    later: tuple[tf.Operation, ...] = ()

    @property
    def seen(self) -> tuple[tf.Operation, ...]:
        """All these reads; at least one."""
        return (*self.reads, *self.later)

    @property
    def value(self) -> tf.Tensor:
        """The value that is assigned, added or subtracted."""
        return self.assign.inputs[1]


class Accesses:
    """The accesses to variables in one graph.

    What is assigned and read again before the next assignment is no access: the read is that value.

    Attributes:
      order: the ops of the graph, each after what it needs; none if there is no order to keep.
      all: the accesses, in that order.
      read_again: for such reads, the value that was assigned.
      overwritten: such assignments.
    """

    def __init__(self, graph: tf.Graph):
        operations = graph.get_operations()
        self.order = [] if _only_reads(operations) else _topological(operations)
        self._unread = _unread(graph) if self.order else set[tf.Operation]()
        self.read_again: dict[tf.Operation, tf.Tensor] = {}
        self.overwritten: set[tf.Operation] = set()
        self._list()
        for handle in dict.fromkeys(a.handle for a in self.all):
            self._forward(self.of(handle))
        if self.overwritten:
            self._list()
        self._groups: dict[Any, tuple[Update, ...]] | None = None
        self._unclear: list[tuple[frozenset[Any], str]] = []
        self._update_groups: list[tuple[Update, ...]] = []

    def _list(self) -> None:
        """Lists the accesses, and what comes before each op."""
        self.all: list[Access] = []
        for op in self.order:
            if op not in self.read_again and op not in self.overwritten | self._unread:
                self.all += _accesses_of(op)
        self._bit = {id(a): 1 << i for i, a in enumerate(self.all)}
        own: dict[Any, int] = {}
        for a in self.all:
            own[a.op] = own.get(a.op, 0) | self._bit[id(a)]
        self._before: dict[Any, int] = {}  # the accesses that come before an op
        self._data: dict[Any, int] = {}  # the accesses whose results an op's inputs are made of
        for op in self.order:
            before = data = 0
            again = self.read_again.get(op)
            for t in op.inputs if again is None else (*op.inputs, again):
                before |= self._before.get(t.op, 0) | own.get(t.op, 0)
                data |= self._data.get(t.op, 0) | own.get(t.op, 0)
            for o in op.control_inputs:
                before |= self._before.get(o, 0) | own.get(o, 0)
            self._before[op], self._data[op] = before, data
        self._own = own

    def _forward(self, accesses: list[Access]) -> None:
        """Finds the assignments to one variable that another one overwrites, and their reads."""
        kinds = {a.op.type for a in accesses}
        writes = [a.op for a in accesses if a.writes]
        if len(writes) < 2 or not kinds <= {"AssignVariableOp", "ReadVariableOp"}:
            return
        for before, after in itertools.pairwise(writes):
            reads = [
                a.op
                for a in accesses
                if not a.writes and self.is_before([before], a.op) and self.is_before([a.op], after)
            ]
            others = [a.op for a in accesses if not a.writes and a.op not in reads]
            apart = all(self.is_before([o], before) or self.is_before([after], o) for o in others)
            if apart and self.is_before([before], after):
                self.overwritten.add(before)
                self.read_again.update((r, before.inputs[1]) for r in reads)

    def of(self, handle: object) -> list[Access]:
        """The accesses to one variable, in order as far as there is one."""
        return [a for a in self.all if a.handle == handle]

    def handles(self) -> dict[Any, tf.Tensor]:
        """The handles of all variables by key."""
        return {
            handle_key(t): t for a in self.all for t in a.op.inputs if handle_key(t) == a.handle
        }

    def is_before(self, first: Iterable[tf.Operation], op: tf.Operation) -> bool:
        """Whether ``op`` depends on one of the accesses ``first``, by data or control."""
        return any(self._before[op] & self._own[o] for o in first)

    def is_after(self, op: tf.Operation, handles: frozenset[Any]) -> bool:
        """Whether ``op`` depends on an access to one of some variables, by data or control."""
        bits = sum(self._bit[id(a)] for a in self.all if a.handle in handles)
        return bool(self._before[op] & bits)

    def depends(self, op: tf.Operation, on: Access) -> bool:
        """Whether inputs of ``op`` are made of the result of an access."""
        return bool(self._data[op] & self._bit[id(on)])

    def version(self, op: tf.Operation, handle: object) -> frozenset[int]:
        """The writes to a variable that come before an op."""
        return frozenset(
            self._bit[id(a)]
            for a in self.of(handle)
            if a.writes and a.op is not op and self._before[op] & self._bit[id(a)]
        )

    # Read-modify-writes ---------------------------------------------------

    def recurrence(self, op: tf.Operation) -> tuple[Update, ...]:
        """The updates that an assignment or a ReadVariableOp is part of, () if none.

        Several, when the value of each depends on the others' variables.

        Raises:
          Refused: if the read and the assignment cannot be told to belong together.
        """
        self._find_once()
        assert self._groups is not None
        found = self._groups.get(op, ())
        if isinstance(found, Refused):
            raise found
        return found

    @property
    def unclear(self) -> list[tuple[frozenset[Any], str]]:
        """Variables whose updates must run in the order of the loop, with all between: and why."""
        self._find_once()
        return self._unclear

    @property
    def update_groups(self) -> list[tuple[Update, ...]]:
        """All read-modify-writes, those together that need each other's values."""
        self._find_once()
        return self._update_groups

    def _find_once(self) -> None:
        if self._groups is None:
            self._groups = self._find()

    def _find(self) -> dict[Any, Any]:
        updates: list[Update] = []
        groups: dict[Any, Any] = {}
        for a in self.all:
            if not a.writes:
                continue
            try:
                update = self._update(a)
            except Refused as why:
                self._unclear.append((frozenset([a.handle]), str(why)))
                groups[a.op] = why
                for other in self.of(a.handle):  # their per-iteration values are not known
                    if other.op.type in READS and not self.is_before([a.op], other.op):
                        groups[other.op] = why
                continue
            if update is not None:
                updates.append(update)
        self._update_groups = _coupled(updates, self._feeds)
        for group in self._update_groups:
            try:
                for update in group:
                    self._check(update)
                    self.between(update)
                if group[1:] and not all(u.reads for u in group):
                    raise Refused("the value that it adds depends on another variable's new one")
                found = group
            except Refused as why:
                self._unclear.append((frozenset(self.handle_of(u) for u in group), str(why)))
                found = why
            for update in group:
                for op in (update.assign, *update.seen):
                    groups[op] = found
        self._find_moved()
        self._find_drawn()
        self._find_seen()
        return groups

    def _find_moved(self) -> None:
        """Finds writes to a place that another write moves on, as of a ring buffer."""
        own = {self.handle_of(u) for group in self._update_groups for u in group}
        for a in self.all:
            places = a.op.inputs[1:-1] if a.op.type in PLACED else ()
            bits = 0
            for op in {t.op for t in places}:
                bits |= self._data.get(op, 0) | self._own.get(op, 0)
            read = [x for x in self.all if bits & self._bit[id(x)]]
            moved = [x for x in read if x.handle in own or self.changed(x) is not None]
            if moved:
                why = "the place that it writes is made of a variable that the body updates"
                self._unclear.append((frozenset(x.handle for x in (a, *moved)), why))

    def _find_drawn(self) -> None:
        """Finds generators of which a row draws several times, and not only by skips."""
        for handle in dict.fromkeys(a.handle for a in self.all if draws_from_generator(a.op.type)):
            kinds = [a.op.type for a in self.of(handle)]
            if len(kinds) > 1 and any(draws_from_generator(k) and k not in SKIPS for k in kinds):
                why = f"the body draws several times from one generator ({', '.join(kinds)})"
                self._unclear.append((frozenset([handle]), why))

    def _find_seen(self) -> None:
        """Finds reads that see another value in each row of a loop, and what they are assigned to.

        The value that the last row assigns stays, so that the order counts.
        """
        updates = {u.assign: u for group in self._update_groups for u in group}
        own = {op for u in updates.values() for op in u.seen}
        for a in self.all:
            if not _reads(a.op) or (a.op not in own and self.changed(a) is None):
                continue
            fed = [x for x in self.all if x.writes and self.depends(x.op, a)]
            last = [x for x in fed if x.op.type == "AssignVariableOp" and x.op not in updates]
            if last or a.op not in own:
                why = "a row reads it, and the body updates it"
                self._unclear.append((frozenset(x.handle for x in (a, *last)), why))

    def _update(self, a: Access) -> Update | None:
        """The read-modify-write that ends in an assignment, None if it is a plain one."""
        others = [x for x in self.of(a.handle) if x.op is not a.op]
        used = [x for x in others if self._data[a.op] & self._bit[id(x)]]
        now = self.version(a.op, a.handle)
        same = [
            x
            for x in others
            if not x.writes
            and not self.is_before([a.op], x.op)
            and self.version(x.op, a.handle) == now
        ]
        if why := updates_in_order(a.handle, [x.op for x in self.of(a.handle) if x.writes]):
            raise Refused(why)
        name = "it assigns a value made of the variable's own"
        if a.op.type not in ASSIGNMENTS:
            is_own = any(x in same for x in used)
            if others or a.op.type.endswith("While"):
                is_own = is_own or _rewrites(a.op, a.handle)
            is_own = is_own or _mixes(a.op, a.handle)
            if is_own or _draws_again(a, others):
                raise Refused(f"{name}, inside of {a.op.type}")
            return None
        if not used and (a.op.type == "AssignVariableOp" or not others):
            return None
        if any(x not in same for x in used):
            raise Refused(f"{name} before another update (or from inside a function)")
        if any(x.writes for x in others):
            raise Refused(f"{name}, and another op changes it as well")
        if any(x.op.type != "ReadVariableOp" for x in same):
            raise Refused(f"{name}, which a function, a branch or a gather reads as well")
        later = [x for x in others if x not in same]
        if any(x.op.type != "ReadVariableOp" for x in later):
            raise Refused(f"{name}, which a function, a branch or a gather reads afterwards")
        return Update(a.op, tuple(x.op for x in same), tuple(x.op for x in later))

    def _feeds(self, update: Update, other: Update) -> bool:
        """Whether the value of ``update`` depends on a read that belongs to ``other``."""
        return any(self._data[update.assign] & self._own[o] for o in other.seen)

    def _check(self, update: Update) -> None:
        """Other variables that the value depends on must not change from iteration to iteration
        in a way that the order of the updates would show.
        """
        for read in self.all:
            w = self.changed(read) if self.depends(update.assign, read) else None
            if w is not None:
                when = "before" if self.is_before([w.op], read.op) else "later"
                raise Refused(
                    "the assigned value depends on another variable that the body updates "
                    f"{when} ({w.op.type}, {_tf.user_line(w.op) or w.op.name}): which iteration's "
                    "value is meant, only the order of the loop tells"
                )

    def changed(self, read: Access) -> Access | None:
        """A write that leaves unclear which iteration's value an access reads, if there is one.

        One read for all would see the updates of all iterations; in a loop it sees the updates so
        far. One value that is assigned in all iterations is clear.
        """
        reads_of = {u.assign: u.seen for g in self._update_groups for u in g}
        for w in self.of(read.handle):
            if not w.writes or w.op is read.op or read.op in reads_of.get(w.op, ()):
                continue
            is_clear = w.op.type == "AssignVariableOp" and w.op not in reads_of
            if not (is_clear and self.is_before([w.op], read.op)):
                return w
        return None

    def handle_of(self, update: Update) -> Any:
        """The key of the variable that an update assigns to."""
        return handle_key(update.assign.inputs[0])

    def between(self, *updates: Update) -> tuple[list[tf.Operation], list[tf.Tensor]]:
        """The ops between the reads and the assignments, and the tensors that go into them.

        Raises:
          Refused: if one of them is stateful.
        """
        reads = [r for u in updates for r in u.reads]
        inside: set[Any] = set()
        outside: dict[Any, tf.Tensor] = {}
        todo = [u.value for u in updates]
        while todo:
            tensor = todo.pop()
            op = tensor.op
            if op in reads or op in inside:
                continue
            if op in self.read_again and self.is_before(reads, op):
                inside.add(op)
                todo.append(self.read_again[op])
                continue
            if not self.is_before(reads, op):
                outside[(op, tensor.value_index)] = tensor
                continue
            schema = _tf.schema(op.type)
            if schema is None or schema.is_stateful:
                raise Refused(
                    f"the stateful {op.type} '{op.name}' stands between the read of a variable "
                    "and its assignment"
                )
            inside.add(op)
            todo += list(op.inputs)
        return [o for o in self.order if o in inside], list(outside.values())

    def hull(self, members: Iterable[tf.Operation]) -> set[tf.Operation]:
        """The ops on all paths from one of some accesses to another, and these themselves.

        Args:
          members: the accesses, and ops that come after one of them.
        """
        found = set(members)
        first = sum({self._own.get(op, 0) for op in found})
        todo, above = list(found), set(found)
        while todo:
            op = todo.pop()
            needs = [t.op for t in op.inputs]
            for o in (*needs, *op.control_inputs):
                if o not in above and self._before[o] & first:
                    above.add(o)
                    todo.append(o)
        return above


def accesses(graph: tf.Graph, memo: dict[Any, Any]) -> Accesses:
    """The accesses in ``graph``, found once."""
    key = ("accesses", graph)
    if key not in memo:
        memo[key] = Accesses(graph)
    return memo[key]


def handle_key(tensor: tf.Tensor) -> Any:
    """The key that tells the handles of one graph apart."""
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return (tensor.op, tensor.value_index)


def _accesses_of(op: tf.Operation) -> list[Access]:
    if op.type in QUERIES or op.type == "Identity":
        return []
    found: dict[Any, bool] = {}
    for i, tensor in enumerate(op.inputs):
        if tensor.dtype == tf.resource:
            kind = _kind(op, i)
            if kind is not None:
                key = handle_key(tensor)
                found[key] = found.get(key, False) or kind
    return [Access(op, key, writes) for key, writes in found.items()]


def _kind(op: tf.Operation, position: int) -> bool | None:
    """True if ``op`` may write the variable at an input, False if it reads, None if neither."""
    if op.type in QUERIES or op.type == "Identity":
        return None
    if op.type in READS:
        return False
    graphs = _tf.functions_of(op)
    if not graphs:
        return True
    kinds: list[bool] = []
    for graph in graphs:
        inner = position - (len(op.inputs) - len(graph.inputs))
        if inner < 0:
            return True
        handle = graph.inputs[inner]
        for user in graph.get_operations():
            for i, t in enumerate(user.inputs):
                if t.dtype == tf.resource and handle_key(t) == handle_key(handle):
                    kind = _kind(user, i)
                    if kind is not None:
                        kinds.append(kind)
    return any(kinds) if kinds else None


def _draws_again(a: Access, others: list[Access]) -> bool:
    """Whether a function draws from a generator that the body, or a trip of it, draws from again.

    The loop draws all of an iteration before the next one; one draw for all rows would not.
    """
    if not a.op.type.endswith(("If", "Case", "While", "PartitionedCall")) or not _draws(a.op):
        return False
    return a.op.type.endswith("While") or bool(others)


def _rewrites(op: tf.Operation, handle: object) -> bool:
    """Whether a function assigns to a variable a value made of the variable's own."""
    for graph in _tf.functions_of(op):
        known, mine = Accesses(graph), _inside(op, graph, handle)
        unclear = (handles for handles, _ in known.unclear)
        updates = ({known.handle_of(u) for u in group} for group in known.update_groups)
        if any(mine & handles for handles in (*unclear, *updates)):
            return True
        inner = [a for a in known.all if a.writes and a.handle in mine]
        if any(_rewrites(a.op, a.handle) for a in inner):
            return True
    return False


def _mixes(op: tf.Operation, handle: object) -> bool:
    """Whether one branch of a conditional reads what another one may change for other rows."""
    if not op.type.endswith(("If", "Case")):
        return False
    found: list[list[tf.Operation]] = []
    for graph in _tf.functions_of(op):
        mine, unread = _inside(op, graph, handle), _unread(graph)
        used = [o for o in graph.get_operations() if o not in unread]
        found.append([o for o in used if any(x.handle in mine for x in _accesses_of(o))])
    every = [o for ops in found for o in ops]
    changes = any(o.type not in READS for o in every)
    return changes and any(map(_reads, every)) and sum(map(bool, found)) > 1


def _inside(op: tf.Operation, graph: Any, handle: object) -> set[Any]:
    """The keys of a handle in a function that an op calls."""
    given = op.inputs[len(op.inputs) - len(graph.inputs) :]
    pairs = [(t, inside) for t, inside in zip(given, graph.inputs) if t.dtype == tf.resource]
    return {handle_key(inside) for t, inside in pairs if handle_key(t) == handle}


def draws_from_generator(op_type: str) -> bool:
    """Whether an op draws from a ``tf.random.Generator``."""
    return op_type.startswith(("Rng", "Stateful")) and op_type not in _tf.CALLS


def _draws(op: tf.Operation) -> bool:
    """Whether an op, or one in a function of it, draws from a ``tf.random.Generator``."""
    if draws_from_generator(op.type):
        return True
    return any(_draws(o) for graph in _tf.functions_of(op) for o in graph.get_operations())


def _reads(op: tf.Operation) -> bool:
    """Whether an op, or one in a function of it, reads a variable."""
    inner = _tf.functions_of(op)
    return op.type in READS or any(_reads(o) for g in inner for o in g.get_operations())


def _unread(graph: tf.Graph) -> set[tf.Operation]:
    """The reads of which nobody uses the value, as ``v[i]`` in ``v[i].assign(x)``."""
    todo = [t.op for t in getattr(graph, "outputs", ())]
    todo += [op for op in graph.get_operations() if op.type not in READS and not may_repeat(op)]
    used = set(todo)
    for op in todo:  # grows
        more = {t.op for t in op.inputs} - used
        used |= more
        todo += more
    return {op for op in graph.get_operations() if op.type in READS and op not in used}


def _coupled(updates: list[Update], feeds: Callable[..., Any]) -> list[tuple[Update, ...]]:
    """The updates in groups: two are in one when each depends on the other."""
    reach = {id(u): {id(v) for v in updates if feeds(u, v)} for u in updates}
    for middle in updates:
        for u in updates:
            if id(middle) in reach[id(u)]:
                reach[id(u)] |= reach[id(middle)]
    groups: list[tuple[Update, ...]] = []
    for u in updates:
        group = tuple(
            v for v in updates if v is u or (id(v) in reach[id(u)] and id(u) in reach[id(v)])
        )
        if group[0] is u:
            groups.append(group)
    return groups


def _only_reads(operations: Iterable[tf.Operation]) -> bool:
    """Whether nothing but plain reads gets a handle: then there is no order to keep."""
    return all(
        op.type in READS or not any(t.dtype == tf.resource for t in op.inputs) for op in operations
    )


def _topological(operations: Iterable[tf.Operation]) -> list[tf.Operation]:
    done: set[Any] = set()
    order: list[tf.Operation] = []
    stack = list(reversed(list(operations)))
    open_: set[Any] = set()
    while stack:
        op = stack[-1]
        if op in done:
            stack.pop()
            continue
        needs = [t.op for t in op.inputs]
        needs += op.control_inputs
        todo = [o for o in needs if o not in done and o not in open_]
        if todo and op not in open_:
            open_.add(op)
            stack += todo
            continue
        stack.pop()
        open_.discard(op)
        done.add(op)
        order.append(op)
    return order


# ---------------------------------------------------------------------------
# Updates in the order of the loop
# ---------------------------------------------------------------------------

# Each update is made for all iterations before the next update. The sum of all updates does not
# show it, nor does one value that all iterations assign. Two kinds of updates of one variable (a
# reset and a sum) show it. So do values that are assigned in several branches, or from trip to
# trip.

_SET = "assigns"
_KINDS = {
    "AssignVariableOp": _SET,
    "LookupTableInsertV2": _SET,
    "LookupTableRemoveV2": "removes",
    "ResourceScatterNdUpdate": _SET,
    "ResourceScatterUpdate": _SET,
    "ResourceStridedSliceAssign": _SET,
    "AssignAddVariableOp": "adds",
    "AssignSubVariableOp": "adds",
    "ResourceScatterAdd": "adds",
    "ResourceScatterNdAdd": "adds",
    "ResourceScatterNdSub": "adds",
    "ResourceScatterSub": "adds",
    "ResourceScatterDiv": "multiplies",
    "ResourceScatterMul": "multiplies",
    "ResourceScatterMax": "takes the largest",
    "ResourceScatterNdMax": "takes the largest",
    "ResourceScatterMin": "takes the smallest",
    "ResourceScatterNdMin": "takes the smallest",
}

Calls = tuple[tuple[tf.Operation, Any], ...]
"""From the outermost in: the ops that call functions, and the functions."""


def updates_in_order(handle: object, writers: Iterable[tf.Operation]) -> str:
    """Why the updates of a variable must run in the order of the loop; "" if they need not.

    Args:
      handle: the key of its handle.
      writers: the ops that change it, themselves or in functions that they call.
    """
    leaves = [leaf for op in writers for leaf in _leaves(op, handle, ())]
    kinds = [_KINDS.get(op.type) for op, _ in leaves]
    if None in kinds:
        return ""  # no variable, or an op with rules of its own
    if len({*kinds}) > 1:
        types = sorted({op.type for op, _ in leaves})
        return f"the body changes it in several ways ({', '.join(types)})"
    sets = [(op, calls) for op, calls in leaves if _KINDS[op.type] == _SET]
    if len(sets) > 1 and not all(_always_there(op, calls) for op, calls in sets):
        return (
            "the body assigns to it several times, some in branches or loops, or to elements that "
            "may differ between iterations"
        )
    if any(not all(_stays(t, calls) for t in op.inputs[1:]) for op, calls in sets):
        return "a loop in the body assigns to it what changes from trip to trip"
    return ""


def _always_there(op: tf.Operation, calls: Calls) -> bool:
    """Whether an op assigns to the same elements in all iterations: no other one shows then."""
    places = op.inputs[1:-1]  # between the handle and the value
    is_in_order = all(caller.type in _tf.CALLS for caller, _ in calls)
    return is_in_order and all(_tf.static_value(t) is not None for t in places)


def _leaves(op: tf.Operation, handle: object, calls: Calls) -> list[tuple[tf.Operation, Calls]]:
    """The ops that change a variable, each with the calls that lead to it."""
    if op.type in _KINDS:
        return [(op, calls)]
    graphs = _tf.functions_of(op)
    found = [] if graphs else [(op, calls)]
    for graph in graphs:
        first = len(op.inputs) - len(graph.inputs)
        mine = [i for t, i in zip(op.inputs[first:], graph.inputs) if handle_key(t) == handle]
        for own in map(handle_key, mine):
            users = [o for o in graph.get_operations() if own in map(handle_key, o.inputs)]
            users = [o for o in users if o.type not in (*READS, *QUERIES, "Identity")]
            found += [x for o in users for x in _leaves(o, own, (*calls, (op, graph)))]
    return found


def _stays(tensor: tf.Tensor, calls: Calls) -> bool:
    """Whether a tensor has one value in all trips of the loops that it is in."""
    if not any(op.type.endswith("While") for op, _ in calls):
        return True
    op, graph = calls[-1]
    todo, seen, given = [tensor], set[Any](), set[int]()
    for t in todo:  # grows
        if t.op in seen:
            continue
        seen.add(t.op)
        given.update(i for i, x in enumerate(graph.inputs) if x is t)
        todo += t.op.inputs
    if op.type.endswith("While") and any(
        handle_key(graph.outputs[i]) != handle_key(graph.inputs[i]) for i in given
    ):
        return False
    first = len(op.inputs) - len(graph.inputs)
    return all(_stays(op.inputs[first + i], calls[:-1]) for i in given)
