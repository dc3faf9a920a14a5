"""tf_pfor from scratch: a small vectorizer to read. Running it checks its examples by a loop."""

# You write a function of one example and would like to have it for a batch. The plain way is a
# loop: call the function for each row of the batch, and stack the results. This page takes the loop
# away: it reads the TensorFlow graph of the function, and emits ops that compute all rows at once.
# It is the core of tf_pfor. The page leaves out state, control flow, shapes that differ, and speed,
# which make the package large. The words are explained in docs/glossary.md. The idea comes from
# "Auto-Vectorizing TensorFlow Graphs" (Agarwal and Ganichev, 2019). Only public names of TensorFlow
# are used.

import collections
import contextlib
import inspect
from typing import NamedTuple

import tensorflow as tf


# ## 1. Values: stacked or unstacked
# A tensor of the user's function stands for n tensors, one for each iteration of the loop. There
# are two ways to store them. If they are known to be equal (a weight, a constant), one of them is
# enough: the value is *unstacked*. If they may differ, one tensor holds all of them with the loop
# on axis 0: the value is *stacked*. Its shape is then [n] + the inner shape, and the inner shape is
# what the user's function sees. To keep the page short, all shapes must be known in advance.
class Value(NamedTuple):
    tensor: tf.Tensor
    is_stacked: bool

    @property
    def inner_shape(self):
        return self.tensor.shape.as_list()[1 if self.is_stacked else 0 :]


# To *tile* a value is to stack it by repeating it: always right, and often a waste.
def tile(value, n):
    if value.is_stacked:
        return value
    return Value(tf.broadcast_to(value.tensor, [n, *value.inner_shape]), is_stacked=True)


# ## 2. Calls: one op, and how to emit it again
# An op has a type ("MatMul"), inputs, and attributes (transpose_a=True). A *converter* vectorizes
# it. The converter sees a `Call`: the op, and the values of its inputs. Most converters end in the
# same op with other inputs. So `rebuild` emits the op again, and keeps the attributes that it is
# not told to change. The functions of `tf.raw_ops`, one for each op type, take inputs first, then
# attributes, then a name. They emit into a graph or run at once, and gradient tapes see them.
class Call(NamedTuple):
    op: tf.Operation
    values: list[Value]  # one for each tensor of op.inputs
    n: int

    @property
    def names(self):  # of all its inputs; one of them may be a list of tensors, as in AddN
        counts = ((a.name, a.number_attr) for a in self.op.op_def.input_arg)
        return [name for name, k in counts for _ in range(self.op.get_attr(k) if k else 1)]

    def rebuild(self, *tensors, **attrs):
        raw_op, definition = getattr(tf.raw_ops, self.op.type), self.op.op_def.input_arg
        parameters = list(inspect.signature(raw_op).parameters)
        given = {name: self.op.get_attr(name) for name in parameters[len(definition) : -1]}
        for arg, parameter in zip(definition, parameters):
            mine = [t for name, t in zip(self.names, tensors) if name == arg.name]
            given[parameter] = mine if arg.number_attr else mine[0]
        return raw_op(**{**given, **attrs})

    def constant(self, name):
        value = self.values[self.names.index(name)]
        if value.is_stacked or (found := tf.get_static_value(value.tensor)) is None:
            raise CannotVectorize(f"its input '{name}' is not a constant")
        return found


class CannotVectorize(Exception):  # noqa: N818
    """Raised by a converter that cannot help, before it emits anything."""


# ## 3. The registry: which converter for which op
# The best formula depends on *which* inputs are stacked. Stacked rows times a shared weight are one
# large product; stacked matrices times stacked matrices are n small ones. So a rule is
# registered for an op type together with the set of inputs that are stacked, or for `ANY` set. If
# the set at hand has no rule, a rule for a larger set can take the op, after tiling.

ANY = frozenset()
RULES = collections.defaultdict(dict)  # op type -> {stacked inputs: converter}


def rule(op_types, *stacked):
    def register(converter):
        for op_type in op_types.split():
            RULES[op_type][frozenset(stacked)] = converter
        return converter

    return register


def find_rules(op_type, stacked):
    rules = RULES[op_type]
    larger = sorted((p for p in rules if p > stacked), key=len)
    return [(p, rules[p]) for p in (stacked, ANY, *larger) if p in rules]


# ## 4. The rules
# A *family* makes rules for many op types that behave alike. The first are elementwise ops that
# broadcast. An unstacked input stays as it is: broadcasting repeats it for free. But it aligns
# shapes at their ends, where a stacked vector [n, k] would meet a matrix [r, k] with its loop on
# the rows. So an input of lower rank gets dimensions of size 1 behind the loop: [n, 1, k].
def align(value, rank):
    if not value.is_stacked:
        return value.tensor
    n, *inner = value.tensor.shape
    return tf.reshape(value.tensor, [n, *[1] * (rank - len(inner)), *inner])


@rule("Abs Add AddV2 Cast Cos Equal Exp Greater Identity Less Log Maximum Minimum Mul Neg Pow")
@rule("RealDiv Relu Rsqrt SelectV2 Sigmoid Sin Sqrt Square Sub Tanh ZerosLike")
def elementwise(call, *values):
    rank = max(len(v.inner_shape) for v in values)
    return call.rebuild(*(align(v, rank) for v in values))


# Kernels that do not broadcast, but take any leading dimensions, want all their inputs stacked.
rule("AddN BatchMatMulV2 ReluGrad SigmoidGrad Softmax TanhGrad")(
    lambda call, *values: elementwise(call, *(tile(v, call.n) for v in values))
)


# Reductions have an axis among their inputs: the user's axis 0 is axis 1 of what is stacked.
@rule("All Any Max Mean Min Prod Sum", "input")
def reduction(call, x, _):
    axes = call.constant("reduction_indices")
    return call.rebuild(x.tensor, axes % max(len(x.inner_shape), 1) + 1)


# Ops that keep all elements in their order are told by the inner shape of their result. Those that
# move or repeat elements leave the loop where it is.
@rule("Reshape", "tensor")
@rule("ExpandDims Squeeze", "input")
def same_elements(call, x, *_):
    return tf.reshape(x.tensor, [call.n, *call.op.outputs[0].shape])


@rule("BroadcastTo", "input")
def broadcast_to(call, x, _):
    shape = call.op.outputs[0].shape
    return call.rebuild(align(x, len(shape)), [call.n, *shape])


rule("Transpose", "x")(lambda call, x, _: call.rebuild(x.tensor, [0, *call.constant("perm") + 1]))
rule("Tile", "input")(lambda call, x, _: call.rebuild(x.tensor, [1, *call.constant("multiples")]))


# Rows of a table are one gather if all iterations read the same table. If each iteration has a
# table of its own, the loop is one more batch dimension of the gather.
@rule("GatherV2", "indices")
def gather_from_shared(call, table, indices, _):
    if call.op.get_attr("batch_dims") != 0 or call.constant("axis") != 0:
        raise CannotVectorize("the loop would not be on axis 0 of the result")
    return call.rebuild(table.tensor, indices.tensor, 0)


@rule("GatherV2", "params", "indices")
def gather(call, table, indices, _):
    axis = call.constant("axis") % len(table.inner_shape) + 1
    old = call.op.get_attr("batch_dims")  # a negative one counts from the end: it stays
    return call.rebuild(table.tensor, indices.tensor, axis, batch_dims=old + (old >= 0))


# The most valuable rule is for [r, k] times a shared weight [k, c]. The loop is *folded* into the
# rows, [n * r, k], and unfolded after one product. Two stacked factors make n products. A shared
# first factor is tiled here, since this page has no rule for it; the package has one.
@rule("MatMul", "a")
def matmul_by_shared(call, a, b):
    x = tf.linalg.matrix_transpose(a.tensor) if call.op.get_attr("transpose_a") else a.tensor
    folded = tf.reshape(x, [call.n * x.shape[1], x.shape[2]])
    product = call.rebuild(folded, b.tensor, transpose_a=False)
    return tf.reshape(product, [call.n, x.shape[1], product.shape[1]])


@rule("MatMul", "a", "b")
def matmul(call, a, b):
    attrs = ("transpose_a", "transpose_b")
    return tf.matmul(a.tensor, b.tensor, *map(call.op.get_attr, attrs))


# An op without a rule runs in a sequential loop, the *fallback*: slow, but right.
def loop_over_rows(call):
    def iteration(i):
        tensors = [v.tensor[i] if v.is_stacked else v.tensor for v in call.values]
        return tf.nest.flatten(call.rebuild(*tensors))

    specs = [tf.TensorSpec(t.shape, t.dtype) for t in call.op.outputs]
    return tf.map_fn(iteration, tf.range(call.n), fn_output_signature=specs)


# ## 5. The walker
# The walker *pulls*: it starts at the tensors that are asked for and goes back over inputs. So ops
# that nobody needs are not converted. When all inputs of an op have values, there are three
# cases. If none is stacked, the op is *kept*: emitted once, unchanged. Else the first rule that can
# take the op *vectorizes* it, or *tiles* it if the rule wants more inputs stacked than are. If
# there is no such rule, the op is *looped*. The walker checks the shapes of a rule's results.
class Walker:
    def __init__(self, n, values, report):
        self.n, self.values, self.report = n, values, report  # values: the tensors' new values

    def convert(self, tensors):
        todo = [t.op for t in tensors]
        while todo:
            needs = [t.op for t in todo[-1].inputs if t.ref() not in self.values]
            todo += needs
            if not needs and (op := todo.pop()).outputs[0].ref() not in self.values:
                outcome, made = self.apply(op, [self.values[t.ref()] for t in op.inputs])
                self.report.append((op.type, outcome))
                loop = [] if outcome == "kept" else [self.n]
                for tensor, result in zip(op.outputs, tf.nest.flatten(made), strict=True):
                    assert result.shape == [*loop, *tensor.shape], op.type
                    self.values[tensor.ref()] = Value(result, is_stacked=bool(loop))
        return [self.values[t.ref()] for t in tensors]

    def apply(self, op, values):
        call = Call(op, values, self.n)
        stacked = frozenset(name for name, v in zip(call.names, values) if v.is_stacked)
        if op.type == "Const":
            return "kept", tf.constant(tf.make_ndarray(op.get_attr("value")))
        if not stacked:
            return "kept", call.rebuild(*(v.tensor for v in values))
        for pattern, converter in find_rules(op.type, stacked):
            given = [tile(v, self.n) if k in pattern else v for k, v in zip(call.names, values)]
            with contextlib.suppress(CannotVectorize):
                made = converter(call._replace(values=given), *given)
                return "tiled" if pattern > stacked else "vectorized", made
        return "looped", loop_over_rows(call)


# ## 6. The front door
# Tracing the function once, on placeholders of one example, gives its graph, the *body*. Its inputs
# are the elements, which are stacked, and what the function captures, such as variables, which is
# not. Results that are still unstacked are tiled at the end, so that all of them have the loop on
# axis 0. Changes of state, control flow, custom gradients and shapes that are not known in advance
# are refused. A vectorizer may be small, but it must not give wrong numbers.
def vectorized_map(fn, elems, report=None):
    flat = list(map(tf.convert_to_tensor, tf.nest.flatten(elems)))
    specs = tf.nest.pack_sequence_as(elems, [tf.TensorSpec(t.shape[1:], t.dtype) for t in flat])
    body = tf.function(fn, autograph=False).get_concrete_function(specs)
    for op in body.graph.get_operations():
        is_function = any(a.type == "list(type)" for a in op.op_def.attr)
        is_dynamic = not all(t.shape.is_fully_defined() for t in op.outputs)
        if is_function or is_dynamic or (op.op_def.is_stateful and op.type != "ReadVariableOp"):
            raise NotImplementedError(f"{op.type} ({op.name}) is beyond this page")
    given = [*(Value(t, True) for t in flat), *(Value(t, False) for t in body.captured_inputs)]
    values = {t.ref(): v for t, v in zip(body.graph.inputs, given)}
    (n,) = {t.shape[0] for t in flat}  # all elements have the same number of rows
    walker = Walker(n, values, [] if report is None else report)
    results = [tile(v, n).tensor for v in walker.convert(body.graph.outputs)]
    return tf.nest.pack_sequence_as(body.structured_outputs, results)


# ## 7. Examples
# Each is compared with the loop. First a layer, which becomes one product for all examples, and
# the gradients of each example's loss, by a tape in the body.
def check(fn, elems):
    found, loop = vectorized_map(fn, elems, report := []), [fn(x) for x in tf.unstack(elems)]
    for a, *b in zip(*map(tf.nest.flatten, [found, *loop]), strict=True):
        tf.debugging.assert_near(a, tf.stack(b))
    return dict(report)


x = tf.random.stateless_normal([5, 4, 3], seed=[1, 2])  # 5 examples, of 4 rows each
w, b = tf.Variable(tf.random.stateless_normal([3, 2], seed=[3, 4])), tf.Variable([0.1, -0.2])


def layer(x):
    return tf.reduce_sum(tf.tanh(x @ w + b), axis=-1)


def gradients(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(x))
    return tape.gradient(loss, [w, b])


assert check(layer, x)["MatMul"] == "vectorized"
assert "looped" not in check(gradients, x).values()


# A map in a map needs nothing new: the ops that the inner one emits are in the body of the outer
# one. Here are the distances of each row of an example to each other row.
def distances(x):
    return vectorized_map(lambda p: vectorized_map(lambda q: tf.norm(p - q), x), x)


assert "looped" not in check(distances, x).values()

# An op without a rule is looped, and right.
assert check(tf.math.cumsum, x)["Cumsum"] == "looped"
