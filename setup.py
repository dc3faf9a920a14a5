"""Packaging: `pip install ".[cpu]"`. The tools' settings are in pyproject.toml."""

import pathlib
import re

from setuptools import find_packages, setup

HERE = pathlib.Path(__file__).parent
VERSION = re.search(
    r'^__version__ = "(.+)"$', (HERE / "tf_pfor" / "version.py").read_text(), re.MULTILINE
).group(1)  # type: ignore[union-attr]

# The page of a package has no files beside it: links into the repository become their text.
README = re.sub(
    r"<img[^>]*>|!\[[^\]]*\]\([^)]*\)|\[([^\]]*)\]\((?!https?:)[^)]*\)",
    lambda link: link.group(1) or "",
    (HERE / "README.md").read_text(),
)

TENSORFLOW = ">=2.16,<2.22"
TEST = ["hypothesis>=6.100", "pytest>=8", "pytest-timeout>=2.3", "pytest-xdist>=3.5"]
# Libraries that call TensorFlow's vectorizer, for tests/project/test_clients.py. tensorflow-privacy
# asks for an older TensorFlow: `pip install --no-deps tensorflow-privacy dp-accounting` beside
# these.
CLIENTS = ["keras-cv>=0.9", "tensorflow-probability>=0.25", "tf-keras>=2.16", "tf-quant-finance"]
# Engines of data, for tests/project/test_engines.py and the page docs/many_machines.md.
BEAM = ["apache-beam>=2.60"]
ENGINES = [*BEAM, "datasets>=3", "pandas>=2", "pyarrow>=16", "pyspark>=4", "ray[data]>=2.40"]
DOCS = ["furo>=2024.8.6", "myst-nb>=1.2", "myst-parser>=4.0", "sphinx>=7.4"]
DEMO = ["matplotlib>=3.8", "scikit-learn>=1.4"]

setup(
    name="tf-pfor",
    version=VERSION,
    description="Vectorizes TensorFlow code that is written for one example",
    long_description=README,
    long_description_content_type="text/markdown",
    author="The authors of tf_pfor",
    license="Apache-2.0",
    keywords="tensorflow vectorization vmap batching per-example-gradients jacobian ragged",
    python_requires=">=3.10",
    packages=find_packages(include=["tf_pfor", "tf_pfor.*"]),
    package_data={"tf_pfor": ["py.typed", "frontends/endpoints.csv"]},
    # TensorFlow comes with an extra: nobody gets a second build of it by installing tf_pfor.
    install_requires=["absl-py>=1.0", "numpy>=1.23"],
    extras_require={
        "cpu": [f"tensorflow-cpu{TENSORFLOW}"],
        "gpu": [f"tensorflow[and-cuda]{TENSORFLOW}"],
        "test": TEST,
        "beam": BEAM,
        "clients": CLIENTS,
        "demo": DEMO,
        "docs": DOCS,
        "engines": ENGINES,
        "jax": ["jax>=0.4.30"],  # tests/project/test_jax.py
        "peers": ["jax>=0.4.30", "torch>=2.6"],  # benchmarks/figures
        "tfp": ["tensorflow-probability>=0.24", "tf-keras>=2.16"],
        "lint": ["codespell[toml]==2.4.3", "pyright[nodejs]==1.1.414", "ruff==0.17.6"],
    },
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3 :: Only",
        "Programming Language :: Python :: 3.11",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
)
