"""`tempo prepare` as its users meet it: what it leaves, what it refuses, and what becomes of it when it is killed."""
import gzip
import hashlib
import json
import os
import pathlib
import signal
import subprocess
import time

import h5py
import pytest
from bert_fixture import TEMPO, run
from prepared_shards import all_rows, prepare, write_config, write_vocabulary

WORDS = [f"w{n}" for n in range(500)]


def document(d, lines=12):
    return "".join(" ".join(f"w{(d * 31 + s * 7 + k * k) % 500}" for k in range(9)) + "\n" for s in range(lines))


@pytest.fixture
def folder(tmp_path):
    write_vocabulary(tmp_path / "vocab.txt", WORDS)
    (tmp_path / "corpus.txt").write_text("\n".join(document(d) for d in range(300)))
    return tmp_path


def digests(folder):
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.rglob("*")) if p.is_file()}


def refuse(folder, *overrides, names=(), code=2, **keys):
    """Preparing must fail with one line that names `names`, and leave everything as it was."""
    config = write_config(folder, 64, **keys)
    before = digests(folder)
    done = run("prepare", config, *overrides, expect=code)
    errors = [line for line in done.stderr.splitlines() if " error " in line]
    assert len(errors) == 1 and done.stdout == "", done.stderr
    for name in names:
        assert str(name) in errors[0], errors[0]
    assert digests(folder) == before
    return done.stderr


def test_help_lists_its_keys():
    text = run("prepare", "--help").stdout
    for key in ("prepare.input", "prepare.whole_word", "data.sequence_length"):
        assert key in text
    assert "optimizer.lr" not in text


def test_what_it_leaves_and_says(folder):
    done = prepare(folder, 64, validation=0.1, shards=2)
    shards = folder / "shards"
    assert {str(p.relative_to(shards)) for p in shards.rglob("*") if p.is_file()} == {
        "shards_training_0000.hdf5", "shards_training_0001.hdf5", "validation/shards_test_0000.hdf5", "vocab.txt",
        "tokenizer_config.json", "prepare.json"}
    manifest = json.loads((shards / "prepare.json").read_text())
    rows = all_rows(shards)
    assert manifest["rows"] == len(rows) and manifest["documents"] == 300 and manifest["held_out_documents"] == 30
    assert manifest["fill"] == pytest.approx(sum(r["length"] for r in rows) / 64 / len(rows), abs=1e-12)
    assert f"{len(rows):,} of 64 tokens" in done.stdout and "unigram entropy" in done.stdout
    summary = json.loads(run("inspect", shards / "shards_training_0000.hdf5", "--json").stdout)
    assert summary["tokenizer_sha256"] == hashlib.sha256((folder / "vocab.txt").read_bytes()).hexdigest()
    with h5py.File(shards / "shards_training_0000.hdf5") as file:
        assert file.attrs["seed"] == 42 and file.attrs["sentences"] == "lines" and file.attrs["rows"] == summary["rows"]
        assert file["input_ids"].dtype == "int32" and file["segment_ids"].dtype == "int8"


def test_h5py_and_our_reader_see_the_same_rows(folder):
    prepare(folder, 64, shards=1)
    shard = folder / "shards/shards_training_0000.hdf5"
    shown = run("inspect", shard, "--json", *(word for row in range(0, 600, 7) for word in ("--row", row))).stdout
    with h5py.File(shard) as file:
        for line in shown.splitlines():
            row = json.loads(line)
            for name, values in row.items():
                if name != "row":
                    assert values == file[name][row["row"]].tolist(), (row["row"], name)
    assert len(shown.splitlines()) == 86


def test_an_epoch_can_be_trained_and_the_tokenizer_is_exported(folder):
    prepare(folder, 64)
    (folder / "run.yaml").write_text(
        "model: {hidden_size: 16, num_layers: 1, num_heads: 2, intermediate_size: 32, vocab_size: 505, max_positions: 64}\n"
        "data: {shards: shards}\ntrain: {device: cpu, global_batch: 64, steps: 3}\nrun: {dir: run}\n")
    run("train", folder / "run.yaml")
    assert (folder / "run/export/vocab.txt").read_bytes() == (folder / "vocab.txt").read_bytes()
    assert json.loads((folder / "run/export/tokenizer_config.json").read_text())["do_lower_case"] is True


def test_files_folders_patterns_and_gzip_are_one_corpus(folder):
    texts = folder / "texts/inner"
    texts.mkdir(parents=True)
    for d in range(40):
        name = texts / f"{d:03}.txt"
        name.write_text(document(d)) if d % 2 else gzip.open(f"{name}.gz", "wt").write(document(d))
    prepare(folder, 64, input="texts", output="one", documents="file")
    prepare(folder, 64, input=["texts/inner/*.gz", "texts/inner/*.txt"], output="two", documents="file")
    (folder / "plain.txt").write_text("\n".join(document(d) for d in range(40)))
    prepare(folder, 64, input="plain.txt", output="three")
    ids = [[row["ids"].tolist() for row in all_rows(folder / name)] for name in ("one", "two", "three")]
    assert ids[0] == ids[1] == ids[2] and len(ids[0]) > 40


def test_dry_run_writes_nothing(folder):
    config = write_config(folder, 64)
    before = digests(folder)
    assert "nothing was written" in run("prepare", config, "--dry-run").stdout
    assert digests(folder) == before and not (folder / "shards").exists()


@pytest.mark.parametrize("keys, names", [
    ({"input": "missing/*.txt"}, ["prepare.input", "nothing matches", "missing/*.txt"]),
    ({"input": "empty"}, ["prepare.input", "empty", "*.txt"]),
    ({"input": "nothing.txt"}, ["prepare.input", "no text"]),
    ({"input": "corpus.txt", "documents": "file"}, ["one file is one document", "blank_line"]),
    ({"input": "cut.txt.gz"}, ["cut.txt.gz", "cut off"]),
    ({"tokenizer": "none.txt"}, ["none.txt"]),
    ({"tokenizer": "no-mask.txt"}, ["no-mask.txt", "[MASK]"]),
    ({"tokenizer": "doubled.txt"}, ["doubled.txt", "w3"]),
    ({"output": "vocab.txt"}, ["prepare.output", "is a file"]),
    ({"output": "others"}, ["prepare.output", "others", "did not write"]),
    ({"validation": 0.005}, ["prepare.validation", "hold out more"]),
    ({"duplicates": 0}, ["prepare.duplicates", "0"]),
    ({"sentence": "icu"}, ["prepare.sentence", "prepare.sentences"]),
])
def test_mistakes_are_one_line_and_leave_nothing(folder, keys, names):
    (folder / "empty").mkdir()
    (folder / "nothing.txt").write_text("\n \n\t\n")
    packed = gzip.compress(document(1).encode() * 50)
    (folder / "cut.txt.gz").write_bytes(packed[:len(packed) // 2])
    (folder / "no-mask.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\nw1\n")
    write_vocabulary(folder / "doubled.txt", [*WORDS, "w3"])
    (folder / "others").mkdir()
    (folder / "others/theirs.hdf5").write_bytes(b"theirs")
    refuse(folder, names=names, **keys)


def test_missing_keys_are_all_named(folder):
    (folder / "bare.yaml").write_text("data: {sequence_length: 64}\n")
    done = run("prepare", folder / "bare.yaml", expect=2)
    for key in ("prepare.input", "prepare.tokenizer", "prepare.output"):
        assert f"{key} is missing" in done.stderr


def test_odd_text_is_read_and_counted(folder):
    text = "\ufeff" + document(0).replace("\n", "\r\n") + "\r\n" + document(1).replace(" ", "\x00 \x07", 3)
    (folder / "odd.txt").write_bytes(text.encode() + b"\n" + document(2).encode().replace(b"w", b"\xffw", 1) + b"w7 \xc3\n")
    (folder / "empty.txt").write_bytes(b"")
    done = prepare(folder, 64, input=["odd.txt", "empty.txt"])
    assert "2 places in the text are not UTF-8" in done.stderr and "1 input files hold no text" in done.stderr
    manifest = json.loads((folder / "shards/prepare.json").read_text())
    assert manifest["documents"] == 3 and manifest["unknown_tokens"] == 0 and manifest["bad_utf8"] == 2


def test_a_finished_set_is_replaced_only_when_asked(folder):
    prepare(folder, 64)
    refuse(folder, names=["prepare.overwrite=true"])
    prepare(folder, 64, seed=9, overwrite=True, shards=2)
    assert len(list((folder / "shards").glob("*.hdf5"))) == 2


def test_a_folder_in_use_is_refused(folder):
    (folder / "corpus.txt").write_text("\n".join(document(d) for d in range(8000)))
    config = write_config(folder, 64, duplicates=20)
    first = subprocess.Popen([TEMPO, "prepare", config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not (folder / "shards/.partial/lock").exists():
        assert first.poll() is None
        time.sleep(0.005)
    done = subprocess.run([TEMPO, "prepare", config], capture_output=True, text=True, timeout=60)
    assert first.wait(timeout=120) == 0
    assert done.returncode == 2 and "is in use by another tempo prepare" in done.stderr
    assert len(all_rows(folder / "shards")) > 0


def test_killed_and_run_again_it_finishes_with_the_same_bytes(folder):
    (folder / "corpus.txt").write_text("\n".join(document(d) for d in range(3000)))
    prepare(folder, 64, duplicates=20, output="whole", validation=0.1)
    whole = {name.replace("whole_", "NAME_"): digest for name, digest in digests(folder / "whole").items()}
    config = write_config(folder, 64, duplicates=20, output="killed", validation=0.1)
    for delay in (0.0, 0.1, 0.3, 0.6):
        process = subprocess.Popen([TEMPO, "prepare", config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not (folder / "killed/.partial").exists() and process.poll() is None:
            time.sleep(0.002)
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.wait()
        if (folder / "killed/prepare.json").exists():
            break
        left = [p for p in (folder / "killed").rglob("*.hdf5") if ".partial" not in str(p)]
        assert not left or (folder / "killed/.partial/moving").exists()
    if not (folder / "killed/prepare.json").exists():
        run("prepare", config)
    again = {name.replace("killed_", "NAME_"): digest for name, digest in digests(folder / "killed").items()}
    del whole["prepare.json"], again["prepare.json"]  # it names the shards
    assert again == whole


def test_disk_use_stays_near_the_output(folder):
    (folder / "corpus.txt").write_text("\n".join(document(d) for d in range(6000)))
    config = write_config(folder, 64, duplicates=20)
    process = subprocess.Popen([TEMPO, "prepare", config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    most = 0
    while process.poll() is None:
        used = 0
        for path in pathlib.Path(folder / "shards").rglob("*"):
            try:
                used += path.stat().st_blocks * 512
            except FileNotFoundError:
                pass
        most = max(most, used)
        time.sleep(0.01)
    assert process.returncode == 0
    output = sum(p.stat().st_size for p in (folder / "shards").rglob("*") if p.is_file())
    assert output > 1_000_000
    assert most <= 1.1 * output


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
@pytest.mark.parametrize("options, code, words", [("size=256k", 1, "No space left"), ("ro", 2, "cannot be written")])
def test_a_full_or_read_only_file_system_is_one_clear_error(folder, options, code, words):
    mount = folder / "mount"
    mount.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", mount], capture_output=True).returncode != 0:
        pytest.skip("this system does not let us mount")
    try:
        refuse(folder, names=["mount"], code=code, output="mount", duplicates=50)
        assert list(mount.iterdir()) == []
    finally:
        subprocess.run(["umount", mount], check=True)
