"""`gluonjit score`: every row once, whatever happens; and the examples for clusters."""

import importlib.util
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import gluonjit as mx
from gluonjit.tools.cli import main
from gluonjit.tools.scoring import engines, plan, scorer

pa = pytest.importorskip("pyarrow")
import pyarrow.parquet as pq  # noqa: E402


def table(rows, seed=0, first=0):
    x = np.random.default_rng(seed).standard_normal((rows, 4)).astype(np.float32)
    flat = pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), 4)
    return pa.table({"id": np.arange(first, first + rows), "data": flat, "name": [f"row {k}" for k in range(rows)]})


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Two files: one of row groups of 30, one in a folder of its own with the same name."""
    monkeypatch.chdir(tmp_path)
    os.makedirs("in/more")
    pq.write_table(table(100), "in/a.parquet", row_group_size=30)
    pq.write_table(table(50, 1, 100), "in/more/a.parquet")
    return tmp_path


@pytest.fixture
def score(folder, files, capfd):
    def score(*arguments, given=("in/**/*.parquet",), output="out", shape="data=batchx4"):
        words = ["score", *files, "--output", output, "--batch-size", "8"]
        words += [w for name in given for w in ("--rows", name)] + (["--input", shape] if shape else [])
        status = main([*words, *arguments])
        return status, *capfd.readouterr()

    return score


def expected(files, rows):
    return mx.Predictor(*files, inputs={"data": "batchx4"})({"data": np.stack(rows["data"].to_numpy())})


def test_rows_and_results(score, files):
    status, out, _ = score()
    assert (status, out) == (0, "150 rows in 5 files, out\n")
    found, rows = (
        pq.read_table("out"),
        pa.concat_tables([pq.read_table("in/a.parquet"), pq.read_table("in/more/a.parquet")]),
    )
    assert found.column_names == ["id", "name", "net_dense1_fwd_output"]
    assert found["id"].equals(rows["id"]) and found["name"].equals(rows["name"])
    (y,) = expected(files, rows).values()
    # Calls of other numbers of rows may round differently.
    np.testing.assert_allclose(np.stack(found["net_dense1_fwd_output"].to_numpy()), y, rtol=0, atol=1e-6)


def test_an_onnx_file_has_the_shapes_of_its_inputs(score, files):
    pytest.importorskip("onnx", reason="the extra onnx is not installed")
    assert score()[0] == 0
    assert main(["convert", *files, "net.onnx", "--input", "data=batchx4"]) == 0
    assert main(["score", "net.onnx", "--rows", "in/**/*.parquet", "--output", "onnx", "--batch-size", "8"]) == 0
    assert mx.Predictor("net.onnx").model.rows == "batch"
    for name in os.listdir("out"):
        if name.startswith("0"):
            ours, theirs = (pq.read_table(f"{folder}/{name}").columns[-1] for folder in ("onnx", "out"))
            assert ours.equals(theirs)


def test_a_second_run_has_nothing_to_do(score):
    score()
    before = {name: os.stat(f"out/{name}").st_mtime_ns for name in os.listdir("out") if name.startswith("0")}
    status, _, err = score()
    assert status == 0 and "going on: 5 of 5 parts are there" in err
    assert before == {name: os.stat(f"out/{name}").st_mtime_ns for name in before}


def test_missing_parts_are_made_again_with_the_same_bits(score):
    score()
    whole = pq.read_table("out")
    os.remove("out/00000-a-00001.parquet")
    (open("out/_new-1-x.parquet", "w")).close()
    assert score()[0] == 0
    assert pq.read_table("out").equals(whole)
    assert not os.path.exists("out/_new-1-x.parquet")


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="kills a process with its workers")
def test_killed_twice(folder, files):
    for k in range(3):
        pq.write_table(table(300, k, 300 * k), f"in/b{k}.parquet", row_group_size=10)
    command = ["score", *files, "--input", "data=batchx4", "--rows", "in/b*.parquet"]
    # One row a call, so that there is time to be killed in.
    command += ["--batch-size", "1", "--output"]
    assert main([*command, "undisturbed"]) == 0
    rng, killed = random.Random(7), 0
    for _ in range(2):
        started = [sys.executable, "-m", "gluonjit", *command, "out", "--workers", "2"]
        run = subprocess.Popen(started, start_new_session=True, stderr=subprocess.DEVNULL)
        there = len(os.listdir("out")) if os.path.isdir("out") else 0
        while run.poll() is None and (not os.path.isdir("out") or len(os.listdir("out")) < there + rng.randint(3, 20)):
            time.sleep(0.001)
        killed += run.poll() is None
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
    assert killed
    assert main([*command, "out"]) == 0
    assert pq.read_table("out").equals(pq.read_table("undisturbed"))
    assert not [name for name in os.listdir("out") if name.startswith("_new")]


MODEL = """
import os, gluonjit as mx
net = mx.gluon.nn.Dense(2, in_units=4)
net.initialize(mx.init.One())
"""
DIES_ONCE = (
    MODEL
    + """
if not os.path.exists("died"):
    open("died", "w").close()
    os.kill(os.getpid(), 9)
"""
)
DIES = MODEL + "os.kill(os.getpid(), 9)"
STAYS = (
    MODEL
    + """
import fcntl, time
alive = open(f"alive-{os.getpid()}", "w")
fcntl.flock(alive, fcntl.LOCK_EX)
time.sleep(100)
"""
)


def of_workers(folder, text):
    (folder / "model.py").write_text(text)
    return ["score", "model.py:net", "--input", "data=batchx4", "--rows", "in/a.parquet", "--output", "out"]


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="kills a process")
def test_a_worker_that_dies_is_replaced(folder, capfd):
    assert main([*of_workers(folder, DIES_ONCE), "--workers", "2"]) == 0
    out, err = capfd.readouterr()
    assert "100 rows in 4 files" in out
    assert "a worker has ended, killed or out of memory: its part is begun again" in err
    assert pq.read_table("out")["id"].to_pylist() == list(range(100))


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="kills a process")
def test_workers_that_all_die(folder, capfd, monkeypatch):
    monkeypatch.setattr(engines, "RETRIES", 1)
    assert main([*of_workers(folder, DIES), "--workers", "2"]) == 1
    assert "workers have ended 2 times, killed or out of memory" in capfd.readouterr().err


def test_workers_do_not_outlive_the_run(folder):
    fcntl = pytest.importorskip("fcntl")
    command = [sys.executable, "-m", "gluonjit", *of_workers(folder, STAYS), "--workers", "2"]
    run = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    while run.poll() is None and not (alive := list(folder.glob("alive-*"))):
        time.sleep(0.01)
    time.sleep(0.05)  # the file is there before it is locked
    run.kill()
    run.wait()
    with open(alive[0]) as f:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                time.sleep(0.05)
    pytest.fail("a worker is still there")


def test_two_processes_and_kept_columns(score):
    score()
    assert score("--workers", "2", "--keep", "id", output="two")[0] == 0
    assert pq.read_table("two").equals(pq.read_table("out").drop_columns(["name"]))


def test_another_job_in_the_folder(score):
    score()
    status, _, err = score("--keep", "id")
    assert status == 1 and "belongs to a run with other kept columns; take another folder" in err
    pq.write_table(table(100, 5), "in/a.parquet", row_group_size=30)
    assert "other files" in score()[2]


def test_a_command_that_was_wrong_is_corrected(score):
    pq.write_table(table(5).rename_columns(["id", "pixels", "name"]), "in/c.parquet")
    err = score(given=("in/c.parquet",))[2]
    assert "--column data=COLUMN chooses one" in err and err.count("the columns are") == 1 and "known" not in err
    assert score("--column", "data=pixels", given=("in/c.parquet",))[0] == 0


@pytest.mark.parametrize("name", ["a[1]* b", "\u6f22" * 80])
def test_names_of_files(score, name):
    pq.write_table(table(5), f"in/{name}.parquet")
    assert score(given=(f"in/{name}.parquet",))[0] == 0


def test_columns_of_one_name(score):
    pq.write_table(table(5).rename_columns(["id", "data", "id"]), "in/c.parquet")
    assert "2 columns have the name 'id'" in score(given=("in/c.parquet",))[2]


def test_a_file_that_is_named_twice(folder):
    files = plan.input_files(("in/more/a.parquet", "in", "./in/more/../more/a.parquet"), folder / "out")
    assert files == ["in/more/a.parquet", "in/a.parquet"]


def test_the_only_column_whatever_its_name(score):
    for name in ("data", "pixels"):
        pq.write_table(table(5).select(["data"]).rename_columns([name]), "in/c.parquet")
        assert score(given=("in/c.parquet",), output=name)[:2] == (
            0,
            f"5 rows of the column {name} in 1 file, {name}\n",
        )


def test_a_job_of_something_else(score, folder):
    (folder / "out").mkdir()
    (folder / "out" / "_job.json").write_text("[1]")
    assert "out/_job.json is not that of a run" in score()[2]


def test_a_folder_of_something_else(score, folder):
    (folder / "out").mkdir()
    (folder / "out" / "thesis.txt").write_text("years of work")
    status, _, err = score()
    assert status == 1 and "holds 'thesis.txt'" in err


def test_two_runs_at_once(score, folder):
    pytest.importorskip("fcntl")
    with plan.only_run(folder / "out"):
        status, _, err = score()
    assert status == 1 and "another run is working in this folder" in err


def test_results_are_no_input(score):
    assert "is in the folder of results" in score(given=("in/a.parquet",), output="in")[2]


COLUMNS = {
    "lists": pa.array([[1.0, 2, 3, 4], [5, 6, 7, 8]]),
    "large lists": pa.array([[1.0, 2, 3, 4], [5, 6, 7, 8]], pa.large_list(pa.float64())),
    "nested lists": pa.array([[[1.0, 2], [3, 4]], [[5, 6], [7, 8]]]),
    "integers": pa.array([[1, 2, 3, 4], [5, 6, 7, 8]], pa.list_(pa.uint8())),
    "halves": pa.array(np.arange(1, 9, dtype=np.float16).reshape(2, 4).tolist(), pa.list_(pa.float32())),
    "tensors": pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(1, 9, dtype=np.float32).reshape(2, 4)),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_columns_of_lists(score, files, kind):
    pq.write_table(pa.table({"data": COLUMNS[kind]}), "in/c.parquet")
    assert score(given=("in/c.parquet",))[0] == 0
    (y,) = mx.Predictor(*files, inputs={"data": "batchx4"})(
        {"data": np.arange(1, 9, dtype=np.float32).reshape(2, 4)}
    ).values()
    np.testing.assert_allclose(np.stack(pq.read_table("out")["net_dense1_fwd_output"].to_numpy()), y, rtol=1e-6)


def test_several_columns_are_an_input(score):
    columns = {name: pa.array([k + 0.5, k + 1.5]) for k, name in enumerate("wxyz")}
    columns["w"] = columns["w"].dictionary_encode()
    columns["x"] = columns["x"].cast(pa.decimal128(5, 1))
    pq.write_table(pa.table({"id": [1, 2], **columns}), "in/c.parquet")
    assert score("--column", "data=w,x,y,z", given=("in/c.parquet",))[0] == 0
    assert pq.read_table("out").column_names == ["id", "net_dense1_fwd_output"]


def test_csv(score, folder):
    (folder / "in" / "c.csv").write_text("w,x,y,z,id\n" + "".join(f"{k},1,2,3.5,{k}\n" for k in range(20)))
    status, out, _ = score("--column", "data=w,x,y,z", given=("in/c.csv",))
    assert (status, out) == (0, "20 rows in 1 file, out\n")
    assert pq.read_table("out")["id"].to_pylist() == list(range(20))


def test_csv_of_floats_that_begin_as_integers(score, folder):
    rows = 1 << 17  # types are guessed from the first megabyte
    (folder / "in" / "c.csv").write_text("w,x,y,z\n" + "1,2,3,4\n" * rows + "0.5,2,3,4\n")
    assert score("--column", "data=w,x,y,z", "--batch-size", "65536", given=("in/c.csv",))[:2] == (
        0,
        f"{rows + 1} rows in 1 file, out\n",
    )


def test_csv_of_no_rows(score, folder):
    (folder / "in" / "c.csv").write_text("w,x,y,z\n")
    assert score("--column", "data=w,x,y,z", given=("in/c.csv",))[:2] == (0, "0 rows in 1 file, out\n")


def test_rows_are_counted_from_the_beginning_of_their_group(score):
    """In the second batch of 8, also for elements of lists of lists."""
    rows = [[[1.0, 2], [3, 4]] for _ in range(20)]
    rows[13][1][0] = None
    pq.write_table(pa.table({"data": rows}), "in/c.parquet")
    assert "row group 0, row 13: column 'data[][]' has no value there" in score(given=("in/c.parquet",))[2]
    rows[13] = [[1.0, 2], [3]]
    pq.write_table(pa.table({"data": rows}), "in/d.parquet")
    assert "row group 0, row 13: column 'data[]' has 1 elements" in score(given=("in/d.parquet",), output="b")[2]


def test_empty_files(score):
    pq.write_table(table(0), "in/c.parquet")
    pq.write_table(table(5), "in/d.parquet")
    assert score(given=("in/c.parquet", "in/d.parquet"))[1].startswith("5 rows")


WRONG = {
    "a null": (pa.array([[1.0, 2, 3, 4], None]), "row 1: column 'data' has no value there"),
    "a null inside": (pa.array([[1.0, 2, 3, 4], [5, 6, None, 8]]), "has no value there"),
    "another length": (
        pa.array([[1.0, 2, 3, 4], [5, 6, 7]]),
        "row 1: column 'data' has 3 elements there, and 4 in row 0",
    ),
    "too long": (pa.array([[1.0] * 5] * 2), "input data is float32[2, 5]; the model takes float32[batch,4]"),
    "text": (pa.array(["a", "b"]), "is of type string; a model takes numbers"),
    "times": (pa.array([0, 1], pa.timestamp("s")), "is of type timestamp"),
    "structs": (pa.array([{"a": 1}, {"a": 2}]), "is of type struct"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_rows_that_are_none(score, kind):
    column, says = WRONG[kind]
    pq.write_table(pa.table({"data": column}), "in/c.parquet")
    status, _, err = score(given=("in/c.parquet",))
    assert status == 1 and says in err and "in/c.parquet, row group 0" in err
    assert not os.path.exists("out/_SUCCESS")


def test_columns_that_are_not_there(score):
    pq.write_table(table(5).rename_columns(["id", "date", "name"]), "in/c.parquet")
    status, _, err = score(given=("in/c.parquet",))
    assert status == 1 and "no column 'data' for the input data; did you mean 'date'?" in err
    assert (
        "no such input; did you mean 'data'?" in score("--column", "dat=date", given=("in/c.parquet",), output="b")[2]
    )
    assert "--keep ident: there is no such column" in score("--keep", "ident", output="c")[2]


def test_files_that_are_none(score, folder):
    (folder / "in" / "c.parquet").write_bytes(b"PAR1" + bytes(100) + b"PAR1")
    assert "in/c.parquet is not a Parquet file that can be read" in score(given=("in/c.parquet",))[2]
    assert "--rows 'in/*.orc': there is no such file" in score(given=("in/*.orc",), output="b")[2]
    whole = (folder / "in" / "a.parquet").read_bytes()
    (folder / "in" / "d.parquet").write_bytes(whole[:40] + bytes(300) + whole[340:])
    status, _, err = score(given=("in/d.parquet",), output="c")
    assert status == 1 and "in/d.parquet" in err


def test_results_with_the_name_of_a_column(score):
    pq.write_table(table(5).rename_columns(["net_dense1_fwd_output", "data", "name"]), "in/c.parquet")
    assert "--keep says which columns are kept" in score(given=("in/c.parquet",))[2]


def test_a_model_whose_rows_mix(folder, capfd):
    x = mx.sym.var("data")
    centred = mx.sym.broadcast_sub(x, mx.sym.mean(x, axis=0, keepdims=True))
    mx.sym.broadcast_add(centred, mx.sym.var("bias"), name="mixed").save("mix-symbol.json")
    mx.nd.save("mix.params", {"arg:bias": mx.nd.ones((1, 4))})
    command = [
        "score",
        "mix-symbol.json",
        "mix.params",
        "--input",
        "data=batchx4",
        "--rows",
        "in/a.parquet",
        "--output",
    ]
    assert main([*command, "out"]) == 1
    assert "depend on which rows are computed together" in capfd.readouterr().err
    assert main([*command, "any", "--any-rows"]) == 0


def test_memory_is_that_of_a_batch(score, monkeypatch):
    seen = []
    batches = scorer._batches
    monkeypatch.setattr(scorer, "_batches", lambda *a: (seen.append(b.num_rows) or b for b in batches(*a)))
    score()
    assert max(seen) == 8


def test_a_row_group_is_not_read_at_once(tmp_path):
    x = pa.array(np.random.default_rng(0).random(1 << 21, np.float32))  # 8 MB
    rows = pa.table({"data": pa.FixedSizeListArray.from_arrays(x, 256)})
    path = str(tmp_path / "in.parquet")
    pq.write_table(rows, path, compression="none", use_dictionary=False)
    before = pa.total_allocated_bytes()
    held = [pa.total_allocated_bytes() - before for _ in scorer._batches(plan.Part(path, 0, None, ""), 64)]
    assert max(held) < rows.nbytes / 2


@pytest.mark.parametrize("engine", ["ray", "dask"])
def test_engines(score, files, engine):
    if not importlib.util.find_spec(engine):
        assert f"--engine {engine} needs" in score("--engine", engine)[2]
        return
    score()
    command = ["score", *files, "--input", "data=batchx4", "--rows", "in/**/*.parquet", "--output", "there"]
    command += ["--batch-size", "8", "--workers", "2", "--engine", engine]
    subprocess.run([sys.executable, "-m", "gluonjit", *command], check=True)  # clusters leave threads behind
    assert pq.read_table("there").equals(pq.read_table("out"))


@pytest.mark.parametrize(
    ("example", "package"), [("ray_data", "ray"), ("dask_partitions", "dask"), ("spark_udf", "pyspark")]
)
def test_examples_for_clusters(root, example, package):
    if not importlib.util.find_spec(package):
        pytest.skip(f"needs {package}")
    if package == "pyspark" and not shutil.which("java"):
        pytest.skip("Spark needs a JVM")
    program = root / "examples" / "clusters" / f"{example}.py"
    done = subprocess.run([sys.executable, program], capture_output=True, text=True)
    assert done.stdout.endswith("(1000, 499500)\n"), done.stderr


def test_the_document(root, folder, capfd):
    """The command in docs/batch-scoring.md."""
    text = (root / "docs" / "batch-scoring.md").read_text().replace("\\\n", "")
    (command,) = re.findall(r"^gluonjit (score .*)$", text, re.M)
    (folder / "examples").symlink_to(root / "examples")
    (folder / "images").mkdir()
    pixels = np.random.default_rng(0).standard_normal((5, 3, 17, 17)).astype(np.float32)
    pq.write_table(pa.table({"name": list("abcde"), "pixels": [x.tolist() for x in pixels]}), "images/one.parquet")
    assert main(shlex.split(command)) == 0, capfd.readouterr().err
    assert pq.read_table("scores").column_names[0] == "name"
    assert pq.read_table("scores").num_rows == 5


def test_the_example_in_the_help(root, folder, capfd):
    with pytest.raises(SystemExit):
        main(["score", "--help"])
    lines = re.findall(r"^  (?:python|gluonjit) .*$", capfd.readouterr().out, re.M)
    (folder / "examples").symlink_to(root / "examples")
    for line in lines:
        line = re.sub("^  (python|gluonjit)", f"{sys.executable} " + r"-m \1", line).replace("-m python", "")
        subprocess.run(line, shell=True, check=True)
    assert len(lines) == 2 and pq.read_table("scores").num_rows == 100
