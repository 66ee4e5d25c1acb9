"""Files of an archive: a format that other tools read, the same bytes whenever written, and no silent damage."""

import gzip
import json
import stat

import pytest

from live.places import IDENTITY, draft
from tether.errors import AlteredLog, StoreError
from tether.live.log.archive import Archive
from tether.live.log.chain import genesis_of
from tether.live.log.memory import MemoryStore

NAME = f"{IDENTITY}-000000000001-000000000003.jsonl.gz"


@pytest.fixture
def entries():
    store = MemoryStore(identity=IDENTITY, clock=lambda: 5.0)
    store.append([draft(1), draft(2, "a", "ü"), draft(3), draft(4)])
    return store.read()


def test_a_file_is_a_line_about_itself_and_a_line_per_entry(entries, tmp_path):
    file = Archive(tmp_path / "new", IDENTITY).write(entries[:3])
    assert file.path == tmp_path / "new" / NAME and stat.S_IMODE(file.path.stat().st_mode) == 0o400
    first, *lines = gzip.decompress(file.path.read_bytes()).decode("ascii").splitlines()
    told = {"format": "tether-archive-1", "log": IDENTITY, "first": 1, "last": 3, "previous": genesis_of(IDENTITY)}
    assert json.loads(first) == told
    two = entries[1]
    assert len(lines) == 3
    assert json.loads(lines[1]) == [2, 5.0, "note", two.text, '["a","\\u00fc"]', entries[0].hash, two.hash]


def test_a_file_written_again_has_the_same_bytes(entries, tmp_path):
    archive = Archive(tmp_path, IDENTITY)
    digest = archive.write(entries[:3]).digest()
    assert archive.write(entries[:3]).digest() == digest and [path.name for path in tmp_path.iterdir()] == [NAME]


def test_entries_are_read_across_files_and_not_beyond(entries, tmp_path):
    archive = Archive(tmp_path, IDENTITY)
    archive.write(entries[:3])
    assert archive.read(1, 1) == entries[1:2] and archive.read(0, 9) == entries[:3]
    archive.write(entries[3:])
    assert archive.read(1, 9) == entries[1:] and Archive(tmp_path, IDENTITY).read(2, 2) == entries[2:]
    with pytest.raises(StoreError, match="entry 5 was archived"):
        archive.read(4, 1)
    with pytest.raises(StoreError, match="entry 1 was archived"):
        Archive(tmp_path, "ff00" * 8).read(0, 1)


@pytest.mark.parametrize(
    ("damage", "match"),
    [
        (lambda data: data[:-9], "altered or damaged"),
        (lambda data: gzip.compress(b"\n".join(gzip.decompress(data).splitlines()[:2])), "altered or damaged"),
        (lambda data: b"not gzip", "altered or damaged"),
        (lambda data: gzip.compress(b"not JSON\n"), "altered or damaged"),
        (lambda data: gzip.compress(gzip.decompress(data).replace(b'"last":3', b'"last":2')), "not what its name says"),
        (lambda data: gzip.compress(gzip.decompress(data).replace(b"[2,5.0,", b"[2,null,")), "entry 2 was altered"),
        (lambda data: gzip.compress(gzip.decompress(data).replace(b"[2,5.0,", b"{2,5.0,")), "entry 2 was altered"),
    ],
)
def test_damage_is_an_altered_log(entries, tmp_path, damage, match):
    archive = Archive(tmp_path, IDENTITY)
    path = archive.write(entries[:3]).path
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(damage(data))
    with pytest.raises(AlteredLog, match=match):
        archive.read(0, 3)


def test_a_folder_that_cannot_be_written_moves_nothing(entries, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="Nothing was moved"):
        Archive(tmp_path / "file" / "folder", IDENTITY).write(entries[:1])
