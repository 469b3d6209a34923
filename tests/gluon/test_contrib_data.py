"""`gluon.contrib.data` and `contrib.text`: texts as numbers, and vectors of words."""

import zipfile
from collections import Counter

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import nd
from gluonjit.contrib import text
from gluonjit.gluon.contrib.data import IntervalSampler
from gluonjit.gluon.contrib.data.text import WikiText2, WikiText103


def test_interval_sampler():
    assert list(IntervalSampler(13, interval=3)) == [0, 3, 6, 9, 12, 1, 4, 7, 10, 2, 5, 8, 11]
    once = IntervalSampler(13, interval=3, rollover=False)
    assert list(once) == [0, 3, 6, 9, 12] and len(once) == 5
    with pytest.raises(AssertionError, match="Interval 4"):
        IntervalSampler(3, 4)


def test_tokens_are_counted():
    assert text.utils.count_tokens_from_str(" a b B \n a c ", to_lower=True) == Counter(a=2, b=2, c=1)
    counter = Counter(a=1)
    found = text.utils.count_tokens_from_str(r"*a*b*\n", r"\*", r"\\n", counter_to_update=counter)
    assert found is counter and counter == Counter(a=2, b=1)


def test_vocabulary():
    v = text.vocab.Vocabulary(Counter(c=1, b=2, a=2), most_freq_count=2, reserved_tokens=["<pad>"])
    assert v.idx_to_token == ["<unk>", "<pad>", "a", "b"] and len(v) == 4 and v.token_to_idx["b"] == 3
    assert v.to_indices(["a", "zz"]) == [2, 0] and v.to_indices("b") == 3
    assert v.to_tokens([1, 2]) == ["<pad>", "a"] and v.to_tokens(0) == "<unk>"
    assert text.vocab.Vocabulary(Counter(a=3, b=1), min_freq=2).idx_to_token == ["<unk>", "a"]
    assert text.vocab.Vocabulary(Counter({"<unk>": 5, "a": 2, "b": 1}), 1).idx_to_token == ["<unk>", "a"]
    with pytest.raises(ValueError, match="Token index 4"):
        v.to_tokens(4)
    with pytest.raises(AssertionError, match="cannot contain duplicate"):
        text.vocab.Vocabulary(reserved_tokens=["a", "a"])


@pytest.fixture
def vectors(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("2 2\na 1 2\nb 3 4\n<unk> 9 9\n")
    return path


def test_embeddings(vectors):
    vectors.write_text("a 1 2\nb 3 4\n<unk> 9 9\nheader 5\na 7 7\n")
    with pytest.warns(UserWarning, match="line (4|5)"):
        e = text.embedding.CustomEmbedding(vectors)
    assert e.idx_to_token == ["<unk>", "a", "b"] and e.vec_len == 2
    np.testing.assert_array_equal(e.idx_to_vec.asnumpy(), [[9, 9], [1, 2], [3, 4]])
    np.testing.assert_array_equal(e.get_vecs_by_tokens(["A", "zz"], lower_case_backup=True).asnumpy(), [[1, 2], [9, 9]])
    e.update_token_vectors("a", nd.array([0, 1]))
    np.testing.assert_array_equal(e.get_vecs_by_tokens("a").asnumpy(), [0, 1])
    with pytest.raises(ValueError, match="Token zz is unknown"):
        e.update_token_vectors("zz", nd.array([0, 1]))
    v = text.vocab.Vocabulary(Counter(b=2, zz=1), reserved_tokens=["<pad>"])
    both = text.embedding.CompositeEmbedding(v, [e, e])
    np.testing.assert_array_equal(both.idx_to_vec.asnumpy(), [[9] * 4, [9] * 4, [3, 4, 3, 4], [9] * 4])
    assert both.idx_to_token == v.idx_to_token and both.reserved_tokens == ["<pad>"]


def test_an_unknown_vector_is_made_and_reserved_tokens_have_one(vectors):
    vectors.write_text("a 1 2\n")
    e = text.embedding.CustomEmbedding(vectors, init_unknown_vec=nd.ones, reserved_tokens=["<pad>"])
    np.testing.assert_array_equal(e.idx_to_vec.asnumpy(), [[1, 1], [0, 0], [1, 2]])


@pytest.mark.parametrize(
    ("line", "error"), [("b 3 4 5", "3 numbers"), ("b x y", "not all numbers"), ("b", "no numbers")]
)
def test_wrong_lines_are_named(vectors, line, error):
    vectors.write_text(f"a 1 2\n{line}\n")
    with pytest.raises(mx.MXNetError, match=f"line 2: .*{error}"):
        text.embedding.CustomEmbedding(vectors)


def test_published_embeddings_are_read_from_their_folder(vectors, tmp_path):
    folder = tmp_path / "glove"
    with pytest.raises(mx.MXNetError, match="has no file glove.6B.50d.txt. gluonjit downloads nothing"):
        text.embedding.create("glove", pretrained_file_name="glove.6B.50d.txt", embedding_root=str(tmp_path))
    folder.mkdir()
    (folder / "glove.6B.50d.txt").write_text("a 1 2\n")
    found = text.embedding.create("GloVe", pretrained_file_name="glove.6B.50d.txt", embedding_root=str(tmp_path))
    assert found.idx_to_token == ["<unk>", "a"]
    assert "glove.6B.50d.txt" in text.embedding.get_pretrained_file_names("glove")
    with pytest.raises(KeyError, match="Cannot find pretrained file glove.7B"):
        text.embedding.GloVe("glove.7B")


TEXT = " a b c \n\n b a \n"  # a b c <eos> b a <eos>


def test_wikitext(tmp_path):
    for name in ("train", "valid", "test"):
        (tmp_path / f"wiki.{name}.tokens").write_text(TEXT)
    data = WikiText2(tmp_path, "train", seq_len=3)
    assert data.vocabulary.idx_to_token == ["<unk>", "<eos>", "a", "b", "c"] and data.frequencies["a"] == 2
    assert len(data) == 2 and data[0][0].dtype == np.int32
    pairs = [(x.asnumpy().tolist(), y.asnumpy().tolist()) for x, y in (data[0], data[1])]
    assert pairs == [([2, 3, 4], [3, 4, 1]), ([1, 3, 2], [3, 2, 1])]
    vocabulary = text.vocab.Vocabulary(Counter(a=1))
    assert WikiText103(tmp_path, "test", vocab=vocabulary, seq_len=6)[0][0].asnumpy().tolist() == [1, 0, 0, 0, 0, 1]


def test_wikitext_is_read_from_its_archive(tmp_path):
    with zipfile.ZipFile(tmp_path / "wikitext-2-v1.zip", "w") as archive:
        archive.writestr("wikitext-2/wiki.valid.tokens", TEXT)
    assert len(WikiText2(tmp_path, "validation", seq_len=2)) == 3


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(mx.MXNetError, match="has no file wiki.train.tokens or wikitext-2-v1.zip.*downloads nothing"):
        WikiText2(tmp_path)
    (tmp_path / "wiki.train.tokens").write_text(" a \n")
    with pytest.raises(mx.MXNetError, match="has 2 words; 36 are needed"):
        WikiText2(tmp_path)
    with pytest.raises(mx.MXNetError, match="segment is one of train, validation, test"):
        WikiText2(tmp_path, "valid")
