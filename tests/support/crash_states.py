"""What a power loss may leave of a folder, after each of the calls that changed it.

The model is the weakest file system of "All File Systems Are Not Created Equal" (ALICE; Pillai et al., OSDI 2014), one
that does no more than POSIX promises: data of a file are on the disk after fsync of the file, an entry of a folder (a
creation, a rename, a removal) after fsync of the folder. Of what is not there yet, each entry and each file may be
lost, kept or, if it is data, torn, whatever happens to the others. One rename is whole or not at all.
"""
import os
from typing import NamedTuple


class Content:
    """Of a file: what is on the disk, and the changes since: (offset, bytes), or (length, None) for a cut."""

    def __init__(self, durable=b""):
        self.durable, self.changes = durable, []

    def sync(self):
        self.durable, self.changes = self.after(), []

    def size_of_changes(self):
        return sum(1 if data is None else len(data) for _, data in self.changes)

    def after(self, until=None, zeros=range(0)):
        """The bytes after the first `until` bytes of the changes (a cut counts as one), with 0 for those in `zeros`."""
        if not self.changes:
            return self.durable
        content, done = bytearray(self.durable), 0
        for place, data in self.changes:
            if until is not None and done >= until:
                break
            if data is None:
                content, done = content[:place].ljust(place, b"\0"), done + 1
                continue
            data = data if until is None else data[:until - done]
            first, last = (min(max(edge - done, 0), len(data)) for edge in (zeros.start, zeros.stop))
            content = content.ljust(place, b"\0")
            content[place:place + len(data)] = data[:first] + bytes(last - first) + data[last:]
            done += len(data)
        return bytes(content)


class Folder:
    """Its entries as the program sees them and as the disk has them, and the changes between: (old, new, node)."""

    def __init__(self):
        self.seen, self.durable, self.changes = {}, {}, []

    def change(self, old, new, node):
        self.changes.append((old, new, node))
        follow(self.seen, self.changes[-1])

    def sync(self):
        self.durable, self.changes = dict(self.seen), []

    def after(self, choose):
        """The entries after those of the changes that `choose` returns."""
        entries = dict(self.durable)
        for change in choose(self.changes):
            follow(entries, change)
        return entries


def follow(entries, change):
    """An entry gets, changes or loses its name. Without the entry, because its creation was lost, nothing happens."""
    old, new, node = change
    if old is None or entries.get(old) is node:
        entries.pop(old, None)
        if new is not None:
            entries[new] = node


def read_folder(path):
    folder = Folder()
    for entry in sorted(path.iterdir()):
        folder.seen[entry.name] = read_folder(entry) if entry.is_dir() else Content(entry.read_bytes())
    folder.sync()
    return folder


def find(folder, path):
    """The node that the program sees under a path; None: none."""
    for name in filter(None, path.split("/")):
        folder = folder and folder.seen.get(name)
    return folder


def apply(root, call):
    """Lets the program see what a call did."""
    if call.error:
        return
    parent, name = find(root, os.path.dirname(call.path)), os.path.basename(call.path)
    node = find(root, call.path)
    if call.name == "open" and node is None:
        assert call.number & os.O_CREAT, call
        parent.change(None, name, Content())
    elif call.name == "open" and call.number & os.O_TRUNC:
        node.changes.append((0, None))
    elif call.name == "write":
        node.changes.append((call.number, call.data))
    elif call.name == "truncate":
        node.changes.append((call.number, None))
    elif call.name == "fsync":
        node.sync()
    elif call.name == "mkdir":
        parent.change(None, name, Folder())
    elif call.name == "unlink":
        parent.change(name, None, node)
    elif call.name == "rename":
        assert os.path.dirname(call.target) == os.path.dirname(call.path), "renames between folders are not modelled"
        parent.change(name, os.path.basename(call.target), node)


class State(NamedTuple):
    """What a power loss after `calls` of the calls left: {path: bytes, or None for a folder}."""
    calls: int
    kind: str
    tree: dict

    def fingerprint(self):
        return hash(tuple(sorted((path, hash(content)) for path, content in self.tree.items())))


def tree_of(folder, choose, content_of, prefix=""):
    tree = {}
    for name, node in sorted(folder.after(choose).items()):
        if isinstance(node, Folder):
            tree[prefix + name] = None
            tree |= tree_of(node, choose, content_of, f"{prefix}{name}/")
        else:
            tree[prefix + name] = content_of(node)
    return tree


def all_of(changes):
    return changes


def none_of(changes):
    return []


def some_of(draw, changes):
    """All, none, those before a moment, or any: as a disk that writes a folder at once, in order or as it likes."""
    moment = draw.randint(0, len(changes))
    return draw.choice([changes, [], changes[:moment], [change for change in changes if draw.random() < 0.5]])


def torn(draw, content):
    return content.after(until=draw.randint(0, content.size_of_changes()))


def with_a_hole(draw, content):
    size = content.size_of_changes()
    first = draw.randint(0, size)
    return content.after(zeros=range(first, draw.randint(first, size)))


DATA = {"kept": lambda draw, content: content.after(),
        "lost": lambda draw, content: content.durable,
        "zeros": lambda draw, content: content.after(zeros=range(content.size_of_changes())),
        "torn": torn, "with a hole": with_a_hole}


def seen_tree(root):
    return tree_of(root, all_of, Content.after)


def states_now(root, draw, mixtures):
    """(kind, tree) of what a power loss at this moment may leave; `mixtures` of them drawn."""
    yield "all lost", tree_of(root, none_of, lambda content: content.durable)
    for kind, bytes_of in DATA.items():
        yield f"entries kept, data {kind}", tree_of(root, all_of, lambda content: bytes_of(draw, content))
    for _ in range(mixtures):
        yield "mixture", tree_of(root, lambda changes: some_of(draw, changes),
                                 lambda content: draw.choice(list(DATA.values()))(draw, content))


def crash_states(root, calls, draw, mixtures=5):
    """Every distinct State, for a power loss before the first call (on what read_folder returned) and after each."""
    found = set()
    for count in range(len(calls) + 1):
        if count:
            apply(root, calls[count - 1])
        for kind, tree in states_now(root, draw, mixtures):
            state = State(count, kind, tree)
            if (count, state.fingerprint()) not in found:
                found.add((count, state.fingerprint()))
                yield state


def read_tree(folder):
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def write_tree(tree, folder, written=None):
    """Makes a new folder of a tree. Given a dictionary, files of the same bytes are one file with several names."""
    folder.mkdir(parents=True)
    for path, content in tree.items():
        if content is None:
            (folder / path).mkdir()
        elif written is not None and content in written:
            os.link(written[content], folder / path)
        else:
            (folder / path).write_bytes(content)
            if written is not None:
                written[content] = folder / path
    return folder
