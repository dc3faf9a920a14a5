"""Peak memory of the contenders of benchmarks.derivatives, and of blocks under a stated budget.

    python -m benchmarks.memory [--only conv_mnist vgg_jacobian] [--batch 64] [--budgets 200 400]

Each contender runs once in a separate child process. The numbers are MB beyond the memory after
tracing it and a plain gradient of one example. One is resident memory (the high-water mark of the
process, Linux only). The other is the memory that TensorFlow's allocator handed out. It counts the
unused rest of its chunks too, which may have twice the size that was asked for.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import warnings
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

import tf_pfor
from benchmarks import derivatives, timing

DEVICE = "CPU:0"
MB = 1e6


def budget_cases(name: str, batch: int, budget: int) -> derivatives.Case:
    """Ways that hold a budget."""
    options: dict[str, Any] = {"memory_budget": budget}
    if name == "vgg_jacobian":
        model, data, _ = derivatives.vgg()

        def jacobian(x: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = model(x)
            return tf_pfor.tape_jacobian(tape, y, x, parallel_iterations="auto", **options)

        return derivatives.Case({"tape_jacobian": jacobian}, data)
    loss, weights, data = derivatives.conv_mnist(batch)
    options["chunk_size"] = "auto"
    return derivatives.Case(
        {
            "per_example_gradients": lambda x: tf_pfor.per_example_gradients(
                loss, weights, x, **options
            ),
            "gradient_norms": lambda x: tf_pfor.gradient_norms(loss, weights, x, **options),
            "clipped_gradient_sum": lambda x: tf_pfor.clipped_gradient_sum(
                loss, weights, x, clip_norm=1.0, **options
            ),
        },
        data,
    )


def status(key: str) -> int:
    """Bytes, of what Linux says of this process."""
    with open("/proc/self/status") as lines:
        return next(int(x.split()[1]) for x in lines if x.startswith(key)) * 1024


def in_use(key: str) -> float:
    """Bytes that TensorFlow's allocator handed out; not a number without oneDNN."""
    try:
        return tf.config.experimental.get_memory_info(DEVICE)[key]
    except ValueError:
        return float("nan")


def warm_up(name: str) -> None:
    """One plain gradient: kernels are compiled and weights packed once in a process."""
    if name == "vgg_jacobian":
        loss, data, _ = derivatives.vgg()
    else:
        loss, _, (images,) = derivatives.conv_mnist(1)
        data = (images[0],)

    @tf.function(autograph=False)
    def gradient(x: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = tf.reduce_sum(loss(x))
        return tape.gradient(value, [x, *tape.watched_variables()])

    gradient(*data)


def measured(name: str, fn: Any, data: tuple[tf.Tensor, ...]) -> dict[str, float]:
    """Peak MB of a call beyond what is there before it."""
    concrete = tf.function(fn, autograph=False).get_concrete_function(*data)
    warm_up(name)
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the high-water mark starts anew
    if in_use("peak") > 0:
        tf.config.experimental.reset_memory_stats(DEVICE)
    resident, before = status("VmRSS"), in_use("current")
    results = concrete(*data)
    made = in_use("peak") - before
    own = sum(x.shape.num_elements() * x.dtype.size for x in tf.nest.flatten(results))
    return {
        "resident": (status("VmHWM") - resident) / MB, "allocator": made / MB, "results": own / MB,
    }  # fmt: skip


def child(name: str, batch: int, contender: str, budget: int | None) -> None:
    """Prints the numbers of one contender."""
    warnings.simplefilter("ignore")
    if budget is None:
        case = derivatives.CASES[name](batch)
    else:
        case = budget_cases(name, batch, budget)
    try:
        print(json.dumps(measured(name, case.contenders[contender], case.data)))
    except Exception as why:
        print(json.dumps({"error": f"{type(why).__name__}: {why}"[:200]}))


def in_child(*arguments: Any) -> dict[str, Any]:
    """The numbers of one contender, from a process of its own."""
    command = [sys.executable, "-m", "benchmarks.memory", "--child", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {"error": f"exit code {done.returncode}"}


def records(title: str, contender: str, found: dict[str, Any]) -> list[timing.Record]:
    """The records of a contender."""
    print(f"{title}, {contender}: {found.get('error', 'done')}", flush=True)
    better = "lower" if contender not in OTHERS else None
    return [
        timing.record(
            f"{title}, {contender}", f"{kind} MB", found.get(kind),
            better=None if kind == "results" else better,
        )
        for kind in KINDS
    ]  # fmt: skip


KINDS = ("resident", "allocator", "results")
OTHERS = ("loop", "TensorFlow's", "by hand")
BLOCKED = {
    "conv_mnist": ("per_example_gradients", "gradient_norms", "clipped_gradient_sum"),
    "vgg_jacobian": ("tape_jacobian",),
}


def main() -> None:
    """Runs the cases."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=sorted(BLOCKED), nargs="*")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--budgets", type=int, nargs="*", default=[100, 200, 400], help="MB")
    parser.add_argument("--child", nargs=4)
    given = parser.parse_args()
    if given.child:
        name, batch, contender, budget = given.child
        child(name, int(batch), contender, None if budget == "None" else int(budget))
        return
    rows: list[timing.Record] = []
    for name in given.only or sorted(BLOCKED):
        title = name if "jacobian" in name else f"{name} {given.batch}"
        for contender in ("tf_pfor", *OTHERS):
            found = in_child(name, given.batch, contender, None)
            rows += records(title, contender, found)
        for contender in BLOCKED[name]:
            for budget in given.budgets:
                found = in_child(name, given.batch, contender, int(budget * MB))
                rows += records(title, f"{contender} in {budget} MB", found)
    print(timing.overview(rows))
    if not given.only:
        timing.save("memory", rows)


if __name__ == "__main__":
    main()
