"""bench/figures.py: which measurement a table of bench/tables shows, and what it says of files that it cannot read.

    tables_test.py ROOT
"""

import atexit
import contextlib
import io
import json
import pathlib
import shutil
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(sys.argv[1]) / "bench"))
import figures  # noqa: E402

MACHINE = {"name": "m", "title": "M", "results": "m.jsonl", "processor": "family 1", "targets": {"lenet": [2.0, 3.0]}}
folder = pathlib.Path(tempfile.mkdtemp())
atexit.register(shutil.rmtree, folder)
figures.RESULTS = folder


def write(*records):
    (folder / "m.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def line(run, turn, side, speed, **more):
    return {"run": run, "round": turn, "model": "lenet", "global_batch": 64, "ranks": 1, "processor": "family 1 model 2", "side": side,
            "samples_per_second": speed, **more}


def row():
    rows = figures.cpu_steps(MACHINE)
    assert len(rows) == 1, rows
    return rows[0]


def rejects(text, function, *arguments):
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        try:
            function(*arguments)
        except SystemExit:
            pass
    assert text in said.getvalue(), (text, said.getvalue())


# Turns count, not first tries, and the ratio is the median of the rounds' ratios.
OLD = [line("1", 0, "ddp_train fp32", 1), line("1", 0, "ddp_train bf16", 50), line("1", 0, "PyTorch fp32 eager", 9),
       line("1", 0, "PyTorch fp32 compile", 8), line("1", 1, "ddp_train fp32", 40), line("1", 1, "PyTorch fp32 eager", 10),
       line("1", 2, "PyTorch fp32 eager", 20), line("1", 2, "ddp_train fp32", 60), line("1", 3, "ddp_train fp32", 60),
       line("1", 1, "ddp_train bf16", 90), line("1", 2, "ddp_train bf16", 90), line("1", 3, "PyTorch fp32 eager", 30)]
write(*OLD)
assert row()["same"][:6] == (60, "fp32", 20, "fp32", 3.0, 3), row()
assert row()["best"][:6] == (90, "bf16", 15, "fp32", 6.75, 2), row()
# A newer run that only tried does not replace it; one in turns does, for its precision alone.
write(*OLD, line("2", 0, "ddp_train fp32", 7), line("2", 0, "PyTorch fp32 eager", 7))
assert row()["same"].ratio == 3.0
write(*OLD, line("3", 0, "ddp_train fp32", 7), line("3", 0, "PyTorch fp32 eager", 7), line("3", 1, "ddp_train fp32", 8),
      line("3", 1, "PyTorch fp32 eager", 4))
assert row()["same"].ratio == 2.0 and row()["best"].ratio == 6.75, row()
# Another processor, another number of ranks.
write(*OLD, line("4", 1, "ddp_train fp32", 8, processor="family 12"), line("4", 1, "PyTorch fp32 eager", 8, processor="family 12"))
assert row()["same"].ratio == 3.0
write(*OLD, line("5", 1, "ddp_train fp32", 8, ranks=2), line("5", 1, "PyTorch fp32 eager", 8, ranks=2))
assert [one["ranks"] for one in figures.cpu_steps(MACHINE)] == [1, 2]
# Only tries.
write(line("1", 0, "ddp_train fp32", 8), line("1", 0, "PyTorch fp32 eager", 4), line("1", 0, "PyTorch fp32 compile", 5))
assert row()["same"].ratio == 1.6 and figures.rounds_of(row()["same"]) == "once, not in turns"
# Newest figure in each column, and conditions.
write({"a": "x", "b": 1, "c": 0.5}, {"a": "y", "b": 1000, "c": 2}, {"a": "x", "b": 3, "d": "text"})
assert figures.generic("m.jsonl by=a | a | b | c:.2f | d")[2:] == ["| x |     3 | 0.50 | text |", "| y | 1,000 | 2.00 |      |"]
assert figures.generic('m.jsonl a="y" | b')[2:] == ["| 1,000 |"]
rejects("no record with {'a': 'z'}", figures.generic, "m.jsonl a=z | b")
rejects("no 'e' in records", figures.generic, "m.jsonl | e")
rejects("nothing.jsonl", figures.generic, "nothing.jsonl | e")
(folder / "m.jsonl").write_text('{"a": 1}\n{"a": \n', encoding="utf-8")
rejects("m.jsonl:2:", figures.generic, "m.jsonl | a")
write({"model": "lenet", "global_batch": 64, "ranks": 1, "processor": "family 1", "side": "ddp_train fp32", "samples_per_second": 1})
rejects("m.jsonl:1: a record without 'run' and 'round'", figures.cpu_steps, MACHINE)
print("tables_test: tables show the newest measurement in turns")
