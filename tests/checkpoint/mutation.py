"""Damage to files: what a bad disk, a broken download or an attacker may do."""

import copy
import io
import json
import random
import struct
import zipfile

EXTREMES = (0, 1, 2, 33, 255, *(1 << n for n in (16, 31, 33, 62)), *((1 << n) - 1 for n in (31, 32, 63, 64)))


def damaged(data: bytes, rng: random.Random) -> bytes:
    """`data` after one to three accidents."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        data = rng.choice(ACCIDENTS)(bytearray(data), rng)
    return data


def flip(data, rng):
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def truncate(data, rng):
    return bytes(data[: rng.randrange(len(data) + 1)])


def overwrite(data, rng):
    """A number becomes an extreme one, or nearly what it was."""
    size, form = rng.choice(((4, "<I"), (8, "<Q")))
    if len(data) < size:
        return bytes(data)
    offset = rng.randrange(len(data) - size + 1)
    if rng.random() < 0.75:
        offset -= offset % 4
    old = struct.unpack_from(form, data, offset)[0]
    new = rng.choice((*EXTREMES, old + 1, old - 1, -old))
    struct.pack_into(form, data, offset, new % (1 << 8 * size))
    return bytes(data)


def insert(data, rng):
    offset = rng.randrange(len(data) + 1)
    return bytes(data[:offset]) + rng.randbytes(rng.choice((1, 4, 8, 100))) + bytes(data[offset:])


def remove(data, rng):
    offset = rng.randrange(len(data) + 1)
    return bytes(data[:offset] + data[offset + rng.choice((1, 4, 8, 24)) :])


def repeat(data, rng):
    offset = rng.randrange(len(data) + 1)
    part = data[offset : offset + rng.choice((4, 8, 24, 200))]
    return bytes(data[:offset] + part + data[offset:])


ACCIDENTS = (flip, flip, truncate, overwrite, overwrite, overwrite, insert, remove, repeat)


# Archives, by meaning


def rearranged(data: bytes, rng: random.Random) -> bytes:
    """A `.npz` that `zipfile` finds in order, but for what one of its members is, or its directory says of one."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {member.filename: archive.read(member) for member in archive.infolist()}
    victim = rng.choice(list(members))
    members[victim] = rng.choice((damaged, misheaded))(members[victim], rng)
    buffer = io.BytesIO()
    method = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2))
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, contents in members.items():
            archive.writestr(name, contents)
        entry, other = rng.choices(archive.infolist(), k=2)
        change = rng.randrange(8)
        if change == 0:
            entry.header_offset = other.header_offset
        elif change == 1:
            entry.header_offset = max(0, entry.header_offset + rng.choice((-1, 1, 4, 1 << 20)))
        elif change == 2:
            entry.file_size = rng.choice(EXTREMES)
        elif change == 3:
            entry.compress_size = rng.choice((entry.file_size, *EXTREMES))
        elif change == 4:
            entry.flag_bits |= 1
        elif change == 5:
            entry.filename = rng.choice((other.filename, "x", "\x1b[2J.npy", ""))
    return buffer.getvalue()


HEADERS = ("(True, 6)", "(6L,)", "(-6,)", "(6.0,)", "((6,),)", "6", "None", "(6", "6)", "'", "(" * 300, "1e999", "[6]")
HEADERS += ("\\x", "{'a': 1}", "0x6", "6j", "'<f3'", "'|V8'", "[('x', '<f4')]", "'<U99999999999'", "b'<f4'", "\0")


def misheaded(data: bytes, rng: random.Random) -> bytes:
    """A `.npy` in whose header a word is another one."""
    words = data[10:].split(b" ")
    place = rng.randrange(min(6, len(words)))
    words[place] = rng.choice(HEADERS).encode() + rng.choice((b"", b","))
    text = b" ".join(words)
    return data[:8] + struct.pack("<H", len(text.partition(b"\n")[0]) + 1) + text


# JSON, by meaning

KEYS = ("attrs", "attr", "param", "subgraphs", "lr_mult", "weight_lr_mult", "num_args")
VALUES = (None, True, -1, 0, 1, 2, 7, 1 << 31, 1 << 70, 0.5, [], [0], {})
VALUES += ("", "x", "-1", "1000000000", "9" * 5000, "(1e9,)", "(,)", "(1,2", "((", "nan", "None")


def distorted(text: str, rng: random.Random) -> str:
    """JSON in which one to three values, keys or items are not what they were."""
    data = json.loads(text)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        place = rng.choice(list(containers(data)))
        if isinstance(place, dict):
            key = rng.choice([*place, "zzz"])
        else:
            key = rng.randrange(len(place)) if place else None
        rng.choice((replace, replace, drop, add, exchange, nudge))(place, key, rng)
    return json.dumps(data)


def containers(value):
    """Every object and list in `value`, itself included."""
    if isinstance(value, (dict, list)):
        yield value
        for item in value.values() if isinstance(value, dict) else value:
            yield from containers(item)


def replace(place, key, rng):
    if key is not None:
        place[key] = copy.deepcopy(rng.choice(VALUES))


def drop(place, key, rng):
    if isinstance(place, dict):
        place.pop(key, None)
    elif place:
        del place[key]


def add(place, key, rng):
    if isinstance(place, dict):
        place[rng.choice(("attrs", "attr", "param", "subgraphs", "lr_mult", "weight_lr_mult", "num_args"))] = (
            rng.choice(VALUES)
        )
    else:
        place.append(copy.deepcopy(rng.choice((*VALUES, *place))))


def exchange(place, key, rng):
    """Items change places: with it, nodes refer to later ones."""
    if isinstance(place, list) and place:
        other = rng.randrange(len(place))
        place[key], place[other] = place[other], place[key]


def nudge(place, key, rng):
    """A number or version becomes another one."""
    items = range(len(place)) if isinstance(place, list) else list(place)
    numbers = [k for k in items if type(place[k]) is int]
    if numbers:
        place[rng.choice(numbers)] += rng.choice((-1, 1, 1000, -9996))
