"""Cases from public reports that `tempo prepare` must get right: pairs, masking, shards. (Text cleaning: tests/data.)"""
import hashlib
import json
import pathlib
import shutil
import subprocess
import time

import h5py
import numpy as np
import pytest
from bert_fixture import TEMPO, run
from prepared_shards import all_rows, prepare, read_as_nvidia_does, write_config, write_vocabulary


def split_row(row):
    """The two segments of a row, with the masking undone; checks its frame."""
    original, length = row["original"], row["length"]
    assert original[0] == 2 and np.count_nonzero(original == 2) == 1
    first, last = np.flatnonzero(original == 3)
    assert last == length - 1
    expected = np.zeros(len(row["ids"]), int)
    expected[first + 1:length] = 1
    assert np.array_equal(row["segments"], expected)
    assert row["mask"][:length].all() and not row["mask"][length:].any() and not row["ids"][length:].any()
    return original[1:first], original[first + 1:last]


class TestNextSentencePairs:  # case 4
    def test_one_document_is_refused_at_once(self, tmp_path):
        (tmp_path / "corpus.txt").write_text("hello\ntom sawyer\nhow are you\n")
        write_vocabulary(tmp_path / "vocab.txt", "hello tom sawyer how are you".split())
        started = time.monotonic()
        done = prepare(tmp_path, expect=2)
        assert time.monotonic() - started < 5
        assert "1 document, but next-sentence pairs need two" in done.stderr
        assert not (tmp_path / "shards").exists()

    def forty_documents(self, folder, separator):
        words = [f"d{d}s{s}{half}" for d in range(40) for s in range(6) for half in "ab"]
        lines = [f"d{d}s{s}a d{d}s{s}b" for d in range(40) for s in range(6)]
        (folder / "corpus.txt").write_text("".join(line + "\n" + ("\n" if i % 6 == 5 else separator) for i, line in enumerate(lines)))
        write_vocabulary(folder / "vocab.txt", words)

    def test_labels_tell_true_successors_from_random_ones(self, tmp_path):
        self.forty_documents(tmp_path, "")
        prepare(tmp_path, duplicates=20)
        rows = all_rows(tmp_path / "shards")
        for row in rows:
            one, two = split_row(row)
            lines = [(int(i) - 5) // 2 for i in (one[-1], two[0])]
            if row["random"]:
                assert lines[0] // 6 != lines[1] // 6
            else:
                assert lines[0] // 6 == lines[1] // 6 and lines[1] == lines[0] + 1
        assert 0.45 <= np.mean([row["random"] for row in rows]) <= 0.65

    def test_blank_lines_between_all_sentences_are_noticed(self, tmp_path):
        self.forty_documents(tmp_path, "\n")
        done = prepare(tmp_path)
        assert "no document has two sentences" in done.stderr
        assert "blank lines" in done.stderr


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """2,000 documents of 8 lines of 12 words, of 100 whole words and 30 of three pieces."""
    folder = tmp_path_factory.mktemp("masking")
    write_vocabulary(folder / "vocab.txt", [f"w{n}" for n in range(100)] + [f"h{n}" for n in range(30)] + ["##m", "##t"])
    numbers = [(7 * i * i + 3 * i) % 130 for i in range(2000 * 8 * 12)]
    words = [f"w{n}" if n < 100 else f"h{n - 100}mt" for n in numbers]
    lines = [" ".join(words[at:at + 12]) for at in range(0, len(words), 12)]
    (folder / "corpus.txt").write_text("".join(line + "\n" + ("\n" if i % 8 == 7 else "") for i, line in enumerate(lines)))
    return folder


class TestMasking:  # case 5
    @pytest.mark.parametrize("whole_word", [False, True])
    def test_shares_positions_and_labels(self, corpus, whole_word):
        prepare(corpus, output=f"shards-{whole_word}", whole_word=whole_word)
        rows = all_rows(corpus / f"shards-{whole_word}")
        targets = masked = kept = other = tokens = 0
        for row in rows:
            split_row(row)
            positions, labels = row["positions"], row["labels"]
            assert 1 <= len(positions) <= 20 and np.all(np.diff(positions) > 0) and not row["rest"].any()
            assert labels.min() >= 5 and positions.max() < row["length"] - 1
            now = row["ids"][positions]
            masked += np.count_nonzero(now == 4)
            kept += np.count_nonzero(now == labels)
            others = now[(now != 4) & (now != labels)]
            other += len(others)
            assert len(others) == 0 or (others.min() >= 5 and others.max() < 137)
            targets += len(positions)
            tokens += row["length"] - 3
            if whole_word:
                self.check_whole_words(row)
        assert targets >= 20000
        assert 0.135 <= targets / tokens <= 0.17
        assert masked / targets == pytest.approx(0.8, abs=0.015)
        assert kept / targets == pytest.approx(0.1, abs=0.015)
        assert other / targets == pytest.approx(0.1, abs=0.015)

    @staticmethod
    def check_whole_words(row):
        chosen = set(row["positions"].tolist())
        original = row["original"]
        for start in np.flatnonzero((original >= 105) & (original < 135)):
            word = [start + k for k in range(3) if start + k < len(original) and (k == 0 or original[start + k] == 134 + k)]
            assert len(chosen.intersection(word)) in (0, len(word))

    def test_same_seed_same_bytes_other_seed_other_bytes(self, corpus):
        def digests(name, seed, threads):
            prepare(corpus, output=name, seed=seed, threads=threads, shards=3, validation=0.1)
            return {str(path.relative_to(corpus / name)).replace(name, "NAME"): hashlib.sha256(path.read_bytes()).hexdigest()
                    for path in sorted((corpus / name).rglob("*.hdf5"))}

        one = digests("one", 1, 1)
        assert len(one) == 4
        assert one == digests("again", 1, 1) == digests("threads", 1, 4)
        other = digests("other", 2, 1)
        assert all(one[path] != other[path] for path in one)


class TestShards:  # case 6
    def test_ids_above_int16_survive(self, tmp_path):
        write_vocabulary(tmp_path / "vocab.txt", [f"t{n}" for n in range(5, 70_000)])
        numbers = [32767, 32768, 65535, 65536, 69999]
        (tmp_path / "corpus.txt").write_text((" ".join(f"t{n}" for n in numbers) + "\n") * 3 + "\n" + "t7 t8\n" * 3)
        prepare(tmp_path, 32)
        seen = np.concatenate([row["original"] for row in all_rows(tmp_path / "shards")])
        assert set(numbers) <= set(seen.tolist())
        summary = json.loads(run("inspect", tmp_path / "shards/shards_training_0000.hdf5", "--json").stdout)
        assert summary["max_token_id"] >= 65536

    @pytest.fixture
    def three(self, tmp_path):
        write_vocabulary(tmp_path / "vocab.txt", [f"w{n}" for n in range(50)])
        (tmp_path / "corpus.txt").write_text("\n\n".join(
            "\n".join(" ".join(f"w{(d * 7 + s * 3 + k) % 50}" for k in range(9)) for s in range(12)) for d in range(60)))
        prepare(tmp_path, 32, shards=3)
        return tmp_path

    @pytest.mark.parametrize("damage", ["cut", "emptied", "dataset gone", "row gone"])
    def test_a_damaged_shard_is_named_before_the_first_step(self, three, damage):
        bad = three / "shards/shards_training_0001.hdf5"
        if damage == "cut":
            bad.write_bytes(bad.read_bytes()[:bad.stat().st_size // 2])
        elif damage == "emptied":
            bad.write_bytes(b"")
        else:
            with h5py.File(bad, "r+") as file:
                labels = file["masked_lm_ids"][:]
                del file["masked_lm_ids"]
                if damage == "row gone":
                    file["masked_lm_ids"] = labels[:-1]
        (three / "run.yaml").write_text(
            "model: {hidden_size: 8, num_layers: 1, num_heads: 2, intermediate_size: 16, vocab_size: 55, max_positions: 32}\n"
            "data: {shards: shards}\ntrain: {device: cpu, global_batch: 4, steps: 2}\nrun: {dir: run}\n")
        done = run("train", three / "run.yaml", expect=2)
        assert "shards_training_0001.hdf5" in done.stderr and not (three / "run").exists()

    def test_a_full_disk_leaves_no_shard(self, three):
        config = write_config(three, 32, output="limited", duplicates=200, shards=2)
        done = subprocess.run(["bash", "-c", f"trap '' XFSZ; ulimit -f 64; exec '{TEMPO}' prepare '{config}'"],
                              capture_output=True, text=True, timeout=60)
        assert done.returncode == 1, done.stderr
        assert len([line for line in done.stderr.splitlines() if " error " in line]) == 1
        assert "limited_training_000" in done.stderr and "HDF5-DIAG" not in done.stderr
        assert not (three / "limited").exists()

    def test_a_shard_folder_that_is_read_only_can_be_trained_on(self, three):
        shutil.copytree(three / "shards", three / "fixed")
        for path in [*(three / "fixed").iterdir(), three / "fixed"]:
            path.chmod(0o555 if path.is_dir() else 0o444)
        rows = read_as_nvidia_does(three / "fixed/shards_training_0000.hdf5")
        (three / "run.yaml").write_text(
            "model: {hidden_size: 8, num_layers: 1, num_heads: 2, intermediate_size: 16, vocab_size: 55, max_positions: 32}\n"
            f"data: {{shards: fixed}}\ntrain: {{device: cpu, global_batch: {len(rows)}, steps: 2}}\nrun: {{dir: run}}\n")
        run("train", three / "run.yaml")
        (three / "fixed").chmod(0o755)
        assert (pathlib.Path(three) / "run/export/model.safetensors").exists()
