"""`.params` files written by hand, in every version that MXNet had."""

import struct

V1, V2, V3 = 0xF993FAC8, 0xF993FAC9, 0xF993FACA
FLAGS = {"f4": 0, "f8": 1, "f2": 2, "u1": 3, "i4": 4, "i1": 5, "i8": 6}


def tail(array, flag=None, context=(1, 0)):
    """Context, type and data."""
    flag = FLAGS[array.dtype.str[1:]] if flag is None else flag
    return struct.pack("<iii", *context, flag) + array.tobytes()


def shape(dims):
    return struct.pack(f"<i{len(dims)}q", len(dims), *dims)


def v0(array, **kwargs):
    return struct.pack(f"<I{array.ndim}I", array.ndim, *array.shape) + tail(array, **kwargs)


def v1(array, **kwargs):
    return struct.pack("<I", V1) + shape(array.shape) + tail(array, **kwargs)


def v2(array, magic=V2, **kwargs):
    return struct.pack("<Ii", magic, 0) + shape(array.shape) + tail(array, **kwargs)


def v3(array, **kwargs):
    return v2(array, magic=V3, **kwargs)


def file(records, names=(), *, magic=0x112, count=None, name_count=None):
    data = struct.pack("<QQQ", magic, 0, len(records) if count is None else count) + b"".join(records)
    data += struct.pack("<Q", len(names) if name_count is None else name_count)
    for name in names:
        data += struct.pack("<Q", len(name)) + name
    return data
