"""Outcomes of small programs of one row in tf_pfor, ``tf.vectorized_map``, JAX and torch.func.

    python -m tools.outcomes [--tool jax] [--only dropout]

Each program is written as the tool's users write it for one row, and mapped over rows. The outcome
is "right" if the result, and the state afterwards, equal the results of a Python loop in the same
tool. Else it is "WRONG" (other numbers without an error), "loop" (right, by a sequential loop), an
error, or empty: the tool has no such thing. JAX and torch are left out if they are not installed.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import logging
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from benchmarks import timing

ROWS = 6
RNG = np.random.default_rng(0)
X = RNG.normal(size=[ROWS, 5]).astype(np.float32)
W = RNG.normal(size=[5, 4]).astype(np.float32)
SQUARE = RNG.normal(size=[ROWS, 4, 4]).astype(np.float32)
K = np.array([1, 3, 5, 2, 4, 1], np.int32)
IDS = np.array([[1, 1, 2], [3, 3, 3], [0, 1, 2], [5, 4, 5], [2, 2, 1], [0, 0, 0]], np.int32)
TEXT = np.array(["to be", "or", "not to be", "that", "is the", "question"])
INPUTS: dict[str, tuple[np.ndarray, ...]] = {
    "gradient": (X,),
    "hessian": (X,),
    "sort": (X,),
    "singular values": (SQUARE,),
    "branch": (X,),
    "loop": (X, K),
    "gradient of a loop": (X, K),
    "slice to a length": (X, K),
    "mask": (X,),
    "variable-length result": (X, K),
    "unique": (IDS,),
    "text": (TEXT,),
    "dropout": (np.ones([ROWS, 64], np.float32),),
    "random draw": (np.zeros([ROWS], np.float32),),
    "sum in a variable": (X,),
    "scatter to a variable": (K,),
    "moving average": (X,),
    "check that fails": (X,),
}
# Programs whose rows must differ from each other: no loop draws the same numbers.
RANDOM = ("dropout", "random draw")
Programs = dict[str, Callable[..., Any]]
State = dict[str, Any]


def of_tensorflow() -> tuple[Programs, State]:
    """The programs of TensorFlow, and the variables that some change."""
    stateful, state = _stateful_of_tensorflow()
    return _stateless_of_tensorflow() | stateful, state


def _stateless_of_tensorflow() -> Programs:
    tf: Any = importlib.import_module("tensorflow")

    def gradient(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(tf.tanh(tf.linalg.matvec(W, x, transpose_a=True)) ** 2)
        return tape.gradient(y, x)

    def hessian(x: Any) -> Any:
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            parts = tf.unstack(gradient(x))
        return tf.stack([tape.gradient(part, x) for part in parts])

    def loop(x: Any, k: Any) -> Any:
        return tf.while_loop(
            lambda i, _: i < k, lambda i, y: (i + 1, tf.tanh(y * 1.5)), (0, x), maximum_iterations=9
        )[1]

    def gradient_of_a_loop(x: Any, k: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = loop(x, k)
        return tape.gradient(y, x)

    def checked(x: Any) -> Any:
        tf.debugging.assert_less(tf.reduce_max(x), float(X.max()))
        return x

    return {
        "gradient": gradient,
        "hessian": hessian,
        "sort": tf.sort,
        "singular values": lambda a: tf.linalg.svd(a, compute_uv=False),
        "branch": lambda x: tf.cond(x[0] > 0, lambda: tf.sin(x), lambda: x * 2),
        "loop": loop,
        "gradient of a loop": gradient_of_a_loop,
        "slice to a length": lambda x, k: tf.reduce_mean(x[:k]),
        "mask": lambda x: tf.reduce_mean(tf.boolean_mask(x, x > 0)),
        "variable-length result": lambda x, k: x[:k],
        "unique": lambda ids: tf.size(tf.unique(ids)[0]),
        "text": lambda text: tf.strings.length(tf.strings.split(text)[0]),
        "check that fails": checked,
    }


def _stateful_of_tensorflow() -> tuple[Programs, State]:
    keras: Any = importlib.import_module("keras")
    tf: Any = importlib.import_module("tensorflow")
    total, average = tf.Variable(0.0), tf.Variable(0.0)
    table, dropout = tf.Variable(tf.zeros([8])), keras.layers.Dropout(0.5)

    def add(x: Any) -> Any:
        total.assign_add(tf.reduce_sum(x))
        return x

    def scatter(k: Any) -> Any:
        table.scatter_add(tf.IndexedSlices(1.0, k))
        return k

    def observe(x: Any) -> Any:
        before = average.read_value()
        average.assign(average * 0.5 + tf.reduce_sum(x))
        return before

    programs = {
        "dropout": lambda x: dropout(x, training=True),
        "random draw": lambda x: x + tf.random.normal([]),
        "sum in a variable": add,
        "scatter to a variable": scatter,
        "moving average": observe,
    }
    return programs, dict(zip(list(programs)[2:], (total, table, average)))


def of_jax() -> tuple[Programs, State]:
    """The programs of JAX, which has no variables, texts or checks that raise in a map."""
    jax: Any = importlib.import_module("jax")
    jnp, lax = jax.numpy, jax.lax

    def loss(x: Any) -> Any:
        return jnp.sum(jnp.tanh(x @ W) ** 2)

    def loop(x: Any, k: Any) -> Any:
        state = (0, x)
        return lax.while_loop(
            lambda s: s[0] < k, lambda s: (s[0] + 1, jnp.tanh(s[1] * 1.5)), state
        )[1]

    programs = {
        "gradient": jax.grad(loss),
        "hessian": jax.hessian(loss),
        "sort": jnp.sort,
        "singular values": lambda a: jnp.linalg.svd(a, compute_uv=False),
        "branch": lambda x: lax.cond(x[0] > 0, jnp.sin, lambda x: x * 2, x),
        "loop": loop,
        "gradient of a loop": lambda x, k: jax.grad(lambda x: jnp.sum(loop(x, k)))(x),
        "slice to a length": lambda x, k: jnp.mean(x[:k]),
        "mask": lambda x: jnp.mean(x[x > 0]),
        "variable-length result": lambda x, k: x[:k],
        "unique": lambda ids: jnp.unique(ids).size,
        "dropout": lambda x, key: x * jax.random.bernoulli(key, 0.5, x.shape) * 2,
        "random draw": lambda x, key: x + jax.random.normal(key),
    }
    return programs, {}


def of_torch() -> tuple[Programs, State]:
    """The programs of torch; tensors that it changes in place are its variables."""
    torch: Any = importlib.import_module("torch")
    total, average = torch.zeros([]), torch.zeros([])
    table, w = torch.zeros([8]), torch.tensor(W)

    def loss(x: Any) -> Any:
        return torch.sum(torch.tanh(x @ w) ** 2)

    def branch(x: Any) -> Any:
        return torch.cond(x[0] > 0, torch.sin, lambda x: x * 2, (x,))

    def loop(x: Any, k: Any) -> Any:
        i = 0
        while i < k:
            x, i = torch.tanh(x * 1.5), i + 1
        return x

    def add(x: Any) -> Any:
        total.add_(x.sum())
        return x

    def observe(x: Any) -> Any:
        before = average.clone()
        average.mul_(0.5).add_(x.sum())
        return before

    def checked(x: Any) -> Any:
        torch._assert(x.max() < float(X.max()), "too large")
        return x

    def scatter(k: Any) -> Any:
        table.index_add_(0, k[None].long(), torch.ones([1]))
        return k

    programs = {
        "gradient": torch.func.grad(loss),
        "hessian": torch.func.hessian(loss),
        "sort": lambda x: torch.sort(x)[0],
        "singular values": torch.linalg.svdvals,
        "branch": branch,
        "loop": loop,
        "gradient of a loop": lambda x, k: torch.func.grad(lambda x: loop(x, k).sum())(x),
        "slice to a length": lambda x, k: x[:k].mean(),
        "mask": lambda x: x[x > 0].mean(),
        "variable-length result": lambda x, k: x[:k],
        "unique": lambda ids: torch.tensor(len(torch.unique(ids))),
        "dropout": lambda x: torch.nn.functional.dropout(x, 0.5, True),
        "random draw": lambda x: x + torch.randn([]),
        "sum in a variable": add,
        "scatter to a variable": scatter,
        "moving average": observe,
        "check that fails": checked,
    }
    state = {
        "sum in a variable": total,
        "scatter to a variable": table,
        "moving average": average,
    }
    return programs, state


def _tool(name: str) -> tuple[Programs, State, Callable[..., Any], Callable[[Any], Any]]:
    """The programs, their state, the map of a program over arrays, and arrays for this tool."""
    if name == "jax":
        jax: Any = importlib.import_module("jax")
        return *of_jax(), lambda f, *xs: jax.jit(jax.vmap(f))(*xs), jax.numpy.asarray
    if name == "torch":
        torch: Any = importlib.import_module("torch")
        draws = {"randomness": "different"}
        return *of_torch(), lambda f, *xs: torch.vmap(f, **draws)(*xs), torch.tensor
    tf: Any = importlib.import_module("tensorflow")
    package: Any = tf if name == "tensorflow" else importlib.import_module("tf_pfor")

    def mapped_by_tensorflow(f: Callable[..., Any], *xs: Any) -> Any:
        return package.vectorized_map(lambda row: f(*row), xs)

    return *of_tensorflow(), mapped_by_tensorflow, tf.constant


def _rows(result: Any) -> list[Any]:
    return [np.asarray(row) for row in result]


def _agree(found: list[Any], wanted: list[Any]) -> bool:
    same = [f.shape == w.shape for f, w in zip(found, wanted, strict=True)]
    return all(same) and all(np.allclose(f, w, 1e-4, 1e-5) for f, w in zip(found, wanted))


class _Loops(logging.Handler):
    """Notes the log messages and warnings by which the tools say that they loop."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = False

    def emit(self, record: logging.LogRecord) -> None:
        """Looks for the words of TensorFlow's map."""
        self.seen |= "while_loop" in record.getMessage()

    def saw(self, caught: list[warnings.WarningMessage]) -> bool:
        """Whether a message, or one of these warnings, tells of a loop."""
        words = ("sequential loop", "performance drop")
        return self.seen or any(w in str(c.message) for c in caught for w in words)


def outcome(tool: str, name: str) -> str:
    """The outcome of a program in a tool."""
    programs, state, mapped, array = _tool(tool)
    if name not in programs:
        return ""
    body, start = programs[name], np.array(state[name]) if name in state else None
    inputs = [array(x) for x in INPUTS[name]]
    if tool == "jax" and name in RANDOM:
        inputs.append(importlib.import_module("jax").random.split(_key(), ROWS))
    loops = _Loops()
    logging.getLogger("tensorflow").addHandler(loops)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = _rows(mapped(body, *inputs))
        except Exception as error:
            right = name == "check that fails" and "Assert" in str(type(error)) + str(error)
            return "right" if right or _is_failed_check(name, error) else type(error).__name__
    if name == "check that fails":
        return "WRONG"
    right = len({row.tobytes() for row in found}) == ROWS if name in RANDOM else True
    if name not in RANDOM:
        after = _reset(state.get(name), start)
        wanted = [np.asarray(body(*row)) for row in zip(*inputs)]
        right = _agree(found, wanted) and (after is None or np.allclose(after, state[name], 1e-4))
    return ("loop" if loops.saw(caught) else "right") if right else "WRONG"


def _is_failed_check(name: str, error: Exception) -> bool:
    return name == "check that fails" and type(error).__name__ == "InvalidArgumentError"


def _key() -> Any:
    return importlib.import_module("jax").random.key(0)


def _reset(variable: Any, start: Any) -> Any:
    """Gives the variable its first value; the value that the map has left."""
    if variable is None:
        return None
    after = np.array(variable)
    if hasattr(variable, "assign"):
        variable.assign(start)
    else:
        variable.copy_(importlib.import_module("torch").tensor(start))
    return after


def _measured(tool: str, names: list[str]) -> dict[str, str]:
    """The outcomes in a process of its own, and again in another one behind a crash."""
    found: dict[str, str] = {}
    while rest := [n for n in names if n not in found]:
        command = [sys.executable, "-m", "tools.outcomes", "--child", "--tool", tool]
        only = [word for name in rest for word in ("--only", name)]
        done = subprocess.run([*command, *only], capture_output=True, text=True)
        lines = [line for line in done.stdout.splitlines() if line.startswith('["outcome"')]
        found |= {name: result for _, name, result in map(json.loads, lines)}
        if not done.returncode and not lines:
            raise RuntimeError(done.stderr)
        if done.returncode:
            found[next(n for n in rest if n not in found)] = "it crashes"
    return found


def main() -> None:
    """Prints a table of the outcomes, and counts of them."""
    parser = argparse.ArgumentParser()
    tools = ["tf_pfor", "tensorflow", "jax", "torch"]
    parser.add_argument("--tool", choices=tools, action="append")
    parser.add_argument("--only", choices=list(INPUTS), action="append")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    names: list[str] = options.only or list(INPUTS)
    if options.child:
        for name in names:
            print(json.dumps(["outcome", name, outcome(options.tool[0], name)]), flush=True)
        return
    here = [t for t in options.tool or tools if importlib.util.find_spec(t)]
    found = {tool: _measured(tool, names) for tool in here}
    print(timing.table([[n, *(found[t][n] for t in here)] for n in names], ["program", *here]))
    for tool, results in found.items():
        kinds = [r if r in ("right", "loop", "WRONG", "") else "error" for r in results.values()]
        counts = ", ".join(f"{kinds.count(k)} {k or 'none'}" for k in dict.fromkeys(kinds))
        print(f"{tool}: {counts}")
    if not options.only and not options.tool:
        text = json.dumps([found], indent=1) + "\n"
        (timing.RESULTS / "outcomes.json").write_text(text)


if __name__ == "__main__":
    main()
