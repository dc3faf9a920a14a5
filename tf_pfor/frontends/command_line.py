"""``python -m tf_pfor``: explain, coverage, doctor, bench, batch (docs/command_line.md)."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from tf_pfor.core.errors import (
    ArgumentError,
    ArgumentTypeError,
    FallbackWarning,
    FileError,
    NotVectorizableError,
    PforError,
    VerificationError,
)
from tf_pfor.version import __version__

# Front ends are imported by the commands that need them.

_SPEC = (
    "the inputs of one example, dtype[dimensions] each, such as float32[None,3], int32[8] or "
    "string; with shared: in front if all rows share it, with ragged: if the size differs per row "
    "where None stands. Without inputs, FUNCTION is a pfor body: it takes the iteration number"
)
_FUNCTION = "the function of one example: package.module:name, path/to/file.py:name"
_MOST_ROWS = 2**31 - 1
_EXIT = """exit codes:
  0  done; explain and coverage: all of it is vectorized
  1  an op loops or was refused, or a check failed
  2  wrong use, or FUNCTION raised an error
  3  a file cannot be read or written
  4  FUNCTION, or the file it is in, ended the process
  130, 141  interrupted; nobody reads the output"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command.

    Args:
      argv: the words behind ``python -m tf_pfor``; None for the words of this process.

    Returns:
      The exit code, as the help lists it.
    """
    try:
        code = _run(argv)
        if sys.stdout is not None:  # pyright: ignore[reportUnnecessaryComparison]
            sys.stdout.flush()  # or the end of the process finds that nobody reads it
        return code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 141  # as a process that the signal ends


def _run(argv: Sequence[str] | None) -> int:
    try:
        args = _parser().parse_args(argv)
    except SystemExit as why:
        return int(why.code or 0)
    command: Callable[[argparse.Namespace], int] = args.command
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FallbackWarning)  # the reports have them
            return command(args)
    except (NotVectorizableError, VerificationError) as why:
        return _failed(args, why, 1)
    except FileError as why:
        return _failed(args, why, 3)
    except (ArgumentError, ArgumentTypeError) as why:
        return _failed(args, why, 2)
    except SystemExit as why:
        return _failed(args, _ended(args, why), 4)
    except KeyboardInterrupt:
        return _failed(args, "interrupted", 130)
    except BrokenPipeError:
        raise
    except Exception as why:  # the user's function, or a bug: the traceback tells
        print("".join(_traceback(why)), end="", file=sys.stderr)
        return 2


def _ended(args: argparse.Namespace, why: SystemExit) -> str:
    """The message where code of the user ends the process."""
    from tf_pfor._tf import innermost

    code = "" if why.code is None else repr(why.code)
    line = innermost(traceback.extract_tb(why.__traceback__)) or getattr(
        args, "function", args.prog
    )
    return (
        f"sys.exit({code}) was called by {line}. Expected: a file that can be imported, and a "
        'function that returns. Put what a program does under if __name__ == "__main__".'
    )


def _traceback(why: Exception) -> list[str]:
    """The lines of the user's code that have led to an error; all if there are none."""
    from tf_pfor._tf import is_machinery

    found = traceback.TracebackException.from_exception(why)
    frames = [f for f in found.stack if not is_machinery(f.filename)]
    runner = ("runpy", "<frozen")
    frames = [f for f in frames if not any(x in f.filename for x in runner)]
    # Errors of AutoGraph and syntax errors name the lines themselves.
    is_told = bool(frames) or "in user code:" in str(why) or isinstance(why, SyntaxError)
    if is_told:
        found.stack = traceback.StackSummary.from_list(frames)
    return list(found.format(chain=not is_told))


def check() -> None:
    """Ends the process where it is asked for help or used wrongly, before TensorFlow is loaded."""
    _parser().parse_args(sys.argv[1:])


def _failed(args: argparse.Namespace, why: Exception | str, code: int) -> int:
    print(f"{args.prog}: {why}", file=sys.stderr)
    return code


# ---------------------------------------------------------------------------
# Arguments
# ---------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tf_pfor",
        description="TensorFlow code written for one example runs on a whole batch at once.",
        epilog=_EXIT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"tf_pfor {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for add in (_add_explain, _add_batch, _add_bench, _add_coverage, _add_doctor):
        add(commands)
    return parser


def _command(commands: Any, name: str, run: Callable[..., int], says: str) -> Any:
    made = commands.add_parser(
        name, help=says, description=f"{says[0].upper()}{says[1:]}.", allow_abbrev=False
    )
    made.set_defaults(command=run, prog=made.prog)
    return made


def _add_function(command: argparse.ArgumentParser, also: str = "") -> None:
    command.add_argument("function", metavar="MODULE:FUNCTION", help=_FUNCTION + also)
    command.add_argument(
        "--input", nargs="+", metavar="SPEC", default=[], dest="inputs", help=_SPEC
    )


def _add_format(command: argparse.ArgumentParser, *formats: str) -> None:
    command.add_argument("--format", choices=formats, default="text", help="of what is printed")


def _add_explain(commands: object) -> None:
    says = "show what becomes of each op of a function, without running it"
    command = _command(commands, "explain", _explain, says)
    _add_function(command, "; or a SavedModel: FOLDER, FOLDER:SIGNATURE")
    command.add_argument("-n", type=_count, metavar="N", help="how many rows; unknown if left out")
    command.add_argument("--strict", action="store_true", help="refuse what would run in a loop")
    command.add_argument("--html", metavar="FILE", help="also write a page with a picture")
    _add_format(command, "text", "markdown", "json")


def _add_coverage(commands: object) -> None:
    says = "show which op types and endpoints of this TensorFlow are vectorized, and how"
    command = _command(commands, "coverage", _coverage, says)
    says = "op types or endpoints, such as MatMul or tf.image.resize; all if left out"
    command.add_argument("names", nargs="*", metavar="NAME", help=says)
    _add_format(command, "text", "json")


def _add_doctor(commands: object) -> None:
    says = "show versions and devices, try whether all works, and tell what to know"
    _add_format(_command(commands, "doctor", _doctor, says), "text", "json")


def _add_bench(commands: object) -> None:
    says = "measure a function against tf.map_fn and a Python loop, on made values"
    command = _command(commands, "bench", _bench, says)
    _add_function(command)
    command.add_argument("-n", type=_count, metavar="N", default=64, help="how many rows (64)")
    command.add_argument("--seed", type=int, default=0, help="the seed of the values (0)")
    _add_format(command, "text", "json")


def _add_batch(commands: object) -> None:
    says = "turn a SavedModel of one example into a SavedModel of a batch"
    command = _command(commands, "batch", _batch, says)
    command.add_argument("source", metavar="IN", help="the SavedModel for one example")
    command.add_argument("target", metavar="OUT", help="a new folder for the SavedModel of a batch")
    command.add_argument("--signature", metavar="NAME", help="serving_default if left out")
    command.add_argument(
        "--shared", nargs="+", default=[], metavar="INPUT", help="inputs that all rows share"
    )
    command.add_argument(
        "--ragged",
        nargs="+",
        default=[],
        metavar="INPUT",
        help="inputs whose size differs per row: padded, with INPUT_lengths",
    )
    command.add_argument(
        "--batch-of-one",
        action="store_true",
        help="the model has a batch axis of size 1 already: the batch takes its place",
    )
    command.add_argument(
        "--max-batch", type=_count, metavar="N", help="compute larger batches in blocks of N rows"
    )
    values = command.add_mutually_exclusive_group()
    values.add_argument(
        "--verify",
        type=_count,
        metavar="N",
        default=0,
        help="compare both models on N rows of made values; write nothing if they differ",
    )
    values.add_argument(
        "--rows", metavar="FILE", help="compare on these: an .npz with an array for each input"
    )
    command.add_argument("--strict", action="store_true", help="refuse what would run in a loop")
    _add_format(command, "text", "json")


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of rows")
    if int(text) > _MOST_ROWS:
        raise argparse.ArgumentTypeError(f"{text} is more than int32 numbers ({_MOST_ROWS})")
    return int(text)


# ---------------------------------------------------------------------------
# Commands
# ---------------------------------------------------------------------------


def _explain(args: argparse.Namespace) -> int:
    folder = os.path.dirname(os.path.abspath(args.html or "."))
    if not os.path.isdir(folder):
        raise ArgumentError(f"--html {args.html}: there is no folder {folder}.")
    if args.html and (os.path.isdir(args.html) or not os.path.basename(args.html)):
        raise ArgumentError(f"--html {args.html} is a folder. Expected: a file, to be written.")
    report = _of_model(args) or _of_function(args)
    if args.html:
        try:
            report.save(args.html)
        except OSError as why:
            raise FileError(f"--html {args.html} cannot be written: {why.strerror}.") from why
    _print(report, args.format)
    return int(bool(report.totals["looped"] or report.totals["rejected"]))


def _of_function(args: argparse.Namespace) -> Any:
    from tf_pfor.frontends import inputs

    fn = function_of(args.function)
    if not args.inputs and args.n is None:
        raise ArgumentError(
            "It needs --input, what one example looks like; or -n, if the function is the body of "
            "a pfor."
        )
    given = [inputs.parse(text) for text in args.inputs]
    return inputs.explained(fn, given, args.n, fallback="error" if args.strict else "loop")


def _of_model(args: argparse.Namespace) -> Any:
    """The report of a SavedModel; None if it is none."""
    folder, signature = args.function, None
    if not os.path.isdir(folder):
        folder, _, signature = folder.rpartition(":")
    if not os.path.isdir(folder):
        return None
    from tf_pfor.frontends import saved_model

    if args.inputs or args.n is not None:
        raise ArgumentError("The signature of a SavedModel has its inputs: no --input, no -n.")
    fallback = "error" if args.strict else "loop"
    return saved_model.explain(folder, signature=signature, fallback=fallback)


def _batch(args: argparse.Namespace) -> int:
    from tf_pfor.frontends import saved_model

    found = saved_model.batch(
        args.source,
        args.target,
        signature=args.signature,
        shared=args.shared,
        ragged=args.ragged,
        batch_of_one=args.batch_of_one,
        max_batch=args.max_batch,
        verify=_arrays(args.rows) if args.rows else args.verify,
        fallback="error" if args.strict else "loop",
    )
    _print(found, args.format)
    return 0


def _arrays(path: str) -> dict[str, Any]:
    """The arrays of an .npz file, read without running anything that is in it."""
    import numpy as np

    try:
        with np.load(path) as file:
            return dict(file)
    except (OSError, ValueError, TypeError) as why:
        reason = f": {why}" if isinstance(why, OSError) else ""
        raise FileError(
            f"Cannot read {path}{reason}. Expected: a file of np.savez with arrays of numbers and "
            "text. Python objects are not read from files, and numpy cuts zeros at the end of "
            "bytes: give such values to tf_pfor.saved_model.batch(verify=...) in Python."
        ) from why


def _coverage(args: argparse.Namespace) -> int:
    from tf_pfor.frontends.coverage import coverage

    found = coverage(*args.names)
    _print(found, args.format)
    return int(bool(args.names) and not found.is_vectorized)


def _doctor(args: argparse.Namespace) -> int:
    from tf_pfor.frontends.doctor import Doctor

    found = Doctor()
    _print(found, args.format)
    return int(not found.is_well)


def _bench(args: argparse.Namespace) -> int:
    from tf_pfor.frontends import bench, inputs

    if not args.n:
        raise ArgumentError("-n must be at least 1: there is nothing to measure in no rows.")
    given = [inputs.parse(text) for text in args.inputs]
    try:
        found = bench.bench(function_of(args.function), given, args.n, seed=args.seed)
    except (TypeError, ValueError) as why:
        if given or isinstance(why, PforError):
            raise
        raise ArgumentError(
            f"Without --input {args.function} is the body of a pfor, and gets the number of an "
            f"iteration. It failed: {why} If it takes an example, say by --input what that is like."
        ) from why
    _print(found, args.format)
    own = found.timings[0]
    return int(bool(found.looped) or own.milliseconds is None or own.equal is False)


def _print(found: Any, form: str) -> None:
    if form == "json":
        print(json.dumps(found.to_dict(), indent=2))
    else:
        print(found.markdown() if form == "markdown" else found)


# ---------------------------------------------------------------------------
# MODULE:FUNCTION
# ---------------------------------------------------------------------------


def function_of(text: str) -> Callable[..., Any]:
    """The function that ``package.module:name`` or ``path/to/file.py:name`` names.

    Raises:
      ArgumentError: if there is no such module or name, or it cannot be called.
    """
    place, colon, name = text.rpartition(":")
    if not colon or not place or not name:
        raise ArgumentError(
            f"Cannot read {text!r}. Expected: MODULE:FUNCTION, such as package.module:name or "
            "path/to/file.py:name."
        )
    found = _module(place)
    for part in name.split("."):
        if not hasattr(found, part):
            raise ArgumentError(f"{place} has no {name!r}. It has: {_callables(found)}.")
        found = getattr(found, part)
    if not callable(found):
        raise ArgumentError(
            f"{text} is a {type(found).__name__}. Expected: a function of one example."
        )
    return found


def _callables(module: object) -> str:
    names = [k for k, v in vars(module).items() if callable(v) and not k.startswith("_")]
    return ", ".join(names[:20]) or "nothing that can be called"


def _module(place: str) -> Any:
    if place.endswith(".py"):
        if not os.path.isfile(place):
            raise ArgumentError(f"There is no file {place!r}.")
        name = os.path.splitext(os.path.basename(place))[0]
        spec = importlib.util.spec_from_file_location(name, place)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules.setdefault(name, module)  # AutoGraph and dataclasses look it up
        spec.loader.exec_module(module)
        return module
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as why:
        missing = why.name or ""
        if missing != place and not place.startswith(missing + "."):
            raise  # of something that the module needs
        raise ArgumentError(
            f"There is no module {missing!r}. Expected: one that can be imported from here "
            f"({os.getcwd()}), or a file: path/to/file.py:name."
        ) from None
