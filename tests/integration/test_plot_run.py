"""scripts/plot_run.py: pictures of runs, and one line for every mistake."""
import json
import shutil
import struct
import subprocess
import sys
import xml.etree.ElementTree

import pytest
from bert_fixture import ROOT, train, write_model, write_shard

SCRIPT = ROOT / "scripts/plot_run.py"


def plot(*arguments, folder, expect=0):
    done = subprocess.run([sys.executable, SCRIPT, *map(str, arguments)], cwd=folder, capture_output=True, text=True)
    assert done.returncode == expect, done.stderr
    if expect:
        assert len(done.stderr.splitlines()) == 1 and done.stderr.startswith("plot_run: "), done.stderr
    else:
        assert not done.stderr
    return done


def line(kind="train", step=1, **values):
    return json.dumps({"kind": kind, "step": step, "mlm_loss": 5.0, "sequences_per_s": 30.0, "peak_allocated_bytes": 1 << 28,
                       "lr": 1e-4, **values}) + "\n"


def write_run(folder, text):
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text(text)
    return folder


def png_size(path):
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", head[16:24])


def svg_text(path):
    xml.etree.ElementTree.parse(path)
    return path.read_text()


class TestPictures:
    def test_of_a_real_run_lie_in_its_folder(self, tmp_path):
        write_model(tmp_path / "model")
        trained = train(tmp_path, tmp_path / "model", [write_shard(tmp_path / "f1.hdf5")],
                        data={"validation": [str(write_shard(tmp_path / "held.hdf5"))]}, train={"steps": 6})
        done = plot("run", "--reference", "unigram entropy=2.5", folder=tmp_path)
        assert done.stdout.split() == ["run/curve.png", "run/curve.svg"]
        width, height = png_size(trained.folder / "curve.png")
        assert width >= 1000 and 0.5 < height / width < 0.8
        svg = svg_text(trained.folder / "curve.svg")
        for words in ("Masked-token loss", "held out", "Throughput", "Peak memory", "Learning rate"):
            assert f"<!-- {words} -->" in svg  # matplotlib's note beside the outlines of a text
        assert "stroke-dasharray" in svg  # the reference
        assert not list(trained.folder.glob(".curve*"))

    def test_of_several_runs_have_their_names_and_lie_here(self, tmp_path):
        for name in ("a/one", "a/two", "b/two"):
            write_run(tmp_path / name, "".join(line(step=step) for step in range(1000, 20000, 1000)))
        plot("a/one", "a/two", "b/two", folder=tmp_path)
        assert png_size(tmp_path / "curves.png")[0] >= 1000
        svg = svg_text(tmp_path / "curves.svg")
        for words in ("one", "a/two", "b/two", "10,000"):
            assert f"<!-- {words} -->" in svg

    def test_of_phases_are_drawn_one_after_another(self, tmp_path):
        for name in ("first", "second"):
            write_run(tmp_path / name, "".join(line(step=step) for step in range(1, 4001)))
        plot("first", "second", "--phases", "--output", "joined.svg", folder=tmp_path)
        plot("first", "second", "--output", "beside.svg", folder=tmp_path)
        assert "<!-- 7,000 -->" in svg_text(tmp_path / "joined.svg")
        assert "<!-- 7,000 -->" not in svg_text(tmp_path / "beside.svg")

    def test_equal_metrics_give_equal_bytes(self, tmp_path):
        write_run(tmp_path / "run", line() + line(step=2))
        files = [tmp_path / name for name in ("a.svg", "b.svg", "a.PNG", "b.PNG")]
        plot("run", "--output", *files[::2], folder=tmp_path)
        plot("run", "--output", *files[1::2], folder=tmp_path)
        assert files[0].read_bytes() == files[1].read_bytes() and files[2].read_bytes() == files[3].read_bytes()
        assert not (tmp_path / "run/curve.png").exists()

    @pytest.mark.parametrize("text", [
        line(), line() + line("validation", 1), line(mlm_loss=None) + line(step=2, lr=None),
        line(mlm_loss=float("nan")) + line(step=2, mlm_loss=float("inf"), peak_allocated_bytes=None),
        line() + '{"kind": "train", "st', line() + "\n" + line(step=2), line(lr=0.0, peak_allocated_bytes=0, sequences_per_s=0.0),
        line() + line("validation", 1, mlm_loss=None) + line("later kind", 1, what=[1]), line() + line(step=2, peak_allocated_bytes=9 << 30),
    ])
    def test_can_be_made_of_incomplete_records(self, tmp_path, text):
        write_run(tmp_path / "run", text)
        plot("run", "--reference", "r=3", folder=tmp_path)


class TestMistakes:
    @pytest.mark.parametrize("text, words", [
        (None, ["run", "no metrics.jsonl"]), ("", ["metrics.jsonl", "no train records"]),
        (line("validation"), ["no train records"]), (line() + "{broken}\n" + line(step=2), ["metrics.jsonl:2", "not JSON"]),
        (line() + "[1]\n", ["metrics.jsonl:2"]), (line() + '{"kind": "train"}\n', ["metrics.jsonl:2", "step"]),
        ('{"kind": "train", "st', ["no train records"]),
    ])
    def test_in_a_run_name_file_and_line(self, tmp_path, text, words):
        write_run(tmp_path / "run", text or "")
        if text is None:
            (tmp_path / "run/metrics.jsonl").unlink()
        error = plot("run", folder=tmp_path, expect=2).stderr
        assert all(word in error for word in words), error
        assert not list(tmp_path.rglob("*.png"))

    def test_in_arguments(self, tmp_path):
        write_run(tmp_path / "run", line())
        assert "gone: no such folder" in plot("gone", folder=tmp_path, expect=2).stderr
        assert "RUN_DIR" in plot(folder=tmp_path, expect=2).stderr
        assert "a.pdf" in plot("run", "--output", "a.pdf", folder=tmp_path, expect=2).stderr
        assert "gone/a.png" in plot("run", "--output", "gone/a.png", folder=tmp_path, expect=2).stderr
        for reference in ("entropy", "entropy=x", "=3", "entropy=nan"):
            assert "LABEL=LOSS" in plot("run", "--reference", reference, folder=tmp_path, expect=2).stderr
        for name in "abcdefgh":
            shutil.copytree(tmp_path / "run", tmp_path / name)
        assert "at most 7" in plot(*"abcdefgh", folder=tmp_path, expect=2).stderr
        assert "Draws the course" in plot("--help", folder=tmp_path).stdout
