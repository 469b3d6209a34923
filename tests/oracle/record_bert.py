"""Records a small BERT of gluonnlp 0.10, with all its heads, as MXNet 1.9.1 exports and runs it.

    oracle/bin/python tests/oracle/record_bert.py GLUONNLP/src

GLUONNLP is its source, unpacked. `tests/data/checkpoint/bert.npz` has `graph` and `params` (the files, as bytes), the
inputs `data0` … and the results `output0` …
"""

import sys
import tempfile
import types
from pathlib import Path

import mxnet as mx
import numpy as np

TARGET = Path(__file__).resolve().parents[1] / "data" / "checkpoint" / "bert.npz"

# Its tokenizer is compiled, and not needed.
tokenizer = types.ModuleType("gluonnlp.data.fast_bert_tokenizer")
for name in ("is_control", "is_punctuation", "is_whitespace", "BasicTokenizer", "WordpieceTokenizer"):
    setattr(tokenizer, name, None)
sys.modules[tokenizer.__name__] = tokenizer
sys.path.insert(0, sys.argv[1])
from gluonnlp.model import BERTEncoder, BERTModel  # noqa: E402

encoder = BERTEncoder(units=8, hidden_size=16, num_layers=2, num_heads=2, max_length=16)
net = BERTModel(encoder, vocab_size=20, token_type_vocab_size=2, units=8, embed_size=8)
mx.random.seed(3)
net.initialize(mx.init.Normal(0.3))
net.hybridize()

rng = np.random.RandomState(0)
tokens = rng.randint(0, 20, (3, 7)).astype(np.float32)
segments = np.repeat([[0, 0, 0, 0, 1, 1, 1]], 3, axis=0).astype(np.float32)
lengths = np.array([4, 7, 6], np.float32)
masked = np.array([[3, 5], [1, 2], [0, 4]], np.float32)
inputs = [tokens, segments, lengths, masked]
net(*map(mx.nd.array, inputs))
for parameter in net.collect_params().values():
    if parameter.name.endswith(("bias", "beta")):
        parameter.set_data(mx.nd.random.normal(0, 0.3, parameter.shape))
outputs = [y.asnumpy() for y in net(*map(mx.nd.array, inputs))]
with tempfile.TemporaryDirectory() as folder:
    net.export(f"{folder}/bert")
    files = {
        name: np.frombuffer(Path(folder, file).read_bytes(), np.uint8)
        for name, file in (("graph", "bert-symbol.json"), ("params", "bert-0000.params"))
    }
np.savez_compressed(
    TARGET,
    **files,
    **{f"data{k}": x for k, x in enumerate(inputs)},
    **{f"output{k}": y for k, y in enumerate(outputs)},
)
