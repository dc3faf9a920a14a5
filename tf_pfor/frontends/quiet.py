"""TensorFlow's start-up messages, held back when the command line runs.

This module is imported before TensorFlow, and imports nothing but Python's own library.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Generator


def is_command() -> bool:
    """Whether this process is ``python -m tf_pfor``, also while Python still looks for it."""
    if sys.argv[:1] != ["-m"]:  # what stands there until the module is found
        return False
    module = sys.orig_argv[-len(sys.argv)]
    return module.removeprefix("-m") == "tf_pfor"


@contextlib.contextmanager
def start_up() -> Generator[None]:
    """Holds back what the import of TensorFlow writes to stderr, in a command only.

    An import that fails shows what was held back.
    """
    if not is_command():
        yield
        return
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    with held_back():
        yield


@contextlib.contextmanager
def held_back() -> Generator[None]:
    """Holds back the process's stderr, also from C++, and shows it only if the block raises."""
    try:
        kept = os.dup(2)
    except OSError:  # there is no stderr
        yield
        return
    sys.stderr.flush()
    try:
        with tempfile.TemporaryFile() as file:
            os.dup2(file.fileno(), 2)
            try:
                yield
            except BaseException:
                sys.stderr.flush()
                file.seek(0)
                os.write(kept, file.read())
                raise
            finally:
                os.dup2(kept, 2)
    finally:
        os.close(kept)
