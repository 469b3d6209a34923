"""Untrusted images and records."""

import io
import struct

import pytest

import gluonjit as mx

Image = pytest.importorskip("PIL.Image", reason="needs Pillow")


def encoded(kind):
    buffer = io.BytesIO()
    Image.new("RGB", (20, 20)).save(buffer, kind)
    return buffer.getvalue()


def test_an_image_that_unpacks_to_much(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(mx.MXNetError, match="Invalid image file: .*exceeds limit of 200 pixels"):
        mx.image.imdecode(encoded("PNG"))


def test_formats_that_start_programs():
    with pytest.raises(mx.MXNetError, match="Invalid image file: cannot identify"):
        mx.image.imdecode(encoded("EPS"))


def test_a_record_with_more_labels_than_bytes():
    with pytest.raises(mx.MXNetError, match="announces 1000 labels, but has 3 bytes"):
        mx.recordio.unpack(struct.pack("<IfQQ", 1000, 0, 0, 0) + b"abc")
