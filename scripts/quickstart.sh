#!/usr/bin/env bash
# From a fresh clone to a trained small BERT and its loss curve: sets up, builds, fetches the novels of Jane Austen,
# prepares them, trains, plots. On two cores ten to fifteen minutes with downloads, five of them training; no GPU is needed.
# usage: scripts/quickstart.sh
# Run it again at any time: what is done is not done again. To train anew, delete runs/quickstart; to prepare anew,
# delete shards/quickstart too. Everything else is decided by configs/run/quickstart-bert.yaml.
set -euo pipefail

usage() { sed -n '2,6s/^# //p' "$0"; }
say() { printf '\nquickstart: %s\n' "$*"; }
fail() { printf 'quickstart: %s\n' "$1" >&2; exit "${2:-1}"; }

case ${1:-} in
  '') ;;
  -h | --help) usage; exit 0 ;;
  *) fail "unknown argument $1; see --help" 2 ;;
esac

cd "$(dirname "${BASH_SOURCE[0]}")/.."
config=configs/run/quickstart-bert.yaml
shards=shards/quickstart
run=runs/quickstart
tempo=build/release/tempo
mkdir -p runs
log=$(mktemp "${TMPDIR:-/tmp}/tempo-quickstart-XXXXXX")
trap 'rm -f "$log"' EXIT
trap 'exit 130' INT TERM HUP

# Runs one phase, "NAME COMMAND...", and keeps its seconds for the table at the end.
times=()
phase() {
  local name=$1 started=$SECONDS
  shift
  say "$name"
  "$@" || fail "$name failed (above is why)."
  times+=("$(printf '%5d s  %s' "$((SECONDS - started))" "$name")")
  printf 'quickstart: %s took %d s\n' "$name" "$((SECONDS - started))"
}

skip() { times+=("      -    $1: $2"); say "$1: $2"; }

# Sets python to the interpreter of the environment that bootstrap.sh makes; a LibTorch of one's own comes without one.
find_python() {
  local hash
  hash=$(sha256sum scripts/requirements.txt | cut -c1-12)
  python=${TEMPO_PYTHON:-${XDG_CACHE_HOME:-${HOME:?HOME is not set}/.cache}/tempo/$hash/bin/python}
  [ -x "$python" ] || fail "there is no Python environment ($python), which corpus and plot need; set TEMPO_PYTHON."
}

# The installer says how long its two parts took, which are downloads for the most part.
install_tools() {
  scripts/bootstrap.sh 2>&1 | tee "$log" || return
  local timed='^bootstrap: ((Debian packages|Python environment): (installed|made) in [0-9]+ s)$'
  installed=$(sed -nE "s/$timed/\1/p" "$log" | paste -sd';' | sed 's/;/; /')
}

build() {
  local named=() name
  for name in TEMPO_PYTHON TEMPO_LIBTORCH TEMPO_CUDA_HOME; do
    [ -z "${!name:-}" ] || named+=("-D$name=${!name}")
  done
  cmake --preset release "${named[@]}" >"$log" 2>&1 || { cat "$log" >&2; return 1; }
  cmake --build --preset release --target tempo
}

# Prints "trained", "unfinished" or "none": is there a run whose last record is that of its last step, and its export?
state_of_run() {
  "$python" - "$run" <<'PYTHON'
import json, re, sys
from pathlib import Path

run = Path(sys.argv[1])
if not run.exists():
    sys.exit(print("none"))
try:
    planned = int(re.search(r"\bsteps: *(\d+)", (run / "config.yaml").read_text()).group(1))
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["step"]
    print("trained" if last == planned and (run / "export" / "config.json").is_file() else "unfinished")
except (OSError, AttributeError, IndexError, ValueError, KeyError):
    print("unfinished")
PYTHON
}

# That of the prepared corpus, in nats.
unigram_entropy() {
  "$python" -c 'import json, sys; print("%.4f" % json.load(open(sys.argv[1]))["unigram_entropy"])' \
    "$shards/prepare.json"
}

# The last tenth of the training records, the last evaluation, and what a model that only counts words would reach.
report() {
  "$python" - "$run/metrics.jsonl" "$entropy" <<'PYTHON'
import json, sys

records = [json.loads(line) for line in open(sys.argv[1])]
train = [record for record in records if record["kind"] == "train"]
held_out = [record for record in records if record["kind"] == "validation"]
entropy = float(sys.argv[2])
tail = train[-max(1, len(train) // 10):]
smoothed = sum(record["mlm_loss"] for record in tail) / len(tail)
rows = [("unigram entropy of the corpus (guessing by word frequency)", entropy),
        (f"training MLM loss, mean of the last {len(tail)} records", smoothed)]
if held_out:
    rows.append((f"held-out MLM loss at step {held_out[-1]['step']}", held_out[-1]["mlm_loss"]))
    rows.append(("held-out MLM + next-sentence loss", held_out[-1]["loss"]))
for name, value in rows:
    print(f"  {value:7.4f}  {value - entropy:+7.4f}  {name}")
PYTHON
}

installed=
phase "install (scripts/bootstrap.sh)" install_tools
[ -z "$installed" ] || times+=("           of that, mostly downloads: $installed")
find_python
phase "build" build
phase "corpus (scripts/fetch_corpus.sh austen vocab)" scripts/fetch_corpus.sh austen vocab
if [ -f "$shards/prepare.json" ]; then
  skip "prepare" "done before, $shards (delete it to redo)"
else
  phase "prepare" "$tempo" prepare "$config"
fi
entropy=$(unigram_entropy) || fail "$shards/prepare.json says no unigram_entropy; delete $shards and run this again."
# Steps are so short that threads which spin while they wait made training five times slower on a busy machine.
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
case $(state_of_run) in
  trained) skip "train" "done before, $run (delete it to redo)" ;;
  unfinished) phase "train (in place of an unfinished run)" "$tempo" train "$config" run.overwrite=true ;;
  *) phase "train" "$tempo" train "$config" ;;
esac
phase "plot" "$python" scripts/plot_run.py "$run" --reference "unigram entropy=$entropy"

say "done in $SECONDS s"
printf '%s\n' "${times[@]}"
printf '\n  loss, nats, and its distance from the entropy\n'
report
cat <<EOF

  $run/            config.yaml, metrics.jsonl, the log, the plot, and export/, a Hugging Face folder
  $shards/          the corpus as HDF5 shards, and prepare.json
  corpus/                     the novels, one file for each chapter, and BERT's vocabulary

What next:
  $tempo inspect $run/export
  $tempo inspect $shards/*.hdf5
  $tempo convert --from $run/export --to runs/quickstart-checkpoint
  ${python%/*}/tensorboard --logdir runs
  $tempo train $config run.dir=runs/longer train.steps=30000    # any key, as key=value
  scripts/fetch_corpus.sh --help                                                   # other texts
  $python -c '
from transformers import AutoTokenizer, BertForMaskedLM, pipeline
model = BertForMaskedLM.from_pretrained("$run/export")
tokenizer = AutoTokenizer.from_pretrained("$run/export")
for guess in pipeline("fill-mask", model=model, tokenizer=tokenizer)("Mr. [MASK] was not at home."):
    print("%.3f" % guess["score"], guess["token_str"])'
EOF
