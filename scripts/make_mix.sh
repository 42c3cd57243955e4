#!/usr/bin/env bash
# Makes a corpus whose padding is like that of Wikipedia and books, from documents that are smaller and freely at hand.
# usage: scripts/make_mix.sh [--into DIR]
#   --into DIR  where corpora are kept (default: corpus/ in the repository); the mix becomes DIR/mix/*.txt
# The rule: all files of python-doc and, in the order of their names, every fifth of linux-doc, cut at section headings
# (a section is a document), and the chapters of austen. One sentence a line, a blank line between documents.
# What for: memory and speed depend on fill, the share of real tokens among the slots, which short documents lower.
# BERT's shards of Wikipedia and books have 0.83 at 128 tokens and 0.52 at 512; with configs/run/mix-128.yaml and
# mix-512.yaml this corpus (4.9 million tokens) has 0.85 and 0.53.
# What is there already is left alone; to make it anew, delete DIR/mix. Fetches what it needs (fetch_corpus.sh).
set -euo pipefail

usage() { sed -n '3,6s/^# //p' "$0"; }
fail() { printf 'make_mix: %s\n' "$1" >&2; exit "${2:-1}"; }

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
into=$(dirname "$here")/corpus
while [ $# -gt 0 ]; do
  case $1 in
    --into) [ -n "${2:-}" ] || fail "--into needs a folder" 2; into=$2; shift ;;
    --into=?*) into=${1#*=} ;;
    -h | --help) usage; exit 0 ;;
    *) fail "unknown argument $1; see --help" 2 ;;
  esac
  shift
done

if [ -d "$into/mix" ]; then
  printf 'make_mix: there already, %s\n' "$into/mix"
  exit 0
fi
"$here/fetch_corpus.sh" austen python-doc linux-doc --into "$into"
hash=$(sha256sum "$here/requirements.txt" | cut -c1-12)
python=${TEMPO_PYTHON:-${XDG_CACHE_HOME:-${HOME:?HOME is not set}/.cache}/tempo/$hash/bin/python}

work=$(mktemp -d "$into/.mix-XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP
mkdir "$work/mix"
"$python" "$here/make_mix.py" files "$into/austen" 1 "$work/mix/austen.txt"
"$python" "$here/make_mix.py" sections "$into/linux-doc" 5 "$work/mix/linux-doc.txt"
"$python" "$here/make_mix.py" sections "$into/python-doc" 1 "$work/mix/python-doc.txt"
sync "$work/mix"
mv -T "$work/mix" "$into/mix" 2>/dev/null || [ -d "$into/mix" ] || fail "cannot make $into/mix"
printf 'make_mix: made %s\n' "$into/mix"
