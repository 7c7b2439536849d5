"""The zip archives of `torch.save`: a strict reader of their directory, and a writer.

PyTorch stores records uncompressed, each aligned to 64 bytes, so that their bytes can be mapped into memory. The reader
refuses compressed records and records that overlap: a small file cannot expand to a large one. The format is that of
PKWARE's APPNOTE.TXT, sections 4.3 (records) and 4.5.3 (ZIP64 sizes).
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from pickle import UnpicklingError
from typing import BinaryIO

from ..runtime.dtypes import Array

__all__ = ["RECORD_ALIGNMENT", "Archive", "ArchiveWriter", "Record"]

RECORD_ALIGNMENT = 64  # bytes

_LOCAL_HEADER = struct.Struct("<4s5H3I2H")
_DIRECTORY_ENTRY = struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")
_END_64 = struct.Struct("<4sQ2H2I4Q")
_LOCATOR_64 = struct.Struct("<4sIQI")
_MAX_16, _MAX_32 = 0xFFFF, 0xFFFFFFFF
_ZIP64_FIELD, _PADDING_FIELD = 1, 0x4246  # PyTorch pads with a field of this number, "FB"
_UTF8_NAME, _ENCRYPTED = 1 << 11, 1
_CHUNK = 1 << 24  # bytes read at a time


@dataclass(frozen=True)
class Record:
    """A record of an archive.

    Attributes:
        name: Its path below the archive's folder.
        offset: Position of its first byte in the archive.
        nbytes: Its size.
        checksum: Its CRC-32; 0 if the writer computed none.
        is_compressed: Whether its bytes are compressed.
    """

    name: str
    offset: int
    nbytes: int
    checksum: int
    is_compressed: bool


class Archive:
    """The records of a zip archive from the present position of a file to its end.

    Args:
        file: A file that can seek.

    Attributes:
        file: The file.
        start: Position of the archive in the file.
        nbytes: Its size.
        records: Its records by name.

    Raises:
        UnpicklingError: The archive is damaged. `EOFError`: It is cut off.
    """

    def __init__(self, file: BinaryIO):
        self.file = file
        self.start = file.tell()
        self.nbytes = file.seek(0, 2) - self.start
        self.records = self._read_directory()

    def read(self, name: str) -> bytes:
        """Return the bytes of a record."""
        record = self.find(name)
        data = self._read(record.offset, record.nbytes)
        _compare_checksum(record, zlib.crc32(data))
        return data

    def read_into(self, name: str, array: Array) -> None:
        """Read a record into an array of its size."""
        record = self.find(name)
        view = array.data
        self.file.seek(self.start + record.offset)
        position = checksum = 0
        while position < record.nbytes:
            chunk = view[position : position + _CHUNK]
            count = self.file.readinto(chunk) if hasattr(self.file, "readinto") else _copy_bytes(self.file, chunk)
            if not count:
                raise EOFError(f"it is cut off in {name}")
            checksum = zlib.crc32(chunk[:count], checksum)
            position += count
        _compare_checksum(record, checksum)

    def find(self, name: str) -> Record:
        """Return a record that is not compressed.

        Raises:
            UnpicklingError: There is no such record, or it is compressed.
        """
        record = self.records.get(name)
        if record is None:
            raise UnpicklingError(f"it has no record {name}")
        if record.is_compressed:
            raise UnpicklingError(
                f"its record {name} is compressed, which torch.save never does; unpack the archive and pack it without "
                "compression (zip -0)"
            )
        return record

    def _read(self, offset: int, size: int) -> bytes:
        if offset < 0 or size < 0 or offset + size > self.nbytes:
            raise EOFError("it is cut off")
        self.file.seek(self.start + offset)
        data = self.file.read(size)
        if len(data) != size:
            raise EOFError("it is cut off")
        return data

    def _read_directory(self) -> dict[str, Record]:
        count, size, offset = self._find_directory()
        text = self._read(offset, size)
        position = 0
        entries = []
        for _ in range(count):
            entry, position = self._read_entry(text, position)
            entries.append(entry)
        end = offset
        for header_offset, record in sorted(entries, key=lambda entry: entry[0], reverse=True):
            if record.offset + record.nbytes > end:
                raise UnpicklingError(f"its record {record.name} overlaps the next one")
            end = header_offset
        folder = entries[0][1].name.partition("/")[0] + "/" if entries else ""
        records: dict[str, Record] = {}
        for _, record in entries:
            name = record.name.removeprefix(folder)
            if name in records:
                raise UnpicklingError(f"it has two records {name}")
            records[name] = record
        return records

    def _find_directory(self) -> tuple[int, int, int]:
        """Return the number of records, the directory's size in bytes, and its position."""
        tail_size = min(self.nbytes, _END.size + _MAX_16)
        tail = self._read(self.nbytes - tail_size, tail_size)
        position = tail.rfind(b"PK\5\6")
        while position >= 0:
            if position + _END.size <= len(tail):
                fields = _END.unpack_from(tail, position)
                if position + _END.size + fields[7] == len(tail):
                    break
            position = tail.rfind(b"PK\5\6", 0, position)
        else:
            raise EOFError("it is cut off: a zip archive's end is missing")
        _, disk, first_disk, _, count, size, offset, _ = fields
        end = self.nbytes - tail_size + position
        if _MAX_16 in (disk, count) or _MAX_32 in (size, offset):
            magic, _, end_64, _ = _LOCATOR_64.unpack(self._read(end - _LOCATOR_64.size, _LOCATOR_64.size))
            if magic == b"PK\6\7":
                end = end_64
                magic, _, _, _, disk, first_disk, _, count, size, offset = _END_64.unpack(self._read(end, _END_64.size))
                if magic != b"PK\6\6":
                    raise UnpicklingError("its directory is damaged")
        if disk or first_disk or offset + size > end or count * _DIRECTORY_ENTRY.size > size:
            raise UnpicklingError("its directory is damaged")
        return count, size, offset

    def _read_entry(self, text: bytes, position: int) -> tuple[tuple[int, Record], int]:
        """Return the position of a record's header, the record, and the position of the next entry in the directory."""
        if position + _DIRECTORY_ENTRY.size > len(text):
            raise UnpicklingError("its directory is damaged")
        (magic, _, _, flags, method, _, _, checksum, packed, size, name_size, extra_size, comment_size, disk, _, _,
         header_offset) = _DIRECTORY_ENTRY.unpack_from(text, position)  # fmt: skip
        position += _DIRECTORY_ENTRY.size
        name_bytes = text[position : position + name_size]
        extra = text[position + name_size : position + name_size + extra_size]
        position += name_size + extra_size + comment_size
        if magic != b"PK\1\2" or position > len(text) or disk not in (0, _MAX_16) or flags & _ENCRYPTED:
            raise UnpicklingError("its directory is damaged")
        size, packed, header_offset = _read_sizes_64(extra, size, packed, header_offset)
        name = name_bytes.decode()
        if method == 0 and size != packed:
            raise UnpicklingError(f"its record {name} is stored, and has two sizes: {size} and {packed} bytes")
        header_text = self._read(header_offset, _LOCAL_HEADER.size + name_size)
        header = _LOCAL_HEADER.unpack_from(header_text)
        offset = header_offset + _LOCAL_HEADER.size + header[9] + header[10]
        is_same_name = header[9] == name_size and header_text[_LOCAL_HEADER.size :] == name_bytes
        if header[0] != b"PK\3\4" or not is_same_name or header[3] != method:
            raise UnpicklingError(f"its record {name} has another header than the directory says")
        return (header_offset, Record(name, offset, packed, checksum, method != 0)), position


def _read_sizes_64(extra: bytes, *sizes: int) -> list[int]:
    """Return the sizes of an entry, each of which the ZIP64 field has if its 32 bits are all set."""
    position = 0
    while position + 4 <= len(extra):
        number, length = struct.unpack_from("<2H", extra, position)
        position += 4
        if number == _ZIP64_FIELD:
            values = iter(struct.iter_unpack("<Q", extra[position : position + length - length % 8]))
            try:
                return [next(values)[0] if size == _MAX_32 else size for size in sizes]
            except (StopIteration, struct.error):
                raise UnpicklingError("its directory is damaged") from None
        position += length
    return list(sizes)


def _compare_checksum(record: Record, checksum: int) -> None:
    if record.checksum and record.checksum != checksum:
        raise UnpicklingError(f"it is damaged: the checksum of its record {record.name} is wrong")


def _copy_bytes(file: BinaryIO, view: memoryview) -> int:
    """Fill `view` from a file without `readinto`; return the number of bytes."""
    data = file.read(len(view))
    view[: len(data)] = data
    return len(data)


class ArchiveWriter:
    """Writes a zip archive as `torch.save` does. The file need not be able to seek.

    Args:
        file: The file to write to.
        folder: The folder of all records in the archive.
    """

    def __init__(self, file: BinaryIO, folder: str = "archive"):
        self._file = file
        self._folder = folder
        self._position = 0
        self._entries: list[bytes] = []

    def write_record(self, name: str, content: bytes | memoryview) -> None:
        """Write a record, whose first byte lies at a multiple of `RECORD_ALIGNMENT`."""
        name_bytes = f"{self._folder}/{name}".encode()
        size, offset = len(content), self._position
        checksum = zlib.crc32(content)
        size_field = min(size, _MAX_32)
        sizes_64 = struct.pack("<2H2Q", _ZIP64_FIELD, 16, size, size) if size_field == _MAX_32 else b""
        begin = offset + _LOCAL_HEADER.size + len(name_bytes) + len(sizes_64) + 4
        padding = -begin % RECORD_ALIGNMENT
        extra = sizes_64 + struct.pack("<2H", _PADDING_FIELD, padding) + b"Z" * padding
        common = (0, _UTF8_NAME, 0, 0, 0, checksum, size_field, size_field, len(name_bytes))
        self._write(_LOCAL_HEADER.pack(b"PK\3\4", *common, len(extra)) + name_bytes + extra)
        self._write(content)
        large = [value for value in (size, size, offset) if value >= _MAX_32]
        extra = struct.pack(f"<2H{len(large)}Q", _ZIP64_FIELD, 8 * len(large), *large) if large else b""
        fields = (len(extra), 0, 0, 0, 0, min(offset, _MAX_32))
        self._entries.append(_DIRECTORY_ENTRY.pack(b"PK\1\2", 0, *common, *fields) + name_bytes + extra)

    def write_directory(self) -> None:
        """Write the directory, which ends the archive."""
        offset, count = self._position, len(self._entries)
        directory = b"".join(self._entries)
        self._write(directory)
        size, end = len(directory), self._position
        if count >= _MAX_16 or offset >= _MAX_32 or size >= _MAX_32:
            self._write(_END_64.pack(b"PK\6\6", _END_64.size - 12, 45, 45, 0, 0, count, count, size, offset))
            self._write(_LOCATOR_64.pack(b"PK\6\7", 0, end, 1))
        fields = (min(count, _MAX_16), min(count, _MAX_16), min(size, _MAX_32), min(offset, _MAX_32))
        self._write(_END.pack(b"PK\5\6", 0, 0, *fields, 0))

    def _write(self, data: bytes | memoryview) -> None:
        self._file.write(data)
        self._position += len(data)
