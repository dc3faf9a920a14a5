"""The faults that ``python -m tools.mutants`` puts into copies of the package are up to date."""

import pathlib

import pytest

import tf_pfor
from tools.mutants import reach
from tools.mutants.faults import Fault, faults

PACKAGE = pathlib.Path(tf_pfor.__file__).parent


def test_there_are_a_hundred_faults_in_all_rooms():
    found = faults()
    assert len({f.old for f in found}) >= 100
    rooms = {pathlib.PurePath(f.file).parts[0] for f in found}
    assert rooms >= {"api", "converters", "core", "derivatives", "fallback", "frontends", "layouts"}
    assert rooms >= {"reports", "tracing", "walker"}


def test_each_fault_stands_in_its_file_once():
    gone = [f"{f.file}: {f.old}" for f in faults() if not f.is_there(PACKAGE)]
    assert not gone, "\n".join(gone)


def test_a_fault_that_is_gone_is_not_put_in(tmp_path):
    (tmp_path / "a.py").write_text("x = 1\n")
    Fault.of("a.py: x is two\n- x = 1\n+ x = 2").put_into(tmp_path)
    assert (tmp_path / "a.py").read_text() == "x = 2\n"
    with pytest.raises(SystemExit, match="a.py does not have this text once: x = 1"):
        Fault.of("a.py: x is two\n- x = 1\n+ x = 2").put_into(tmp_path)


def test_probes_stand_in_front_of_the_statements_of_faults(tmp_path):
    lines = [
        "def f(x):", "    if x > 1:", "        y = 1", "    elif x:", "        y = 2", "    else:",
    ]  # fmt: skip
    (tmp_path / "a.py").write_text(
        "\n".join([*lines, "        y = (", "            3", "        )"])
    )
    changed = {"y = 2": "y = 3", "            3": "            4", "elif x:": "elif not x:"}
    faults = [Fault("a.py", "", old, new) for old, new in changed.items()]
    reach.put_probes(tmp_path, faults)
    found = (tmp_path / "a.py").read_text().splitlines()
    places = {found[i + 1].strip(): line for i, line in enumerate(found) if "REACHED" in line}
    assert [*places] == ["if x > 1:", "y = 2", "y = ("]
    assert [line.rstrip(")").rpartition("(")[2] for line in places.values()] == ["2", "0", "1"]
