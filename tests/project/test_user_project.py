"""A small project of a user: it runs, and passes a type checker's strict mode (py.typed)."""

import importlib.resources
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.project.user_project import project

HERE = pathlib.Path(__file__).resolve().parent
PYRIGHT = shutil.which("pyright", path=str(pathlib.Path(sys.executable).parent))


def test_runs(capsys):
    w, x = tf.constant([1.0, 2.0]), tf.constant([[1.0, 2.0], [3.0, 4.0]])
    own = (np.asarray(w * x) ** 2).sum(1)
    np.testing.assert_allclose(project.shares(w, x), own / own.sum(), 1e-6)
    assert project.squares(3).numpy().tolist() == [0, 1, 4]
    np.testing.assert_allclose(project.curvature(w, x[0]), np.diag([2.0, 8.0]))
    gradients, norms = project.gradients(tf.Variable(w), x)
    np.testing.assert_allclose(gradients, x)
    np.testing.assert_allclose(norms, np.linalg.norm(x, axis=1), 1e-6)
    assert project.is_safe(x)
    assert capsys.readouterr().out == ""
    jacobian = project.existing_code(x)
    np.testing.assert_allclose(jacobian[0], np.diag(1 - np.tanh(x[0]) ** 2), 1e-5)


def test_the_package_is_typed():
    assert importlib.resources.files("tf_pfor").joinpath("py.typed").is_file()


@pytest.mark.skipif(PYRIGHT is None, reason="pyright is not installed (extra 'lint')")
def test_pyright_strict():
    found = subprocess.run(
        [PYRIGHT, "-p", str(HERE / "user_project"), "--pythonpath", sys.executable],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert found.returncode == 0, found.stdout + found.stderr
    assert "0 errors" in found.stdout
