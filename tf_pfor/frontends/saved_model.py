"""``tf_pfor.saved_model``: a model exported for one example becomes one for a batch."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import pathlib
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor._tf import _definitions
from tf_pfor.api.checks import fixed_block
from tf_pfor.core.errors import ArgumentError, ArgumentTypeError, FileError, VerificationError
from tf_pfor.core.nests import Nest
from tf_pfor.core.settings import Fallback
from tf_pfor.frontends import inputs as described
from tf_pfor.frontends.inputs import LENGTHS, Input
from tf_pfor.frontends.signatures import Batched, Row, name_of, served_name, text_of
from tf_pfor.reports.both_ways import is_close
from tf_pfor.reports.report import Report
from tf_pfor.reports.subjects import Subject, subject_of

_DEFAULT = "serving_default"


@dataclasses.dataclass(frozen=True, slots=True)
class BatchedModel:
    """The SavedModel that ``batch`` has written.

    Attributes:
      path: the path of the SavedModel.
      signature: the name of the signature.
      inputs: for each input of one example, the inputs of the batch that stand for it.
      outputs: for each output of one example, the outputs of the batch that stand for it.
      report: the outcome of each op.
      verified: the number of rows that were compared with the model of one example; 0 if none.
    """

    path: str
    signature: str
    inputs: dict[str, tuple[tf.TensorSpec, ...]]
    outputs: dict[str, tuple[tf.TensorSpec, ...]]
    report: Report
    verified: int

    def to_dict(self) -> dict[str, Any]:
        """Everything as dicts, lists, strings and numbers, ready for JSON."""

        def texts(specs: Mapping[str, tuple[tf.TensorSpec, ...]]) -> dict[str, dict[str, str]]:
            return {k: {name_of(s): text_of(s) for s in found} for k, found in specs.items()}

        return {
            "path": self.path,
            "signature": self.signature,
            "inputs": texts(self.inputs),
            "outputs": texts(self.outputs),
            "report": self.report.to_dict(),
            "verified": self.verified,
        }

    def __str__(self) -> str:
        lines = [f"{self.path}: signature {self.signature}"]
        for kind, specs in (("input", self.inputs), ("output", self.outputs)):
            for found in specs.values():
                lines += [f"  {kind:<6}  {name_of(s)}: {text_of(s)}" for s in found]
        rows = f"The same on {self.verified} rows as the model of one example."
        return "\n".join([*lines, *([rows] if self.verified else []), "", str(self.report)])


def batch(
    in_dir: str | os.PathLike[str],
    out_dir: str | os.PathLike[str],
    *,
    signature: str | None = None,
    shared: Iterable[str] = (),
    ragged: Iterable[str] = (),
    batch_of_one: bool = False,
    max_batch: int | None = None,
    verify: int | Mapping[str, Any] = 0,
    fallback: Fallback | None = None,
) -> BatchedModel:
    """Writes a SavedModel whose signature takes a batch, from a SavedModel of one example.

    Each input and each output of the signature gets a first axis of any size. An output that is the
    same for all rows gets it too, as TensorFlow Serving expects. Names, variables, tables, assets,
    other signatures and functions stay. The result can be loaded with TensorFlow alone.
    docs/saved_model.md has more.

    Args:
      in_dir: the SavedModel, of ``tf.saved_model.save`` or Keras' ``model.export``.
      out_dir: the path of the result: a path that does not exist, or an empty folder.
      signature: the name of the signature; None for "serving_default", or for the only signature.
      shared: the inputs that are the same for all rows; they stay as they are.
      ragged: the inputs whose size differs per row in the dimensions that the signature leaves
        open. They are padded in the batch. An input NAME_lengths has the sizes: int64 [n], or
        [n, k] for k such dimensions. Outputs whose shape differs per row have the same form.
      batch_of_one: whether the signature has a batch axis of size 1 already (or an open axis, made
        for 1). The batch takes the place of that axis in inputs that are not shared, and in
        outputs, which must have it.
      max_batch: the number of rows of a block. A larger batch is computed in blocks, one after the
        other, to bound memory. None computes all rows at once.
      verify: the number of rows of made values that are run through both models and compared. A
        dict, with an array for each input of the batch, gives the values.
      fallback: the ops that may run in a sequential loop; "error" for none. None follows
        ``tf_pfor.settings``.

    Returns:
      The ``BatchedModel``, with a report of the outcome of each op.

    Raises:
      ArgumentError, ArgumentTypeError: if an argument is wrong, or the model refuses made values.
      NotVectorizableError: if ops cannot be vectorized.
      VerificationError: if the models differ. Nothing is written then.

    >>> import tempfile
    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> model = tf.Module()
    >>> model.w = tf.Variable([[1., 2.], [3., 4.], [5., 6.]])
    >>> model.one = tf.function(lambda x: {"y": tf.linalg.matvec(model.w, x)})
    >>> one = model.one.get_concrete_function(tf.TensorSpec([2], tf.float32, "x"))
    >>> folder = tempfile.mkdtemp()
    >>> tf.saved_model.save(model, folder + "/one", signatures=one)
    >>> made = tf_pfor.saved_model.batch(folder + "/one", folder + "/many", verify=4)
    >>> served = tf.saved_model.load(folder + "/many").signatures["serving_default"]
    >>> served(x=tf.ones([5, 2]))["y"].shape
    TensorShape([5, 3])
    """
    source = _source(in_dir)
    target = _target(out_dir, source)
    model = _loaded(source)
    name, one = _signature(model, signature, source)
    row = Row(one, shared, ragged, batch_of_one)
    batched = Batched(row, fixed_block(max_batch, "max_batch"), fallback)
    report = described.explained(row, row.inputs, fallback=fallback)
    concrete = batched.concrete()
    rows = batched.rows(verify)
    parent = os.path.dirname(target)
    os.makedirs(parent, exist_ok=True)
    work = tempfile.mkdtemp(prefix=".tf_pfor_", dir=parent)
    try:
        others = {key: model.signatures[key] for key in model.signatures if key != name}
        _save(model, work, {**others, name: concrete})
        given = [x.name for x in row.inputs if x.kind == "shared"]
        _definitions.copy_defaults(source, work, {name: given})
        if rows:
            _compare(tf.saved_model.load(work).signatures[name], batched, rows)
        if os.path.isdir(target):
            os.rmdir(target)  # it is empty
        os.chmod(work, 0o755)  # as other folders are
        os.rename(work, target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return BatchedModel(
        target,
        name,
        {x.name: tuple(x.batched(None)) for x in row.inputs},
        batched.outputs,
        dataclasses.replace(report, name=name),
        _count(rows, row.inputs),
    )


def explain(
    path: str | os.PathLike[str],
    *,
    signature: str | None = None,
    shared: Iterable[str] = (),
    ragged: Iterable[str] = (),
    batch_of_one: bool = False,
    fallback: Fallback | None = None,
) -> Report:
    """Reports the outcome of each op of a SavedModel of one example, if it took a batch.

    Args:
      path: the SavedModel.
      signature: the name of the signature; None for "serving_default", or for the only signature.
      shared: the inputs that are the same for all rows.
      ragged: the inputs whose size differs per row in the dimensions that the signature leaves
        open.
      batch_of_one: whether the signature has a batch axis of size 1 already.
      fallback: the ops that may run in a sequential loop; "error" for none. The report has ops that
        may not loop as refused. None follows ``tf_pfor.settings``.

    Returns:
      The ``Report``. Nothing is written, printed or run.

    Raises:
      ArgumentError: if an argument is wrong.
    """
    source = _source(path)
    model = _loaded(source)  # the signature does not keep its variables
    name, one = _signature(model, signature, source)
    row = Row(one, shared, ragged, batch_of_one)
    report = described.explained(row, row.inputs, fallback=fallback)
    return dataclasses.replace(report, name=name)


@subject_of.register(str)
@subject_of.register(os.PathLike)
def _of_path(path: str | os.PathLike[str], given: Subject) -> Subject | Report:
    """The model at a path: a report, or its signature with elements."""
    if not given.args:
        return explain(path, fallback=given.options.fallback)
    source = _source(path)
    model = _loaded(source)
    _, one = _signature(model, None, source)
    one.of_model = model  # or its variables would be gone
    return subject_of(one, given)


def _save(model: Any, path: str, signatures: dict[str, Any]) -> None:
    """Saves with the gradients of tf.custom_gradient, where all that is in them has one.

    A sequential loop is such a function, and may be of ops that have no gradient. TensorFlow then
    prints a traceback, which is held back, and no gradient is saved: each load says so.
    """
    heard = io.StringIO()
    try:
        with contextlib.redirect_stderr(heard):
            tf.saved_model.save(model, path, signatures=signatures)
    except ValueError as why:
        if "tracing gradients" not in str(why):
            raise
    else:
        print(heard.getvalue(), end="", file=sys.stderr)
        return
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    tf.saved_model.save(model, path, signatures=signatures, options=options)


# ---------------------------------------------------------------------------
# Checks
# ---------------------------------------------------------------------------


def _absolute(path: object, name: str) -> str:
    if not isinstance(path, (str, os.PathLike)):
        raise ArgumentTypeError(
            f"{name} is of type {type(path).__name__}. Expected: the path of a folder, where "
            "tf.saved_model.save has written the model."
        )
    return os.path.abspath(os.fspath(path))


def _source(path: str | os.PathLike[str]) -> str:
    source = _absolute(path, "in_dir")
    if not tf.saved_model.contains_saved_model(source):
        raise ArgumentError(
            f"{source} is no SavedModel. Expected: a folder that tf.saved_model.save or Keras' "
            "model.export has written (it has a file saved_model.pb)."
        )
    return source


def _target(path: str | os.PathLike[str], source: str) -> str:
    target = _absolute(path, "out_dir")
    if os.path.islink(target):
        raise ArgumentError(
            f"{target} is a link. Expected: a new folder, or an empty one: give the path that the "
            f"link leads to ({os.path.realpath(target)}), or another."
        )
    parents = pathlib.Path(os.path.realpath(target)).parents
    if pathlib.Path(os.path.realpath(source)) in parents:
        raise ArgumentError(f"{target} lies in {source}, which is read. Choose another folder.")
    nearest = next(x for x in parents if x.exists())
    if not nearest.is_dir():
        raise ArgumentError(f"{target} cannot be made: {nearest} is no folder.")
    if os.path.exists(target) and not (os.path.isdir(target) and not os.listdir(target)):
        raise ArgumentError(
            f"{target} exists already. Expected: a new folder, or an empty one. Nothing is "
            "overwritten: remove it first, or choose another."
        )
    return target


def _loaded(source: str) -> Any:
    if not tf.executing_eagerly():
        raise ArgumentError("A SavedModel is made outside of tf.function and of tf.Graph contexts.")
    try:
        return tf.saved_model.load(source)
    except Exception as why:  # TensorFlow raises what the first damaged part leads to
        raise FileError(
            f"{source} cannot be loaded: {_reason(why)}. It is damaged or not complete, or has ops "
            "of a library that is not loaded. Save the model again, or load the library first "
            "(tf.load_op_library)."
        ) from why


def _signature(model: Any, name: str | None, source: str) -> tuple[str, Any]:
    known = list(model.signatures)
    if name is None and _DEFAULT not in known and len(known) == 1:
        name = known[0]
    chosen = _DEFAULT if name is None else name
    if chosen in known:
        return chosen, model.signatures[chosen]
    if not known:
        raise ArgumentError(
            f"{source} has no signatures. Save it with some: tf.saved_model.save(model, path, "
            "signatures=model.function.get_concrete_function(tf.TensorSpec(...)))."
        )
    raise ArgumentError(f"{source} has no signature {chosen!r}. It has: {', '.join(known)}.")


# ---------------------------------------------------------------------------
# Comparing
# ---------------------------------------------------------------------------


def _count(rows: Sequence[np.ndarray], inputs: Sequence[Input]) -> int:
    axes = described.in_axes(inputs)
    return next((len(x) for x, axis in zip(rows, axes) if axis is not None), 0)


def _compare(many: Nest, batched: Batched, rows: Sequence[np.ndarray]) -> None:
    """Runs all rows through both.

    Raises:
      ArgumentError: if the model of one example refuses a row.
      VerificationError: if a row of the batch is not what it gave.
    """
    specs, axes = batched.specs, described.in_axes(batched.row.inputs)
    flat = [tf.constant(x, spec.dtype) for x, spec in zip(rows, specs)]
    of_row = described.of_flat(batched.row, batched.row.inputs)
    expected: list[dict[str, np.ndarray]] = []
    for i in range(_count(rows, batched.row.inputs)):
        try:
            row = of_row(*[x if axis is None else x[i] for x, axis in zip(flat, axes)])
        except tf.errors.OpError as why:
            raise ArgumentError(
                f"The model of one example refuses row {i} of the values to verify with: "
                f"{_reason(why)}. Give some that it takes: verify={{name: array}}."
            ) from why
        expected.append({name: x.numpy() for name, x in row.items()})
    args = {served_name(arg, s): arg for arg, s in many.structured_input_signature[1].items()}
    try:
        found = many(**{args[name_of(s)]: x for s, x in zip(specs, flat)})
    except tf.errors.OpError as why:
        raise VerificationError(
            f"The model of a batch fails where the model of one example does not: {_reason(why)}. "
            "Nothing was written."
        ) from why
    for i, row in enumerate(expected):
        for name, wanted in row.items():
            _compare_row(i, name, wanted, found, batched.open_axes.get(name, []))


def _compare_row(
    i: int, name: str, wanted: np.ndarray, found: Mapping[str, tf.Tensor], axes: Sequence[int]
) -> None:
    """Compares one output of one row, which is cut to its sizes."""
    row = np.asarray(found[name][i].numpy())
    sizes = found[name + LENGTHS][i].numpy().reshape([-1]) if axes else []
    for axis, size in zip(axes, sizes):
        row = row[(slice(None),) * axis + (slice(int(size)),)]
    if not is_close(np.asarray(wanted), row):
        raise VerificationError(
            f"Output {name} of row {i} differs: the model of one example gives {_shown(wanted)}, "
            f"the model of a batch {_shown(row)}. Nothing was written. A model that draws random "
            "numbers, or changes its variables, may differ; else tf_pfor.check finds the op: "
            "please report it."
        )


def _reason(why: Exception) -> str:
    """The last line of TensorFlow's message, without the names of ops around it."""
    message = str(getattr(why, "message", why))
    text = re.sub(r"\[Op:\w+\]", "", re.split(r"\s*\[\[\{\{node", message)[0])
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1].strip().rstrip(".") if lines else type(why).__name__


def _shown(x: object) -> str:
    return np.array2string(np.asarray(x), threshold=8, edgeitems=2, precision=5).replace("\n", "")
