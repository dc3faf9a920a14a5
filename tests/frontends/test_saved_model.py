"""A SavedModel of one example becomes one of a batch, which needs no tf_pfor."""

import doctest
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.fallback.test_fallback import unregistered
from tests.frontends import models
from tf_pfor._tf._definitions import saved_model_pb2
from tf_pfor.frontends import command_line, saved_model

pytestmark = pytest.mark.filterwarnings("ignore::tf_pfor.FallbackWarning")


def signature(path, name="serving_default"):
    model = tf.saved_model.load(str(path))
    signature = model.signatures[name]
    signature.kept = model  # which has the variables
    return signature


def served(path, name="serving_default", **rows):
    """The outputs in a process that cannot import tf_pfor."""
    rows_file, found_file = f"{path}/rows.npz", f"{path}/found.npz"
    np.savez(rows_file, **rows)
    code = (
        "import sys\n"
        "sys.modules['tf_pfor'] = None\n"
        "import numpy as np, tensorflow as tf\n"
        f"model = tf.saved_model.load({str(path)!r})\n"
        f"rows = np.load({rows_file!r}, allow_pickle=True)\n"
        f"one = model.signatures[{name!r}]\n"
        "specs = one.structured_input_signature[1]\n"
        "found = one(**{k: tf.constant(rows[k].tolist(), specs[k].dtype) for k in specs})\n"
        f"np.savez({found_file!r}, **{{k: x.numpy() for k, x in found.items()}})\n"
    )
    quiet = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False,
        cwd=os.path.dirname(str(path)), env=quiet, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return dict(np.load(found_file, allow_pickle=True))


def test_variables_and_a_dict_of_outputs(tmp_path):
    path = models.linear(tmp_path / "one")
    made = tf_pfor.saved_model.batch(path, tmp_path / "many", verify=5)
    assert made.verified == 5
    assert made.report.totals["looped"] == made.report.totals["rejected"] == 0
    assert {k: [t.shape.as_list() for t in x] for k, x in made.outputs.items()} == {
        "y": [[None, 2]], "loss": [[None]], "bias": [[None, 2]],
    }  # fmt: skip
    one, x = signature(path), np.random.default_rng(0).standard_normal([4, 3]).astype(np.float32)
    found = served(tmp_path / "many", x=x)
    for i in range(4):
        for name, wanted in one(x=tf.constant(x[i])).items():
            np.testing.assert_allclose(found[name][i], wanted, 1e-5, 1e-6, err_msg=name)


@pytest.mark.parametrize("n", [0, 1, 7])
def test_sizes_of_a_batch(tmp_path, n):
    path = models.linear(tmp_path / "one")
    for block in (None, 3):
        target = tmp_path / f"many {block}"
        tf_pfor.saved_model.batch(path, target, max_batch=block)
        one, x = signature(path), np.ones([n, 3], np.float32) * np.arange(n)[:, None]
        found = signature(target)(x=tf.constant(x, tf.float32))
        assert found["bias"].shape == [n, 2]
        assert found["loss"].shape == [n]
        for i in range(n):
            np.testing.assert_allclose(found["y"][i], one(x=tf.constant(x[i], tf.float32))["y"])


def test_a_vocabulary_is_kept(tmp_path):
    path = models.vocabulary(tmp_path / "one", tmp_path)
    made = tf_pfor.saved_model.batch(path, tmp_path / "many", verify=3)
    os.rename(path, tmp_path / "gone")  # the result has its own copy
    assert [s.name for s in made.outputs["known"]] == ["known", "known_lengths"]
    words = np.asarray([["be", "or", "what"], ["not", "to", "be"]], object)
    found = served(tmp_path / "many", words=words)
    assert found["ids"].tolist() == [[1, 2, -1], [3, 0, 1]]
    assert found["mean"].shape == (2, 2)
    assert found["known"].tolist() == [[b"be", b"or", b""], [b"not", b"to", b"be"]]
    assert found["known_lengths"].tolist() == [2, 3]


def test_rows_of_own_lengths(tmp_path):
    path = models.vocabulary(tmp_path / "one", tmp_path)
    made = tf_pfor.saved_model.batch(path, tmp_path / "many", ragged=["words"], verify=5)
    assert [s.name for s in made.inputs["words"]] == ["words", "words_lengths"]
    many, words = signature(tmp_path / "many"), tf.constant([["be", "x"], ["what", "to"]])
    found = many(words=words, words_lengths=tf.constant([1, 2], tf.int64))
    assert found["ids"].numpy()[0, 0] == 1
    assert found["ids_lengths"].numpy().tolist() == [1, 2]
    assert found["known_lengths"].numpy().tolist() == [1, 1]
    np.testing.assert_allclose(found["mean"][0], [4.0, 5.0])
    for lengths in ([1, 3], [-1, 2]):
        with pytest.raises(tf.errors.InvalidArgumentError, match="words_lengths has sizes below 0"):
            many(words=words, words_lengths=tf.constant(lengths, tf.int64))


TWO = tf.constant(2.0)


class Pair(tf.Module):
    """Two inputs, of which one has a default value."""

    @tf.function(input_signature=[tf.TensorSpec([2], name="x"), tf.TensorSpec([], name="t")])
    def one(self, x, t=TWO):
        return {"y": x * t, "twice": 2.0 * t}


@pytest.mark.parametrize("block", [None, 2])
def test_inputs_with_other_numbers_of_rows(tmp_path, block):
    """One row would be broadcast to all, without a word."""
    tf.saved_model.save(Pair(), str(tmp_path / "one"), signatures=Pair().one)
    tf_pfor.saved_model.batch(tmp_path / "one", tmp_path / "many", max_batch=block, verify=3)
    model = tf.saved_model.load(str(tmp_path / "many"))
    for n in (1, 4, 6):
        with pytest.raises(tf.errors.InvalidArgumentError, match="in the number of rows. t, x"):
            model.signatures["serving_default"](x=tf.ones([5, 2]), t=tf.ones([n]))


def test_defaults_are_kept(tmp_path):
    module = Pair()
    signatures = {"serving_default": module.one, "other": module.one}
    tf.saved_model.save(module, str(tmp_path / "one"), signatures=signatures)
    for shared in ([], ["t"]):
        target = tmp_path / f"many {len(shared)}"
        tf_pfor.saved_model.batch(tmp_path / "one", target, shared=shared)
        made = saved_model_pb2.SavedModel.FromString((target / "saved_model.pb").read_bytes())
        found = made.meta_graphs[0].signature_def
        assert list(found["other"].defaults) == ["t"]
        assert list(found["serving_default"].defaults) == shared
    with pytest.raises(tf_pfor.ArgumentError, match="lies in"):
        tf_pfor.saved_model.batch(tmp_path / "one", tmp_path / "one" / "many")


class Pooled(tf.Module):
    """Embeddings of words, in which gradients of gathers meet."""

    def __init__(self):
        self.table = tf.Variable(tf.random.stateless_normal([5, 3], [1, 2]))

    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.int32, "w"), tf.TensorSpec([], name="t")]
    )
    def one(self, w, t):
        scores = tf.nn.softmax(tf.reduce_sum(tf.gather(self.table, w), 1) / t)
        return {"p": scores, "m": tf.reduce_mean(tf.gather(self.table, w) * t, 0)}


def test_gradients_of_rows_of_own_lengths(tmp_path):
    """In a process without tf_pfor, in which nothing is registered."""
    module = Pooled()
    tf.saved_model.save(module, str(tmp_path / "one"), signatures=module.one)
    tf_pfor.saved_model.batch(tmp_path / "one", tmp_path / "many", ragged=["w"])
    words, t = [[1, 2], [0, 1]], tf.constant([0.7, 0.9])
    with tf.GradientTape() as tape:
        tape.watch(t)
        rows = [module.one(words[0], t[0]), module.one(words[1][:1], t[1])]
        total = sum(tf.reduce_sum(x**2) for row in rows for x in row.values())
    code = (
        "import sys; sys.modules['tf_pfor'] = None\n"
        "import numpy as np, tensorflow as tf\n"
        f"model = tf.saved_model.load({str(tmp_path / 'many')!r})\n"
        "t = tf.constant([0.7, 0.9])\n"
        "with tf.GradientTape() as tape:\n"
        "    tape.watch(t)\n"
        f"    found = model.signatures['serving_default'](w=tf.constant({words}), t=t,\n"
        "        w_lengths=tf.constant([2, 1], tf.int64))\n"
        "    total = tf.reduce_sum(found['p'] ** 2) + tf.reduce_sum(found['m'] ** 2)\n"
        "print(tape.gradient(total, t).numpy().tolist())\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    np.testing.assert_allclose(json.loads(ran.stdout), tape.gradient(total, t), rtol=1e-4)


def test_images_of_own_size_and_shared_weights(tmp_path):
    path = models.images(tmp_path / "one")
    made = tf_pfor.saved_model.batch(
        path, tmp_path / "many", ragged="image", shared="weights", verify=6
    )
    assert [s.shape.as_list() for s in made.inputs["image"]] == [[None, None, None, 3], [None, 2]]
    assert [s.shape.as_list() for s in made.inputs["weights"]] == [[3]]
    rng = np.random.default_rng(0)
    sizes = [(2, 3), (4, 1), (0, 2)]
    rows = [rng.integers(0, 255, [*s, 3]).astype(np.uint8) for s in sizes]
    padded = np.full([3, 4, 5, 3], 77, np.uint8)  # what lies in the padding does not matter
    for out, row in zip(padded, rows):
        out[: row.shape[0], : row.shape[1]] = row
    weights = tf.constant([1.0, 2.0, 3.0])
    one, many = signature(path), signature(tmp_path / "many")
    found = many(image=padded, image_lengths=tf.constant(sizes, tf.int64), weights=weights)
    for i, row in enumerate(rows):
        wanted = one(image=tf.constant(row), weights=weights)
        np.testing.assert_allclose(found["mean"][i], wanted["mean"], 1e-5)
        np.testing.assert_allclose(
            found["grey"][i, : row.shape[0], : row.shape[1]], wanted["grey"], 1e-5
        )
    assert found["grey_lengths"].numpy().tolist() == [[2, 3], [4, 1], [0, 2]]


def test_keras_export(tmp_path):
    path, model = models.keras_export(tmp_path / "one")
    x = np.random.default_rng(0).standard_normal([3, 5, 4]).astype(np.float32)
    name = next(iter(signature(path).structured_input_signature[1]))
    made = tf_pfor.saved_model.batch(path, tmp_path / "many", verify=3)
    assert made.report.totals["looped"] == 0
    found = served(tmp_path / "many", **{name: x})
    (values,) = found.values()
    np.testing.assert_allclose(values, [model(row) for row in x], 1e-4, 1e-5)


def test_a_keras_archive_of_one_example(tmp_path):
    path, model = models.keras_one(tmp_path / "one")
    tf_pfor.saved_model.batch(path, tmp_path / "many", signature="one", verify=3)
    x = np.random.default_rng(0).standard_normal([6, 4]).astype(np.float32)
    found = served(tmp_path / "many", "one", x=x)
    np.testing.assert_allclose(found["logits"], model(x), 1e-4, 1e-5)


def test_a_batch_axis_of_size_one(tmp_path):
    path = models.of_one(tmp_path / "one")
    made = tf_pfor.saved_model.batch(
        path, tmp_path / "many", batch_of_one=True, shared=["weights"], verify=4
    )
    assert made.inputs["image"][0].shape.as_list() == [None, 8, 8, 3]
    assert made.outputs["logits"][0].shape.as_list() == [None, 2]
    x = np.random.default_rng(0).standard_normal([3, 8, 8, 3]).astype(np.float32)
    one, found = signature(path), signature(tmp_path / "many")(image=x, weights=[1.0, 2.0])
    for i in range(3):
        wanted = one(image=x[i : i + 1], weights=tf.constant([1.0, 2.0]))
        np.testing.assert_allclose(found["logits"][i], wanted["logits"][0], 1e-4, 1e-5)
        np.testing.assert_allclose(found["map"][i], wanted["map"][0], 1e-4, 1e-5)


def test_the_batch_axis_of_keras_is_replaced(tmp_path):
    path, model = models.keras_export(tmp_path / "one")
    made = tf_pfor.saved_model.batch(path, tmp_path / "many", batch_of_one=True, verify=3)
    ((spec,),) = made.inputs.values()
    assert spec.shape.as_list() == [None, 4]
    x = np.random.default_rng(0).standard_normal([5, 4]).astype(np.float32)
    (found,) = signature(tmp_path / "many")(tf.constant(x)).values()
    np.testing.assert_allclose(found, model(x), 1e-4, 1e-5)


def test_no_batch_axis_to_replace(tmp_path):
    path = models.of_one(tmp_path / "one")
    with pytest.raises(tf_pfor.ArgumentError, match="input weights has shape .2,.*in shared"):
        tf_pfor.saved_model.batch(path, tmp_path / "many", batch_of_one=True)
    path = models.linear(tmp_path / "two")
    with pytest.raises(tf_pfor.ArgumentError, match="the output [a-z]* has shape"):
        tf_pfor.saved_model.explain(path, batch_of_one=True)


def test_inside_of_a_graph(tmp_path):
    path = models.linear(tmp_path / "one")
    with tf.Graph().as_default(), pytest.raises(tf_pfor.ArgumentError, match="outside of"):
        tf_pfor.saved_model.batch(path, tmp_path / "many")


def test_state_and_other_signatures(tmp_path):
    path = models.counter(tmp_path / "one")
    tf_pfor.saved_model.batch(path, tmp_path / "many")
    model = tf.saved_model.load(str(tmp_path / "many"))
    found = model.signatures["serving_default"](step=tf.constant([1, 2, 5]))
    assert found["step"].numpy().tolist() == [2, 4, 10]
    assert model.signatures["count"]()["count"].numpy() == 8
    assert model.one(tf.constant(2))["step"].numpy() == 4  # the function of one example


def _keys(path):
    """The names in the file, as servers see them."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        known = tf.compat.v1.saved_model.load(session, ["serve"], str(path)).signature_def
        return [*known["serving_default"].inputs], [*known["serving_default"].outputs]


@pytest.mark.filterwarnings("ignore")
def test_names_that_python_does_not_have(tmp_path):
    @models.save(tmp_path / "one", models.spec([2], tf.float32, "the-input"))
    def path(x):
        return {"the:output": x * 2.0}

    tf_pfor.saved_model.batch(path, tmp_path / "many", verify=2)
    assert _keys(tmp_path / "many") == _keys(path) == (["the-input"], ["the:output"])


@pytest.mark.filterwarnings("ignore")
def test_a_model_of_tensorflow_1(tmp_path):
    path = str(tmp_path / "one")
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.placeholder(tf.float32, [3], name="x")
        w = tf.compat.v1.get_variable("w", initializer=[1.0, 2.0, 3.0], use_resource=True)
        y = tf.tensordot(w, x, 1)
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.saved_model.simple_save(session, path, {"in-1": x}, {"y": y})
    tf_pfor.saved_model.batch(path, tmp_path / "many", verify=3)
    assert _keys(tmp_path / "many") == (["in-1"], ["y"])
    found = signature(tmp_path / "many")(tf.ones([2, 3]))
    assert found["y"].numpy().tolist() == [6.0, 6.0]


def test_given_rows(tmp_path):
    path = models.vocabulary(tmp_path / "one", tmp_path)
    rows = {"words": [["to", "be"], ["or", "not"]], "words_lengths": [2, 1]}
    made = tf_pfor.saved_model.batch(path, tmp_path / "many", ragged=["words"], verify=rows)
    assert made.verified == 2


def test_what_differs_is_not_written(tmp_path):
    @models.save(tmp_path / "one", models.spec([], tf.float32, "x"))
    def path(x):
        return {"y": x + tf.random.normal([])}

    with pytest.raises(tf_pfor.VerificationError, match="Output y of row . differs"):
        tf_pfor.saved_model.batch(path, tmp_path / "many", verify=2)
    assert sorted(os.listdir(tmp_path)) == ["one"]


def test_values_that_the_model_refuses(tmp_path):
    @models.save(tmp_path / "one", models.spec([], tf.int32, "x"))
    def path(x):
        tf.debugging.assert_greater(x, 100, "too small")
        return {"y": x - 1}

    with pytest.raises(tf_pfor.ArgumentError, match="refuses row 0.*too small"):
        tf_pfor.saved_model.batch(path, tmp_path / "many", verify=2)
    tf_pfor.saved_model.batch(path, tmp_path / "many", verify={"x": [101, 102]})
    with pytest.raises(tf.errors.InvalidArgumentError, match="too small"):
        signature(tmp_path / "many")(x=tf.constant([101, 3]))


@pytest.mark.parametrize(("options", "says"), [
    ({"signature": "serve"}, "no signature 'serve'. It has: serving_default"),
    ({"shared": ["w"]}, "'w', which is no input of the signature. The inputs are: x"),
    ({"shared": ["x"]}, "shared inputs only"),
    ({"shared": "x", "ragged": "x"}, "both shared and ragged"),
    ({"ragged": ["x"]}, "said to be ragged, and has shape"),
    ({"max_batch": 0}, "max_batch must be a positive int"),
    ({"max_batch": True}, "max_batch must be a positive int"),
    ({"verify": -1}, "verify must be a number of rows"),
    ({"verify": {"y": [1]}}, "values for .'y'.. Expected: for x"),
    ({"verify": {"x": [1.0]}}, "shape .1. for x. Expected: float32.None,3."),
    ({"verify": {"x": np.zeros([0, 3])}}, "at least one"),
    ({"fallback": "never"}, "fallback must be"),
], ids=str)  # fmt: skip
def test_wrong_use(tmp_path, options, says):
    path = models.linear(tmp_path / "one")
    with pytest.raises(tf_pfor.ArgumentError, match=says):
        tf_pfor.saved_model.batch(path, tmp_path / "many", **options)
    assert sorted(os.listdir(tmp_path)) == ["one"]


def test_folders(tmp_path):
    path = models.linear(tmp_path / "one")
    with pytest.raises(tf_pfor.ArgumentError, match="is no SavedModel"):
        tf_pfor.saved_model.batch(tmp_path / "other", tmp_path / "many")
    with pytest.raises(tf_pfor.ArgumentError, match="exists already"):
        tf_pfor.saved_model.batch(path, path)
    (tmp_path / "empty").mkdir()
    tf_pfor.saved_model.batch(path, tmp_path / "empty")
    assert signature(tmp_path / "empty")(x=tf.ones([2, 3]))["y"].shape == [2, 2]
    model = tf.Module()
    tf.saved_model.save(model, str(tmp_path / "bare"))
    with pytest.raises(tf_pfor.ArgumentError, match="has no signatures"):
        tf_pfor.saved_model.batch(tmp_path / "bare", tmp_path / "more")


def test_ragged_outputs_in_blocks(tmp_path):
    path = models.vocabulary(tmp_path / "one", tmp_path)
    tf_pfor.saved_model.batch(path, tmp_path / "many", max_batch=2, verify=5)


def test_a_loaded_map_has_first_derivatives(tmp_path, caplog):
    x, sizes = tf.random.stateless_normal([3, 5], [1, 2]), tf.constant([1, 4, 2])
    specs = [tf.TensorSpec([None, 5]), tf.TensorSpec([None], tf.int32)]
    model = tf.Module()
    model.fn = tf.function(
        lambda x, k: tf_pfor.vmap(lambda a, b: tf.reduce_sum(tf.nn.softmax(a[:b]) * a[:b]))(x, k),
        input_signature=specs,
        autograph=False,
    )
    tf.saved_model.save(model, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    assert "unsaved custom gradients" not in caplog.text

    def slope(fn):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(fn(x, sizes) ** 2)
        return tape.gradient(y, x)

    def second(fn):
        with tf.GradientTape() as tape:
            tape.watch(x)
            first = slope(fn)
        return tape.gradient(first, x)

    np.testing.assert_allclose(slope(loaded.fn), slope(model.fn), rtol=1e-6)
    with pytest.raises(LookupError, match="first derivatives only"):
        second(loaded.fn)


def test_a_loop_without_a_gradient(tmp_path):
    """TensorFlow would save the gradient of the loop, which has none."""

    @models.save(tmp_path / "one", models.spec([2, 2], tf.complex64, "x"))
    def path(x):
        return {"y": tf.linalg.logm(x * 2.0 + tf.eye(2, dtype=tf.complex64) * 4.0)}

    with unregistered(("MatrixLogarithm",)):
        made = tf_pfor.saved_model.batch(path, tmp_path / "many", verify=3)
    assert made.report.totals["looped"] == 1


def test_the_command(tmp_path, capsys):
    path = models.images(tmp_path / "one")
    argv = ["batch", path, str(tmp_path / "many"), "--ragged", "image", "--shared", "weights"]
    assert command_line.main([*argv, "--verify", "4"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "input   image_lengths: int64[None,2]" in out
    assert "The same on 4 rows" in out
    assert command_line.main([*argv, "--verify", "4"]) == 2
    assert "exists already" in capsys.readouterr().err
    rows = tmp_path / "rows.npz"
    np.savez(
        rows, image=np.zeros([1, 2, 2, 3], np.uint8), image_lengths=[[1, 2]], weights=np.ones(3)
    )
    argv[2] = str(tmp_path / "more")
    assert command_line.main([*argv, "--rows", str(rows), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["verified"] == 1
    assert found["outputs"]["grey"]["grey_lengths"] == "int64[None,2]"


def test_the_command_explains(tmp_path, capsys):
    path = models.linear(tmp_path / "one")
    page = tmp_path / "report.html"
    assert command_line.main(["explain", path, "--html", str(page)]) == 0
    out, _ = capsys.readouterr()
    assert out.startswith("serving_default, n = unknown")
    assert "MatMul" in out
    assert "<svg" in page.read_text()
    assert command_line.main(["explain", f"{path}:serving_default", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["totals"]["looped"] == 0
    assert command_line.main(["explain", f"{path}:two"]) == 2
    assert "has no signature 'two'" in capsys.readouterr().err
    assert command_line.main(["explain", path, "-n", "3"]) == 2
    assert command_line.main(["explain", str(tmp_path), "--strict"]) == 2
    assert "is no SavedModel" in capsys.readouterr().err


def test_the_command_refuses(tmp_path, capsys):
    path = models.linear(tmp_path / "one")
    many = str(tmp_path / "many")
    assert command_line.main(["batch", path, many, "--signature", "two"]) == 2
    assert "has no signature 'two'" in capsys.readouterr().err
    assert command_line.main(["batch", path, many, "--rows", "missing.npz"]) == 3
    assert "missing.npz" in capsys.readouterr().err


def test_the_command_is_strict(tmp_path, capsys):
    @models.save(tmp_path / "one", models.spec([], tf.float32, "x"))
    def path(x):
        return {"y": tf.math.betainc(tf.abs(x) + 1.0, 2.0, 0.4)}

    many = str(tmp_path / "many")
    with unregistered():
        assert command_line.main(["batch", path, many, "--strict"]) == 1
        assert "Betainc" in capsys.readouterr().err
        assert not os.path.exists(many)
        assert command_line.main(["batch", path, many, "--verify", "2"]) == 0
        assert "looped" in capsys.readouterr().out


def test_the_example_of_the_docstring():
    runner = doctest.DocTestRunner()
    for test in doctest.DocTestFinder().find(saved_model.batch, "batch", globs={}):
        runner.run(test)
    assert runner.tries
    assert not runner.failures


@pytest.mark.parametrize("part", ["garbage", "cut", "empty", "no variables", "bad variables"])
def test_a_damaged_model(tmp_path, capsys, part):
    path = models.linear(tmp_path / "one")
    file = tmp_path / "one" / "saved_model.pb"
    variables = [*(tmp_path / "one" / "variables").iterdir()]
    if part == "no variables":
        for each in variables:
            each.unlink()
    elif part == "bad variables":
        for each in variables:
            each.write_bytes(b"x")
    else:
        file.write_bytes({"garbage": b"x" * 99, "empty": b"", "cut": file.read_bytes()[:500]}[part])
    with pytest.raises(tf_pfor.ArgumentError, match="cannot be loaded: .*damaged"):
        tf_pfor.saved_model.batch(path, tmp_path / "many")
    assert command_line.main(["explain", str(path)]) == 3
    found = capsys.readouterr()
    assert "cannot be loaded" in found.err
    assert "Traceback" not in found.err
    assert not (tmp_path / "many").exists()


@pytest.mark.parametrize("of", ["nothing", "an empty folder", "a full folder"])
def test_links_are_refused_before_the_work(tmp_path, monkeypatch, of):
    path, link = models.linear(tmp_path / "one"), tmp_path / "link"
    link.symlink_to(tmp_path / {"nothing": "no", "an empty folder": "two"}.get(of, "one"))
    (tmp_path / "two").mkdir()
    monkeypatch.setattr(saved_model, "_loaded", None)  # the work
    with pytest.raises(tf_pfor.ArgumentError, match="is a link. Expected: a new folder"):
        tf_pfor.saved_model.batch(path, link)
    (tmp_path / "file").write_text("")
    with pytest.raises(tf_pfor.ArgumentError, match="cannot be made: .*file is no folder"):
        tf_pfor.saved_model.batch(path, tmp_path / "file" / "many")
