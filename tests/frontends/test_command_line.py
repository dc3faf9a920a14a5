"""python -m tf_pfor: mostly main(argv) in this process."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

import tf_pfor
from tests.fallback.test_fallback import unregistered
from tf_pfor.frontends import bench, command_line, doctor
from tools import coverage as page
from tools import imports

F = "tests.frontends.functions"
# Where the package lies, wherever the clone does, whose folder may have the same name.
PACKAGE = f"{pathlib.Path(tf_pfor.__file__).parent}/"
CLEAN = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}


@pytest.fixture
def run(capsys):
    def call(*argv):
        code = command_line.main(argv)
        found = capsys.readouterr()
        return code, found.out, found.err

    return call


def test_explain(run):
    code, out, err = run("explain", f"{F}:linear", "--input", "float32[None,3]")
    assert (code, err) == (0, "")
    assert out.startswith("linear, n = unknown\n")
    assert "functions.py:11" in out
    code, out, _ = run("explain", f"{F}:Holder.linear", "-n", "4", "--input", "float32[2,3]")
    assert code == 0
    assert "n = 4" in out


def test_explain_with_shared_inputs_and_formats(run):
    shared = ("--input", "float32[3]", "shared:float32[3]")
    code, out, _ = run("explain", f"{F}:product", *shared, "--format", "json")
    assert code == 0
    assert json.loads(out)["totals"]["vectorized"] == 2
    code, out, _ = run("explain", f"{F}:product", *shared, "--format", "markdown")
    assert "| `Mul` | 1 | vectorized |" in out


def test_explain_a_pfor_body(run):
    code, out, _ = run("explain", f"{F}:square", "-n", "5")
    assert code == 0
    assert "Mul" in out


def test_explain_says_what_loops(run):
    code, out, err = run("explain", f"{F}:looped", "--input", "float32")
    assert (code, err) == (1, "")  # the report has it: no warning besides
    assert "looped" in out
    with unregistered():
        code, out, _ = run("explain", f"{F}:incomplete_beta", "--input", "float32", "--strict")
    assert code == 1
    assert "rejected" in out


def test_a_file(run, tmp_path):
    file = tmp_path / "mine_of_a_file.py"
    file.write_text("def double(x):\n    if x > 0.0:\n        x = x * 2.0\n    return x\n")
    code, out, _ = run("explain", f"{file}:double", "--input", "float32", "-n", "3")
    assert code == 0, out
    assert "mine_of_a_file.py" in out
    sys.modules.pop("mine_of_a_file")


@pytest.mark.parametrize(("argv", "says"), [
    (("explain", "linear"), "Cannot read 'linear'"),
    (("explain", f"{F}:linear"), "It needs --input"),
    (("explain", f"{F}:missing", "-n", "3"), "linear"),
    (("explain", f"{F}:NUMBER", "-n", "3"), "is a int"),
    (("explain", "no_such_module:f", "-n", "3"), "no module 'no_such_module'"),
    (("explain", "no_such_file.py:f", "-n", "3"), "no file"),
    (("explain", f"{F}:linear", "--input", "float32[x]"), "Cannot read the input"),
    (("explain", f"{F}:linear", "-n", "many"), "not a number of rows"),
    (("explain", f"{F}:product", "--input", "shared:float32[3]"), "nothing to map over"),
    (("explain", f"{F}:broken", "--input", "float32[3]"), "KeyError"),
    (("bench", f"{F}:square", "-n", "0"), "at least 1"),
    (("coverage", "Matmul"), "Did you mean MatMul"),
    (("coverage", "tf.image.resiz"), "Did you mean tf.image.resize"),
    (("coverage", "numpy.abs"), "no endpoint"),
    (("nothing",), "invalid choice"),
    ((), "required"),
    (("doctor", "--color"), "unrecognized"),
], ids=lambda x: " ".join(x)[:40] if isinstance(x, tuple) else "")  # fmt: skip
def test_wrong_use(run, argv, says):
    code, _, err = run(*argv)
    assert code == 2
    assert says in err


ROW = ("--input", "float32[None,3]")
MANY = ",".join("2" * 300)
TOO_LARGE = f"float32[{10**20}]"


@pytest.mark.parametrize(
    ("argv", "code", "says"),
    [
        (("explain", f"{F}:linear", *ROW, "--html", "."), 2, "--html . is a folder"),
        (("explain", f"{F}:linear", *ROW, "--html", "/proc/x.html"), 3, "cannot be written"),
        (("explain", f"{F}:linear", "--input", TOO_LARGE), 2, "more than 9223372036854775807"),
        (("bench", f"{F}:linear", "--input", TOO_LARGE), 2, "elements (int64)"),
        (("explain", f"{F}:linear", "--input", f"int8[{MANY}]"), 2, "300 dimensions"),
        (("explain", f"{F}:linear", "--input", "int8[99999999999,99999999999]"), 2, "(int64)"),
        (("explain", f"{F}:linear", *ROW, "-n", str(10**20)), 2, "more than int32"),
        (("bench", f"{F}:linear", "--input", f"float32[{10**14}]"), 2, "do not fit into memory"),
        (("explain", f"{F}:leaves", "--input", "float32"), 4, "functions:leaves"),
    ],
    ids=lambda x: " ".join(x)[-40:] if isinstance(x, tuple) else "",
)  # fmt: skip
def test_wrong_use_is_one_line(run, argv, code, says):
    found, out, err = run(*argv)
    assert found == code, err
    assert says in err
    assert "Traceback" not in err
    assert out == ""
    assert len(err.splitlines()) == 1 or "usage:" in err


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("import sys\nsys.exit(3)", 4, "sys.exit(3) was called by"),
        ("raise SystemExit", 4, "sys.exit() was called by"),
        ("import sys\nsys.exit('usage: mine')", 4, "sys.exit('usage: mine')"),
        ("def f(x:\n", 2, "SyntaxError"),
        ("raise KeyboardInterrupt", 130, "interrupted"),
    ],
)
def test_a_file_that_ends_the_process(run, tmp_path, text, code, says):
    file = tmp_path / f"ends_{abs(hash(text))}.py"
    file.write_text(text)
    found, out, err = run("explain", f"{file}:f", "--input", "float32")
    assert (found, out) == (code, "")
    assert says in err
    assert PACKAGE not in err
    if code == 4:
        assert f"{file}:{text.count(chr(10)) + 1}" in err
        assert "__main__" in err


def test_nobody_reads_what_is_printed():
    read, write = os.pipe()
    os.close(read)
    found = subprocess.run(
        [sys.executable, "-m", "tf_pfor", "coverage"], stdout=write, stderr=subprocess.PIPE,
        text=True, check=False, cwd=imports.ROOT, timeout=300, env=CLEAN,
    )  # fmt: skip
    os.close(write)
    assert (found.returncode, found.stderr) == (141, "")


def test_coverage_of_ops(run):
    code, out, _ = run("coverage", "Cumsum", "Conv2D")
    assert code == 0
    assert "along: x may be stacked" in out
    code, out, _ = run("coverage", "EagerPyFunc", "Cumsum")
    assert code == 1
    assert out.startswith("EagerPyFunc: a sequential loop, on purpose")
    code, out, _ = run("coverage", "Cholesky", "--format", "json")
    assert json.loads(out)["ops"][0]["state"] == "converter"


def test_coverage_of_endpoints(run):
    code, out, _ = run("coverage", "tf.abs", "keras.ops.abs")  # tf.math.abs by another name
    assert code == 0
    assert out.startswith(
        "tf.math.abs: all calls that were measured are vectorized\n  op types: Abs"
    )
    assert "tf.keras.ops.abs: all calls" in out
    code, out, _ = run(
        "coverage", "tf.strings.format", "tf.strings.regex_replace", "tf.saved_model.load"
    )
    assert code == 1
    assert "tf.strings.format: a loop over rows\n  loops: StringFormat" in out
    assert "loops: rewrite of the row: RegexReplace" in out
    assert "tf.saved_model.load: nobody has measured it" in out
    code, out, _ = run("coverage", "tf.raw_ops.MatMul", "tf.sort", "--format", "json")
    found = json.loads(out)
    assert found["ops"][0]["op_type"] == "MatMul"
    assert found["endpoints"][0]["verdict"] == "vectorized"
    assert "TopKV2" in found["endpoints"][0]["op_types"]


def test_coverage_of_all_is_what_the_page_says(run):
    code, out, _ = run("coverage")
    assert code == 0
    found = tf_pfor.coverage()
    text = page.page()
    assert f"| {found.totals['converter']} |" in text
    assert sum(found.totals.values()) == len(found.ops) > 1400
    assert f"{found.totals['fallback']:5}  the fallback" in out
    assert f"{len(found.endpoints)} endpoints of the public API were measured" in out
    assert f"## Endpoints of the public API: {len(found.endpoints)}" in text
    for op in found.ops:
        if op.topic:
            assert f"| {op.op_type} | " in text


def test_doctor(run, monkeypatch):
    code, out, _ = run("doctor")
    assert "a map         works" in out
    assert f"tf_pfor       {tf_pfor.__version__}" in out
    assert code == 0, out
    monkeypatch.setattr(doctor, "NEWEST", (2, 10))
    monkeypatch.setitem(doctor._CHECKS, "a map", lambda: False)
    code, out, _ = run("doctor", "--format", "json")
    assert code == 1
    problems = json.loads(out)["problems"]
    assert "2.16 to 2.21" in problems[0]
    assert problems[-1] == "a map does not work: the numbers are wrong"


def test_bench(run, monkeypatch):
    monkeypatch.setattr(bench, "_SECONDS", 0.0)
    given = ("--input", "ragged:float32[None,3]", "-n", "3")
    code, out, _ = run("bench", f"{F}:linear", *given, "--format", "json")
    assert code == 0, out
    found = json.loads(out)
    assert [t["way"] for t in found["timings"]] == ["tf_pfor", "tf.map_fn", "Python loop"]
    assert all(t["equal"] for t in found["timings"])
    assert found["ratios"]["tf_pfor"] == 1.0
    assert found["ratios"]["Python loop"] > 0
    with unregistered():
        code, out, _ = run("bench", f"{F}:incomplete_beta", "--input", "float32", "-n", "2")
    assert code == 1
    assert "In a sequential loop inside of tf_pfor: Betainc." in out
    code, out, _ = run("bench", f"{F}:square", "-n", "4")
    assert code == 0, out


@pytest.mark.parametrize(
    ("argv", "says", "never"),
    [
        (["bench", f"{F}:linear", "-n", "2"], "Without --input", "Traceback"),
        (["explain", f"{F}:broken", "--input", "float32"], "a mistake of the user", PACKAGE),
    ],
)
def test_mistakes_are_shown_without_our_own_lines(run, argv, says, never):
    code, _, err = run(*argv)
    assert code == 2
    assert says in err
    assert never not in err


def test_bench_says_that_python_code_loops(run, monkeypatch):
    monkeypatch.setattr(bench, "_SECONDS", 0.0)
    code, out, _ = run("bench", f"{F}:looped", "--input", "float32", "-n", "2")
    assert code == 1
    assert "In a sequential loop inside of tf_pfor: EagerPyFunc." in out


def test_bench_sees_other_numbers(run, monkeypatch):
    monkeypatch.setattr(bench, "_SECONDS", 0.0)
    monkeypatch.setattr(bench, "vmap", lambda fn, in_axes: lambda x: x + 1.0)
    code, out, _ = run("bench", f"{F}:grows", "--input", "float32", "-n", "4")
    assert code == 1
    assert "other numbers" in out


def _process(*argv, **kwargs):
    return subprocess.run(
        [sys.executable, "-m", "tf_pfor", *argv], capture_output=True, text=True, check=False,
        cwd=imports.ROOT, timeout=300, **kwargs,
    )  # fmt: skip


def test_a_process_is_quiet():
    """TensorFlow's start-up messages stay out of both streams."""
    found = _process("explain", f"{F}:linear", "--input", "float32[4,3]", env=CLEAN)
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.startswith("linear, n = unknown\n")


def test_a_process_shows_the_mistakes_of_a_user():
    found = _process("explain", f"{F}:linear", "--input", "float32[3]", env=CLEAN)
    assert found.returncode == 2  # a vector by a matrix
    assert "functions.py" in found.stderr
    assert "oneDNN" not in found.stderr


def test_help_of_a_process():
    found = _process("--help")
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.startswith("usage: python -m tf_pfor [-h]")
    for command in ("explain", "coverage", "doctor", "bench"):
        assert f"\n    {command} " in found.stdout


def test_a_process_without_stderr():
    found = _process("--version", preexec_fn=lambda: os.close(2))
    assert (found.returncode, found.stdout) == (0, f"tf_pfor {tf_pfor.__version__}\n")


def _quiet(code):
    """Runs code that imports ``quiet`` by itself, without TensorFlow."""
    folder = str(imports.ROOT / "tf_pfor" / "frontends")
    code = f"import sys\nsys.path.insert(0, {folder!r})\nimport os, quiet\n{code}"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_other_programs_hear_tensorflow():
    assert _quiet("print(quiet.is_command())").stdout == "False\n"
    for argv, is_command in {
        ("python", "-m", "tf_pfor", "doctor"): True,
        ("python", "-X", "dev", "-mtf_pfor", "doctor"): True,
        ("python", "-m", "other", "tf_pfor"): False,
        ("python", "-m", "tf_pfor.other", "doctor"): False,
    }.items():
        code = f"sys.orig_argv, sys.argv = {[*argv]}, ['-m', {argv[-1]!r}]"
        found = _quiet(f"{code}\nprint(quiet.is_command())")
        assert found.stdout == f"{is_command}\n", (argv, found.stderr)


def test_what_is_held_back_is_shown_with_an_error():
    found = _quiet(
        "with quiet.held_back():\n"
        "    os.write(2, b'unseen')\n"
        "with quiet.held_back():\n"
        "    os.write(2, b'the reason')\n"
        "    raise ImportError('broken')\n"
    )
    assert "the reason" in found.stderr
    assert "broken" in found.stderr
    assert "unseen" not in found.stderr
