"""Blocks of rows that a cluster coordinator hands to two workers, of which one is killed.

The servers are processes: this file with the cluster, a job and a number.
"""

import json
import os
import socket
import subprocess
import sys

import numpy as np
import tensorflow as tf

import tf_pfor
from tests.api.distribution import refused

BLOCKS, ROWS = 40, 4


def serve(cluster, job, task):
    """A server of the cluster: a worker, or the one that holds variables."""
    spec = tf.train.ClusterSpec(json.loads(cluster))
    server = tf.distribute.Server(spec, job_name=job, task_index=int(task), protocol="grpc")
    print("up", flush=True)
    server.join()


def free_port():
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return found.getsockname()[1]


def started(cluster):
    """The processes of a cluster, when all of them are up."""
    command = [sys.executable, "-m", "tests.api.coordinator", json.dumps(cluster)]
    made = {
        (job, k): subprocess.Popen([*command, job, str(k)], stdout=subprocess.PIPE)
        for job, addresses in cluster.items()
        for k in range(len(addresses))
    }
    for process in made.values():
        process.stdout.readline()
    return made


def coordinate(cluster, processes):
    """Maps blocks of rows on the workers, and kills one of them."""
    chief = {"chief": [f"localhost:{free_port()}"]}
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({**cluster, **chief}), task_type="chief", task_id=0, rpc_layer="grpc"
    )
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    refused(lambda: tf_pfor.vmap(tf.abs, strategy=strategy), "which has one replica")
    with strategy.scope():
        w = tf.Variable([1.0, 2.0, 3.0])

    @tf.function
    def block(first):
        numbers = tf.range(ROWS * 3) + first
        rows = tf.reshape(tf.cast(numbers, tf.float32), [ROWS, 3])
        return first, tf_pfor.vmap(lambda row: tf.reduce_sum(row * w))(rows)

    made = [coordinator.schedule(block, args=(tf.constant(i),)) for i in range(BLOCKS)]
    made[3].fetch()
    processes["worker", 1].kill()
    made += [coordinator.schedule(block, args=(tf.constant(i),)) for i in range(BLOCKS, 2 * BLOCKS)]
    coordinator.join()
    for i, result in enumerate(made):
        first, sums = result.fetch()
        rows = np.arange(ROWS * 3).reshape(ROWS, 3) + i
        assert first == i
        np.testing.assert_allclose(sums, rows @ [1, 2, 3])
    print("no row was lost", flush=True)


def main():
    """Prints that no row was lost, or fails."""
    cluster = {
        "worker": [f"localhost:{free_port()}" for _ in range(2)],
        "ps": [f"localhost:{free_port()}"],
    }
    processes = started(cluster)
    try:
        coordinate(cluster, processes)
    finally:
        for process in processes.values():
            process.kill()
    os._exit(0)  # the coordinator's threads would wait for the servers


if __name__ == "__main__":
    serve(*sys.argv[1:]) if sys.argv[1:] else main()
