"""DGL's operators on graphs in csr arrays; the answers are MXNet 1.9.1's."""

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import nd

EDGES = nd.array([[1, 0, 0, 2], [3, 0, 4, 0], [0, 5, 0, 0], [0, 6, 7, 0]], dtype="int64").tostype("csr")


def vertices(*numbers):
    return nd.array(numbers, dtype="int64")


def test_numbers_of_edges():
    found = nd.contrib.edge_id(EDGES, nd.array([0, 0, 1, 3]), nd.array([0, 1, 2, 2]))
    assert found.dtype == np.int64 and found.asnumpy().tolist() == [1, -1, 4, 7]
    nothing = nd.sparse.zeros("csr", (2, 2), dtype="int64")
    assert nd.contrib.edge_id(nothing, vertices(0), vertices(1)).asnumpy().tolist() == [-1]
    with pytest.raises(mx.MXNetError, match="there is no vertex 9 in a graph of 4"):
        nd.contrib.edge_id(EDGES, vertices(0, 9), vertices(0, 1))
    adjacent = nd.contrib.dgl_adjacency(EDGES)
    assert adjacent.stype == "csr" and adjacent.dtype == np.float32
    assert (adjacent.asnumpy() == (EDGES.asnumpy() != 0)).all()


def test_subgraphs():
    one, two, old_one, old_two = nd.contrib.dgl_subgraph(
        EDGES, vertices(0, 1, 2), vertices(1, 3), num_args=3, return_mapping=True
    )
    assert one.stype == "csr" and one.dtype == np.int64
    assert one.asnumpy().tolist() == [[0, 0, 0], [1, 0, 2], [0, 3, 0]] and one.data.asnumpy().tolist() == [0, 1, 2, 3]
    assert old_one.asnumpy().tolist() == [[1, 0, 0], [3, 0, 4], [0, 5, 0]]
    assert two.indices.asnumpy().tolist() == [0] and old_two.asnumpy().tolist() == [[0, 0], [6, 0]]
    for ids, message in ((vertices(2, 0), "has to be sorted"), (vertices(0, 9), "Vertex Id 9 isn't in a graph of 4")):
        with pytest.raises(mx.MXNetError, match=message):
            nd.contrib.dgl_subgraph(EDGES, ids, return_mapping=False)


def test_compact_graphs():
    """As the samplers make them: the last element is the number of vertices, and what is before it unset."""
    graph = nd.sparse.csr_matrix(([5, 7, 9], [2, 3, 0], [0, 1, 2, 3, 3, 3]), shape=(5, 5), dtype="int64")
    ids = vertices(0, 2, 3, -1, -1, 3)
    made, old = nd.contrib.dgl_graph_compact(graph, ids, graph_sizes=3, return_mapping=True)
    assert made.asnumpy().tolist() == [[0, 0, 0], [0, 0, 1], [2, 0, 0]] and made.indices.asnumpy().tolist() == [1, 2, 0]
    assert old.asnumpy().tolist() == [[0, 5, 0], [0, 0, 7], [9, 0, 0]]
    with pytest.raises(mx.MXNetError, match="4 vertices .* are not in a graph"):
        nd.contrib.dgl_graph_compact(graph, ids, graph_sizes=4, return_mapping=False)


def test_what_is_refused():
    with pytest.raises(mx.MXNetError, match="takes a csr array of int64, the edges' numbers, not of float32"):
        nd.contrib.dgl_adjacency(EDGES.astype("float32"))
    with pytest.raises(mx.MXNetError, match="takes a csr array, not one of storage type 'default'"):
        nd.contrib.dgl_subgraph(nd.ones((2, 2)), vertices(0), return_mapping=False)
    with pytest.raises(AttributeError, match=r"lacks it: draw neighbours with NumPy"):
        nd.contrib.dgl_csr_neighbor_uniform_sample(EDGES, vertices(0))
    with pytest.raises(AttributeError, match=r"arrays in graphs are dense: nd.contrib has it for csr arrays"):
        mx.sym.contrib.dgl_subgraph(mx.sym.var("x"))
