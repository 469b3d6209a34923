"""ELF objects and archives as bytes: symbols under other names, data as an object, several objects as a library.

Only what libraries without Python need (`c_library/library.py`): 64-bit little-endian relocatable objects, as LLVM
writes them for Linux. The layout is that of the System V ABI, "Object Files"; the archive's that of GNU `ar`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from gluonjit.ir.types import IRError

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_MACHINES = {"x86": 62, "aarch64": 183}
_SYMTAB, _STRTAB, _PROGBITS = 2, 3, 1
_GLOBAL, _HIDDEN = 1, 2
_ALLOCATED = 2  # SHF_ALLOC
_PAGE = 4096


@dataclass
class _Symbols:
    """The symbol table of an object: where its entries lie, and the section of their names."""

    begin: int
    end: int
    strings: bytes
    strings_header: int
    """Where the header of that section is."""


def _symbols(data: bytes) -> _Symbols:
    if data[:7] != b"\x7fELF\x02\x01\x01":
        raise IRError("not a 64-bit little-endian ELF object: libraries are built for Linux alone")
    header = _HEADER.unpack_from(data)
    at, size, count = header[6], header[11], header[12]
    sections = [_SECTION.unpack_from(data, at + k * size) for k in range(count)]
    for section in sections:
        if section[1] == _SYMTAB:
            link = section[6]
            strings = sections[link]
            text = data[strings[4] : strings[4] + strings[5]]
            return _Symbols(section[4], section[4] + section[5], text, at + link * size)
    raise IRError("the object has no symbol table")


def _entries(data: bytes, table: _Symbols) -> Iterator[tuple[int, str, int, int]]:
    """(where the entry is, name, info, section) of each symbol that has a name."""
    for at in range(table.begin + _SYMBOL.size, table.end, _SYMBOL.size):
        name, info, _, section, _, _ = _SYMBOL.unpack_from(data, at)
        if name:
            yield at, table.strings[name : table.strings.index(b"\0", name)].decode(), info, section


def defined(data: bytes) -> list[str]:
    """The global symbols that an object defines."""
    return [name for _, name, info, section in _entries(data, _symbols(data)) if info >> 4 == _GLOBAL and section]


def renamed(data: bytes, name: Callable[[str], str], public: Callable[[str], bool]) -> bytes:
    """The object with another name for each global symbol, defined or not. A new name that is not `public` is hidden:
    the linker finds it within a library, and nobody does outside."""
    table = _symbols(data)
    out = bytearray(data)
    strings = bytearray(table.strings)  # names of sections may lie there, too, and keep their places
    for at, old, info, _ in _entries(data, table):
        if info >> 4 == _GLOBAL:
            new = name(old)
            struct.pack_into("<I", out, at, len(strings))
            strings += new.encode() + b"\0"
            if new != old and not public(new):
                out[at + 5] = _HIDDEN
    place = len(out)
    out += strings
    struct.pack_into("<QQ", out, table.strings_header + 24, place, len(strings))
    return bytes(out)


def data_object(symbol: str, content: bytes, arch: str) -> bytes:
    """An object that defines a hidden symbol at the beginning of `content`, read-only and aligned to a page."""
    names = b"\0.rodata\0.symtab\0.strtab\0.note.GNU-stack\0"
    strings = b"\0" + symbol.encode() + b"\0"
    symbols = _SYMBOL.pack(0, 0, 0, 0, 0, 0) + _SYMBOL.pack(1, _GLOBAL << 4 | 1, _HIDDEN, 1, 0, len(content))
    text = names + strings
    at_symbols = _PAGE + -(-len(content) // 8) * 8
    at_text = at_symbols + len(symbols)
    at_sections = -(-(at_text + len(text)) // 8) * 8
    sections = [
        _SECTION.pack(0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        _SECTION.pack(names.index(b".rodata"), _PROGBITS, _ALLOCATED, 0, _PAGE, len(content), 0, 0, _PAGE, 0),
        # The first global symbol is number 1; names of symbols are in section 3.
        _SECTION.pack(names.index(b".symtab"), _SYMTAB, 0, 0, at_symbols, len(symbols), 3, 1, 8, _SYMBOL.size),
        _SECTION.pack(names.index(b".strtab"), _STRTAB, 0, 0, at_text + len(names), len(strings), 0, 0, 1, 0),
        _SECTION.pack(names.index(b".strtab"), _STRTAB, 0, 0, at_text, len(names), 0, 0, 1, 0),
        _SECTION.pack(names.index(b".note"), _PROGBITS, 0, 0, at_text, 0, 0, 0, 1, 0),  # the stack holds no code
    ]
    ident = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    header = _HEADER.pack(
        ident, 1, _MACHINES[arch], 1, 0, 0, at_sections, 0, _HEADER.size, 0, 0, _SECTION.size, len(sections), 4
    )
    out = bytearray(header.ljust(_PAGE, b"\0"))
    out += content
    out += bytes(at_symbols - len(out)) + symbols + text
    out += bytes(at_sections - len(out)) + b"".join(sections)
    return bytes(out)


def archive(members: Sequence[tuple[str, bytes]]) -> bytes:
    """A static library of objects, (name, object), with the index by which linkers find symbols."""
    listed = [(name, k) for k, (_, data) in enumerate(members) for name in defined(data)]
    names = b"".join(f"{name}/\n".encode() for name, _ in members)
    index_size = 4 + 4 * len(listed) + sum(len(name) + 1 for name, _ in listed)
    at = 8 + _padded(60 + index_size) + _padded(60 + len(names))
    begins, found = [], 0
    for _, data in members:
        begins.append(at)
        at += _padded(60 + len(data))
    index = struct.pack(">I", len(listed)) + b"".join(struct.pack(">I", begins[k]) for _, k in listed)
    index += b"".join(name.encode() + b"\0" for name, _ in listed)
    if at >= 1 << 32:
        raise IRError(f"an archive holds less than 4 GB, and the objects take {at} bytes: keep the weights in a file")
    out = [b"!<arch>\n", _member("/", index), _member("//", names)]
    for name, data in members:
        out.append(_member(f"/{found}", data))
        found += len(name) + 2
    return b"".join(out)


def _padded(size: int) -> int:
    return size + size % 2


def _member(name: str, data: bytes) -> bytes:
    head = f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n"
    return head.encode() + data + b"\n" * (len(data) % 2)
