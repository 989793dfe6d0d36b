"""Archives of strangers: nothing leaves the folder, nothing grows without bounds, nothing half is taken for whole."""

from __future__ import annotations

import gzip
import io
import os
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from nlpctl.convert import archive as module
from nlpctl.convert.archive import unpack
from nlpctl.errors import UserError


def unpacked(archive: Path, folder: Path) -> dict[str, bytes]:
    folder.mkdir(exist_ok=True)
    unpack(archive, folder)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def make_zip(path: Path, *files: tuple[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files:
            archive.writestr(name, content)
    return path


def make_tar(path: Path, *members: tuple[str, bytes] | tarfile.TarInfo, mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                archive.addfile(info, io.BytesIO(member[1]))
    return path


MAKERS: dict[str, Callable[..., Path]] = {"zip": make_zip, "tar": make_tar}
FILES = (("model/a", b"1" * 70_000), ("model/sub/b", b""), ("./c", b"3"))


@pytest.mark.parametrize("kind", MAKERS)
def test_what_is_in_it_comes_out(tmp_path, kind):
    archive = MAKERS[kind](tmp_path / "x", *FILES)
    assert unpacked(archive, tmp_path / "out") == {"model/a": b"1" * 70_000, "model/sub/b": b"", "c": b"3"}


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("name", ["../escaped", "a/../../escaped", "/tmp/nlpctl-escaped", "..\\escaped", "a/.."])
def test_paths_that_lead_out(tmp_path, kind, name):
    archive = MAKERS[kind](tmp_path / "x", ("fine", b"1"), (name, b"2"))
    with pytest.raises(UserError, match="refused: .* in the archive leads out of its folder"):
        unpacked(archive, tmp_path / "out")
    assert not list(tmp_path.rglob("escaped")) and not Path("/tmp/nlpctl-escaped").exists()


def linking(kind: bytes, target: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo("link")
    info.type, info.linkname = kind, target
    return info


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_links_and_devices_in_a_tar(tmp_path, kind):
    archive = make_tar(tmp_path / "x", linking(kind, "/etc"), ("link/passwd", b"mine"))
    with pytest.raises(UserError, match="refused: 'link' in the archive is a link or a device"):
        unpacked(archive, tmp_path / "out")
    assert not os.path.lexists(tmp_path / "out" / "link")


def test_links_in_a_zip(tmp_path):
    info = zipfile.ZipInfo("link")
    info.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "x", "w") as archive:
        archive.writestr(info, "/etc")
    with pytest.raises(UserError, match="'link' in the archive is a link"):
        unpacked(tmp_path / "x", tmp_path / "out")


@pytest.mark.parametrize("kind", MAKERS)
def test_bombs(tmp_path, kind, monkeypatch):
    """150 MB of zeros in 150 kB; it is refused for what it claims, before a byte of it is written."""
    archive = MAKERS[kind](tmp_path / "x", ("zeros", bytes(150 << 20)))
    assert archive.stat().st_size < 200_000
    with pytest.raises(UserError, match="'zeros' in the archive claims 157286400 bytes"):
        unpacked(archive, tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())
    many = MAKERS[kind](tmp_path / "y", *((str(number), b"") for number in range(20)))
    monkeypatch.setattr(module, "MOST_FILES", 10)
    with pytest.raises(UserError, match="'10' in the archive is one file or folder too many: 10 are allowed"):
        unpacked(many, tmp_path / "out")


@pytest.mark.parametrize("kind", MAKERS)
def test_folders_without_number_or_end(tmp_path, kind, monkeypatch):
    folders: list = [(f"{number}/", b"") for number in range(11)]
    if kind == "tar":
        folders = [tarfile.TarInfo(name) for name, _ in folders]
        for folder in folders:
            folder.type = tarfile.DIRTYPE
    monkeypatch.setattr(module, "MOST_FILES", 10)
    with pytest.raises(UserError, match="refused: '10/?' in the archive is one file or folder too many: 10 are"):
        unpacked(MAKERS[kind](tmp_path / "x", *folders), tmp_path / "out")
    with pytest.raises(UserError, match="in the archive lies deeper than 32 folders"):
        unpacked(MAKERS[kind](tmp_path / "y", ("a/" * 40 + "b", b"1")), tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())


def test_headers_without_end(tmp_path, monkeypatch):
    """90 MB of comments in 90 kB, which tarfile keeps; and several of them before one folder."""
    monkeypatch.setattr(module, "_SLACK", 0)
    comment = tarfile.TarInfo("a")
    comment.type, comment.pax_headers = tarfile.DIRTYPE, {"comment": "a" * 900_000}
    header = comment.tobuf(tarfile.PAX_FORMAT)
    (tmp_path / "x").write_bytes(gzip.compress(header * 100 + bytes(1024)))
    with pytest.raises(UserError, match="its headers claim [0-9]+ bytes, which no archive of this size holds"):
        unpacked(tmp_path / "x", tmp_path / "out")
    only_comment = header[: -tarfile.BLOCKSIZE]
    (tmp_path / "y").write_bytes(only_comment * 2 + header)
    with pytest.raises(UserError, match="cut off or damaged .a header claims 9[0-9]+ bytes"):
        unpacked(tmp_path / "y", tmp_path / "out")


def test_a_zip_that_unpacks_without_a_limit(tmp_path):
    """zipfile makes 150 MB of the 20 kB of an LZMA or bzip2 entry at once, whatever is asked for."""
    for kind in (zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2):
        with zipfile.ZipFile(tmp_path / "x", "w", kind) as archive:
            archive.writestr("a", b"1")
        with pytest.raises(UserError, match="cannot be unpacked .'a' is packed in another way than deflate"):
            unpacked(tmp_path / "x", tmp_path / "out")


def test_a_zip_with_a_file_without_a_name(tmp_path):
    archive = make_zip(tmp_path / "x", ("NAME", b"1"))
    archive.write_bytes(archive.read_bytes().replace(b"NAME", b"\0AME"))  # zipfile ends a name at a NUL
    with pytest.raises(UserError, match="refused: '' in the archive leads out of its folder"):
        unpacked(archive, tmp_path / "out")


def test_a_zip_that_claims_less_than_it_holds(tmp_path):
    archive = make_zip(tmp_path / "x", ("zeros", bytes(1 << 20)))
    content = archive.read_bytes()
    claimed = content.replace(struct.pack("<I", 1 << 20), struct.pack("<I", 10))
    assert claimed != content
    archive.write_bytes(claimed)
    with pytest.raises(UserError, match="cut off or damaged"):
        unpacked(archive, tmp_path / "out")
    assert all(path.stat().st_size <= 10 for path in (tmp_path / "out").iterdir())


def test_a_header_that_claims_gigabytes(tmp_path):
    """tarfile reads a long name at once, however long it says that it is."""
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 5 << 30
    (tmp_path / "x").write_bytes(gzip.compress(info.tobuf(tarfile.GNU_FORMAT) + bytes(1024)))
    with pytest.raises(UserError, match="a header claims 5368709120 bytes"):
        unpacked(tmp_path / "x", tmp_path / "out")


def test_a_disk_without_room(tmp_path, monkeypatch):
    archive = make_zip(tmp_path / "x", ("a", b"12345"))
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=3))
    with pytest.raises(UserError, match="needs 5 bytes, and 3 are free"):
        unpacked(archive, tmp_path / "out")


@pytest.mark.parametrize("kind", MAKERS)
def test_a_name_that_comes_twice(tmp_path, kind):
    archive = MAKERS[kind](tmp_path / "x", ("a", b"1"), ("./a", b"2"))
    with pytest.raises(UserError, match="in the archive comes twice"):
        unpacked(archive, tmp_path / "out")


def test_a_locked_zip(tmp_path):
    archive = make_zip(tmp_path / "x", ("a", b"1"))
    content = bytearray(archive.read_bytes())
    content[content.index(b"PK\1\2") + 8] |= 1  # the flag in the directory
    archive.write_bytes(content)
    with pytest.raises(UserError, match="'a' in the archive is locked with a password"):
        unpacked(archive, tmp_path / "out")


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_cut_off_tars(tmp_path, mode):
    archive = make_tar(tmp_path / "x", ("a", os.urandom(3000)), ("b", os.urandom(3000)), mode=mode)
    content = archive.read_bytes()
    end = len(content.rstrip(b"\0")) if mode == "w" else len(content)
    for number, length in enumerate([*range(600, end - 8, 211), 512 + 3072, 512]):
        archive.write_bytes(content[:length])
        with pytest.raises(UserError, match="cut off or damaged"):
            unpacked(archive, tmp_path / f"out-{number}")


def test_cut_off_zips(tmp_path):
    archive = make_zip(tmp_path / "x", ("a", os.urandom(300)), ("b", os.urandom(300)))
    content = archive.read_bytes()
    for number, length in enumerate(range(4, len(content), 31)):
        archive.write_bytes(content[:length])
        with pytest.raises(UserError, match="cut off or damaged"):
            unpacked(archive, tmp_path / f"out-{number}")


def test_a_compressed_file_that_is_no_tar(tmp_path):
    (tmp_path / "x").write_bytes(gzip.compress(b"just text" * 100))
    with pytest.raises(UserError, match="cut off or damaged"):
        unpacked(tmp_path / "x", tmp_path / "out")
