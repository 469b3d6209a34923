"""DGL's operators on graphs: csr arrays (int64) whose element at row u and column v is the number of the edge from u to
v. Edges of new graphs are numbered from 0, in the order of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gluonjit.base import MXNetError
from gluonjit.ndarray.constructors import array
from gluonjit.ndarray.sparse_arrays import CSRNDArray


def _require_graph(what: str, graph: Any, numbers: bool = True) -> CSRNDArray:
    if not isinstance(graph, CSRNDArray):
        stype = getattr(graph, "stype", type(graph).__name__)
        raise MXNetError(f"{what} takes a csr array, not one of storage type {stype!r}: use .tostype('csr') first")
    if numbers and graph.dtype != np.int64:
        raise MXNetError(f"{what} takes a csr array of int64, the edges' numbers, not of {np.dtype(graph.dtype).name}")
    return graph.canonical()  # type: ignore[no-any-return]


def _vertices(what: str, vertices: Any) -> np.ndarray:
    if vertices.dtype != np.int64 or vertices.ndim != 1:
        raise MXNetError(f"{what} takes vertices as int64[count], not {np.dtype(vertices.dtype).name}{vertices.shape}")
    found: np.ndarray = vertices.asnumpy()
    return found


def edge_id(data: Any, u: Any, v: Any) -> Any:
    """The numbers of the edges from each of `u` to the one of `v` beside it: [count], -1 where there is none.

    >>> graph = mx.nd.array([[0, 5], [7, 0]], dtype="int64").tostype("csr")
    >>> mx.nd.contrib.edge_id(graph, mx.nd.array([0, 1, 1]), mx.nd.array([1, 0, 1])).asnumpy().tolist()
    [5, 7, -1]
    """
    graph = _require_graph("edge_id", data, numbers=False)
    rows, columns = (x.asnumpy().astype(np.int64) for x in (u, v))
    if rows.shape != columns.shape or rows.ndim != 1:
        raise MXNetError(f"edge_id takes two vectors of equal length, not {u.shape} and {v.shape}")
    for x, size in zip((rows, columns), graph.shape):
        if x.size and not (x.min() >= 0 and x.max() < size):
            raise MXNetError(f"edge_id: there is no vertex {x[(x < 0) | (x >= size)][0]} in a graph of {size}")
    width = graph.shape[1]
    places = graph._row_of_each * width + graph._columns
    order = np.argsort(places, kind="stable")
    wanted = rows * width + columns
    at = np.searchsorted(places[order], wanted)
    at = np.minimum(at, max(len(places) - 1, 0))
    if not len(places):
        return array(np.full(len(wanted), -1), dtype=graph.dtype)
    found = places[order][at] == wanted
    return array(np.where(found, graph._values[order][at], -1), dtype=graph.dtype)


def dgl_adjacency(data: Any) -> Any:
    """A csr array of float32 with 1 for each edge.

    >>> graph = mx.nd.array([[0, 5], [7, 0]], dtype="int64").tostype("csr")
    >>> mx.nd.contrib.dgl_adjacency(graph).asnumpy().tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    graph = _require_graph("dgl_adjacency", data)
    return graph._with(np.ones(len(graph._values), np.float32))


def dgl_subgraph(graph: Any, *vertices: Any, return_mapping: bool, num_args: int | None = None) -> Any:
    """The edges between vertices (int64, ascending), of one graph for each list of them. Their ends are places in
    that list; with `return_mapping`, as many graphs follow that have the edges' numbers of before.

    >>> graph = mx.nd.array([[0, 5], [7, 9]], dtype="int64").tostype("csr")
    >>> one = mx.nd.array([1], dtype="int64")
    >>> [x.asnumpy().tolist() for x in mx.nd.contrib.dgl_subgraph(graph, one, return_mapping=True)]
    [[[0]], [[9]]]
    """
    whole = _require_graph("dgl_subgraph", graph)
    made = [_induced(whole, _vertices("dgl_subgraph", ids)) for ids in vertices]
    return _with_mappings(made, return_mapping)


def _induced(graph: CSRNDArray, ids: np.ndarray) -> CSRNDArray:
    if np.any(ids[1:] < ids[:-1]):
        raise MXNetError("dgl_subgraph: The input vertex list has to be sorted")
    for outside in ids[(ids < 0) | (ids >= graph.shape[0])]:
        raise MXNetError(f"dgl_subgraph: Vertex Id {outside} isn't in a graph of {graph.shape[0]} vertices")
    place = np.full(max(graph.shape), -1, np.int64)
    place[ids] = np.arange(len(ids))
    return _between(graph.take_rows(ids), place, len(ids))


def _between(rows: CSRNDArray, place: np.ndarray, count: int) -> CSRNDArray:
    """The elements of `count` rows whose columns have a place, in the column of that number."""
    columns = place[rows._columns]
    kept = columns >= 0
    lengths = np.bincount(rows._row_of_each[kept], minlength=count)
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    made: CSRNDArray = rows._with(rows._values[kept], (indptr, columns[kept]), (count, count))
    return made


def dgl_graph_compact(*graph_data: Any, return_mapping: bool, graph_sizes: Any, num_args: int | None = None) -> Any:
    """Graphs without the empty rows and columns at their ends.

    `graph_data`: graphs, then as many lists of vertices (int64), as DGL's samplers return them: row k of a graph has
    the edges of the vertex at place k of its list, and `graph_sizes` says how many there are. With `return_mapping`,
    as many graphs follow that have the edges' numbers of before.

    >>> graph = mx.nd.array([[0, 0, 5], [0, 0, 0], [0, 0, 0]], dtype="int64").tostype("csr")
    >>> ids = mx.nd.array([0, 2, -1, 2], dtype="int64")
    >>> mx.nd.contrib.dgl_graph_compact(graph, ids, graph_sizes=2, return_mapping=False).asnumpy().tolist()
    [[0, 0], [0, 0]]
    """
    half = len(graph_data) // 2
    sizes = [int(n) for n in np.atleast_1d(graph_sizes)]
    if len(graph_data) != 2 * half or len(sizes) != half:
        raise MXNetError(
            f"dgl_graph_compact takes graphs, as many lists of vertices and graph_sizes, not {len(graph_data)} arrays "
            f"and {len(sizes)} sizes"
        )
    made = []
    for graph, vertices, size in zip(graph_data[:half], graph_data[half:], sizes):
        whole = _require_graph("dgl_graph_compact", graph)
        ids = _vertices("dgl_graph_compact", vertices)[:size]
        if not 0 <= size <= min(whole.shape[0], len(ids)) or np.any((ids < 0) | (ids >= whole.shape[1])):
            raise MXNetError(f"dgl_graph_compact: {size} vertices {ids.tolist()} are not in a graph of {whole.shape}")
        place = np.full(whole.shape[1], -1, np.int64)
        place[ids] = np.arange(size)
        made.append(_between(whole.take_rows(np.arange(size)), place, size))
    return _with_mappings(made, return_mapping)


def _with_mappings(made: Sequence[CSRNDArray], mapping: bool) -> Any:
    numbered = [x._with(np.arange(len(x._values), dtype=np.int64)) for x in made]
    found = [*numbered, *made] if mapping else numbered
    return found if len(found) > 1 else found[0]


def functions() -> dict[str, Callable[..., Any]]:
    return {f.__name__: f for f in (edge_id, dgl_adjacency, dgl_subgraph, dgl_graph_compact)}
