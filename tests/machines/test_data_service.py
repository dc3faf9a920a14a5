"""``map_and_batch`` in the workers of tf.data service: one dispatcher and two workers, loopback."""

import collections
import socket

import pytest
import tensorflow as tf
from tensorflow.data.experimental import service

import tf_pfor

Sharding = service.ShardingPolicy
ROWS, BATCH = 400, 10


def features(i):
    """An element of the dataset: a number, a text and a list."""
    return {"i": i, "text": tf.strings.as_string(i), "list": tf.range(i % 4)}


def free_port():
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return found.getsockname()[1]


class Cluster:
    """A dispatcher and workers of fixed addresses, in this process."""

    def __init__(self, folder, count=2):
        self._ports = [free_port() for _ in range(count)]
        self._dispatcher = service.DispatchServer(
            service.DispatcherConfig(
                port=0,
                work_dir=str(folder),
                fault_tolerant_mode=True,
                worker_addresses=[f"localhost:{port}" for port in self._ports],
            )
        )
        self.workers = [self._worker(port) for port in self._ports]

    def _worker(self, port):
        config = service.WorkerConfig(
            dispatcher_address=self._dispatcher.target.removeprefix("grpc://"),
            worker_address=f"localhost:{port}",
            port=port,
            heartbeat_interval_ms=100,
        )
        return service.WorkerServer(config)

    def lose(self, k):
        """A worker dies with what it holds, and another one comes in its place."""
        self.workers[k]._stop()
        self.workers[k] = self._worker(self._ports[k])

    def rows(self, policy):
        """The dataset of batches, which the workers compute."""
        ds = tf.data.Dataset.range(ROWS).apply(tf_pfor.data.map_and_batch(features, BATCH))
        return ds.apply(
            service.distribute(policy, self._dispatcher.target, max_outstanding_requests=2)
        )


@pytest.fixture
def cluster(tmp_path):
    return Cluster(tmp_path)


def times_seen(batches):
    seen = collections.Counter()
    for batch in batches:
        rows = zip(batch["i"].numpy().tolist(), batch["text"].numpy(), batch["list"].to_list())
        for i, text, numbers in rows:
            assert (text.decode(), numbers) == (str(i), [*range(i % 4)])
            seen[i] += 1
    return seen


def losing_a_worker(cluster, batches):
    for k, batch in enumerate(batches):
        if k == 4:
            cluster.lose(1)
        yield batch


@pytest.mark.parametrize("policy", ["DATA", "DYNAMIC"])
def test_each_row_comes_once(cluster, policy):
    seen = times_seen(cluster.rows(Sharding[policy]))
    assert seen == dict.fromkeys(range(ROWS), 1)


def test_a_worker_that_dies_loses_no_row(cluster):
    """Static shards begin anew: rows may come twice, and none is lost."""
    batches = losing_a_worker(cluster, cluster.rows(Sharding.DATA))
    assert [*sorted(times_seen(batches))] == [*range(ROWS)]


def test_dynamic_shards_give_no_row_twice(cluster):
    """The rows that a dead worker held are lost: not for data of which each row must come."""
    batches = losing_a_worker(cluster, cluster.rows(Sharding.DYNAMIC))
    assert {*times_seen(batches).values()} == {1}
