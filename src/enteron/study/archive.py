"""Pictures inside tar archives, read into memory one at a time; nothing is extracted to disk."""

import bz2
import gzip
import lzma
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from enteron.errors import StudyError
from enteron.files import NO_LIMIT, open_file
from enteron.study.folder import is_image_name

ARCHIVE_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
LARGEST_PICTURE = 64 * 2**20  # bytes; a capsule's picture has at most one megabyte

_COPY_AGAIN = "copy the archive again from its source"


@dataclass(frozen=True)
class ArchivedPicture:
    """Where the bytes of a picture are inside an archive."""

    archive: Path
    offset: int  # in the uncompressed archive
    size: int


def is_archive_name(name: str) -> bool:
    """Whether a file is a tar archive by its name; hidden files are not."""
    return name.lower().endswith(ARCHIVE_SUFFIXES) and not name.startswith(".")


def archive_stem(name: str) -> str:
    """The name without the archive's suffix."""
    suffix = max((s for s in ARCHIVE_SUFFIXES if name.lower().endswith(s)), key=len, default="")
    return name[: len(name) - len(suffix)]


def archived_pictures(path: Path) -> Iterator[tuple[str, ArchivedPicture]]:
    """File name and place of every picture of an archive, in its order.

    Links, devices and names that lead out of the archive are refused: no dataset of pictures has
    them.
    """
    try:
        with (
            open_file(path, NO_LIMIT, _COPY_AGAIN, error=StudyError) as file,
            tarfile.open(fileobj=file, mode="r:*") as archive,
        ):
            for member in archive:
                name = PurePosixPath(member.name)
                if name.is_absolute() or ".." in name.parts:
                    raise StudyError(
                        f"the archive '{path.name}' holds a file whose name leads out of it",
                        "do not use this archive: get it from its original source",
                    )
                if member.isdir():
                    continue
                if not member.isfile():
                    raise StudyError(
                        f"the archive '{path.name}' holds a link or a device",
                        "do not use this archive: get it from its original source",
                    )
                if is_image_name(name.name):
                    if member.size > LARGEST_PICTURE:
                        raise StudyError(
                            f"a picture in '{path.name}' has {member.size:,} bytes", _COPY_AGAIN
                        )
                    yield name.name, ArchivedPicture(path, member.offset_data, member.size)
    except (tarfile.TarError, EOFError, lzma.LZMAError, OSError) as error:
        raise StudyError(f"the archive '{path.name}' cannot be read", _COPY_AGAIN) from error


class ArchiveReader:
    """Reads pictures of archives, which stay open; reading in the archive's order is cheapest.

    A compressed archive is decompressed from its start when an earlier picture is asked for.
    """

    def __init__(self) -> None:
        self._open: dict[Path, IO[bytes]] = {}

    def read(self, picture: ArchivedPicture) -> bytes:
        file = self._open.get(picture.archive)
        if file is None:
            file = self._open[picture.archive] = _open_uncompressed(picture.archive)
        try:
            file.seek(picture.offset)
            data = file.read(picture.size)
        except (EOFError, lzma.LZMAError) as error:
            raise OSError(0, "the archive is damaged") from error
        if len(data) < picture.size:
            raise OSError(0, "the archive is cut off")
        return data

    def close(self) -> None:
        """Close the archives; reading again reopens them."""
        while self._open:
            self._open.popitem()[1].close()


def _open_uncompressed(path: Path) -> IO[bytes]:
    """The archive's bytes after decompression, by its signature."""
    with open_file(path, NO_LIMIT, _COPY_AGAIN, error=StudyError) as file:
        signature = file.read(6)
    if signature.startswith(b"\x1f\x8b"):
        return gzip.open(path, "rb")  # pyright: ignore[reportReturnType]
    if signature.startswith(b"BZh"):
        return bz2.open(path, "rb")
    if signature.startswith(b"\xfd7zXZ"):
        return lzma.open(path, "rb")
    return path.open("rb")
