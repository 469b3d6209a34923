"""From the nodes of an ONNX graph to a Symbol.

Types are known all the way: each operator that is added infers its results' types, with open dimensions where the
model has names for sizes. So translations can ask for ranks and sizes, as those of ONNX's operators need.

A value is one of three things: an output of the graph that is being made; an array that is known, as initializers are,
and what is computed from known arrays that are small; or a list of sizes, which may be open (`Shape` and what models
compute with it).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gluonjit import symbol as symbols
from gluonjit.base import CheckpointError, MXNetError
from gluonjit.files.array_names import shown
from gluonjit.ir.dims import Dim, Undecided, named
from gluonjit.ir.interpreter import evaluate
from gluonjit.ir.types import IRError, TensorType, type_of
from gluonjit.ir.types import dtype as ir_dtype
from gluonjit.onnx.importing.onnx_files import HELD, MAX_DEPTH, Call, File, attributes, element_type
from gluonjit.onnx.package import require_onnx
from gluonjit.operators import registry
from gluonjit.symbol import Symbol
from gluonjit.symbol.graph import post_order
from gluonjit.symbol.subgraph import MARK
from gluonjit.symbol.symbol import invoke

FOLDED = 1 << 16
"""The most elements of an array that is computed while a file is read. Of larger ones, the graph computes them."""
MOST_NODES = 1 << 20
"""Limit for a model with all its functions written out."""
MOST_BYTES = 1 << 42
"""Limit for a single array of a model."""

TRANSLATIONS: dict[str, Callable[..., Any]] = {}
"""By the name of an ONNX operator: (importer, call, inputs…) → its result, or a list of them. Inputs that are left out
are None."""
OF_SIZES: dict[str, Callable[..., Any]] = {}
"""How sizes are computed: (importer, call, arrays of sizes…) → an array of sizes, or None."""


def translation(*names: str) -> Callable[[Any], Any]:
    def declare(function: Any) -> Any:
        TRANSLATIONS.update(dict.fromkeys(names, function))
        return function

    return declare


def of_sizes(*names: str) -> Callable[[Any], Any]:
    def declare(function: Any) -> Any:
        OF_SIZES.update(dict.fromkeys(names, function))
        return function

    return declare


UNWRAPPED = {"Cast", "CastLike", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Size", "Shape"}
"""Operators whose results are the same where integers are held in a wider type."""


def _is_exponent(call: Call, inputs: Sequence[Any]) -> bool:
    return call.op == "Pow" and not inputs[0].held


class Untranslated(MXNetError):
    """gluonjit cannot translate a node; the message says which feature of it."""


class Val:
    """A value of the graph; see the top of this file. `array` or `sizes` are None where it is nothing of that kind.

    `held` is the name of the type that it has in the file, if gluonjit has no such type; `type` is then a wider one."""

    __slots__ = ("array", "held", "name", "sizes", "source", "type")

    def __init__(
        self,
        type: TensorType,
        source: Symbol | None = None,
        array: np.ndarray | None = None,
        name: str = "",
        sizes: np.ndarray | None = None,
        held: str = "",
    ) -> None:
        self.type = type
        self.source = source
        self.array = array
        self.name = name
        self.sizes = sizes
        self.held = held

    @property
    def shape(self) -> tuple[Any, ...]:
        return self.type.shape

    @property
    def rank(self) -> int:
        return len(self.type.shape)

    @property
    def dtype(self) -> np.dtype:
        return self.type.dtype.numpy

    @property
    def floats(self) -> bool:
        return self.type.dtype.is_float


class Importer:
    """Makes the symbol of one file."""

    def __init__(self, file: File, fixed: Mapping[str, np.ndarray] | None = None) -> None:
        """`fixed`: what some of the inputs are, such as a shape that a Reshape gets. They are no inputs any more."""
        self.file = file
        self.fixed = fixed or {}
        self.deciding: dict[str, None] = {}
        self.args: dict[str, np.ndarray] = {}
        self.problems: dict[str, None] = {}
        self.inputs: dict[str, TensorType] = {}
        self._sizes: dict[str, tuple[Val, int]] = {}
        self._extents: dict[Any, Val] = {}
        self._names: set[str] = set()
        self._used: set[str] = set()
        self._nodes = 0
        self._stem = ""
        self._wanted: list[str] = []
        self.around: tuple[Mapping[str, Any], int] = {}, 0
        """The values by name around the node that is being translated, and how deep it is nested."""

    def model(self) -> tuple[Symbol, dict[str, np.ndarray], dict[str, np.ndarray]]:
        """The symbol, and its parameters."""
        graph = self.file.graph
        env: dict[str, Val | None] = {"": None}
        for tensor in graph.initializer:
            self._names.add(tensor.name)
            env[tensor.name] = self.constant(self.file.tensor(tensor), tensor.name)
        for sparse in graph.sparse_initializer:
            env[sparse.values.name] = self.constant(self.file.sparse(sparse), sparse.values.name)
        for described in graph.input:
            if described.name in self.fixed:
                env[described.name] = self.constant(self.fixed[described.name], described.name)
            elif described.name not in env:
                env[described.name] = self._input(described)
        self._names.update(name for node in graph.node for name in node.output)
        self.run(graph.node, env, self.file.versions, {}, 0)
        if self.problems:
            listed = "\n  ".join(self.problems)
            raise MXNetError(f"{self.file.path}: gluonjit has no operators for\n  {listed}")
        outputs = []
        for output in graph.output:
            value = env[output.name]
            if value is not None and value.held:
                raise MXNetError(f"{self.file.path}: the output {shown(output.name)!r} has elements of {value.held}")
            if value is None:
                raise CheckpointError(f"{self.file.path}: the output {shown(output.name)!r} is left out by its node")
            outputs.append(self.symbol(value))
        if not outputs:
            raise CheckpointError(f"{self.file.path}: the graph has no outputs")
        out = outputs[0] if len(outputs) == 1 else symbols.Group(outputs)
        self._name_outputs(out, [output.name for output in graph.output])
        variables = {*out.list_inputs()}
        aux = {*out.list_auxiliary_states()}
        arrays = {name: x for name, x in self.args.items() if name in variables}
        return (
            out,
            {name: x for name, x in arrays.items() if name not in aux},
            {name: x for name, x in arrays.items() if name in aux},
        )

    def _name_outputs(self, out: Symbol, names: Sequence[str]) -> None:
        """Gives the operators that make outputs their names in the file."""
        by_name = {node.name: node for node in post_order(out._heads)}
        for (node, _), name in zip(out._heads, names):
            wanted = name.removesuffix("_output")
            other = by_name.get(wanted)
            if node.op is None or node is other or (other is not None and other.op is None):
                continue
            if other is not None:
                other.name, by_name[node.name] = node.name, other
            node.name, by_name[wanted] = wanted, node

    def _input(self, described: Any) -> Val:
        name, kind = described.name, described.type
        if not kind.HasField("tensor_type"):
            raise MXNetError(f"{self.file.path}: the input {shown(name)!r} is not a tensor")
        number = kind.tensor_type.elem_type
        if number in HELD:
            held, dtype = np.dtype(HELD[number][0]).name, np.dtype(HELD[number][2])
        else:
            held, dtype = "", element_type(number, f"{self.file.path}: the input {shown(name)!r}")
        if not kind.tensor_type.HasField("shape"):
            raise MXNetError(f"{self.file.path} says nothing about the shape of its input {shown(name)!r}")
        shape: list[Any] = []
        for axis, size in enumerate(kind.tensor_type.shape.dim):
            if size.HasField("dim_value"):
                if not 0 <= size.dim_value < 1 << 31:
                    raise CheckpointError(
                        f"{self.file.path}: input {shown(name)!r} has an axis of size {size.dim_value}"
                    )
                shape.append(size.dim_value)
            else:
                text = "".join(c if c.isascii() and c.isalnum() else "_" for c in size.dim_param.lower())
                if not text[:1].isalpha():
                    text = f"d{len(self.inputs)}_{axis}_{text}"
                shape.append(named(text))
        type_ = TensorType(ir_dtype(dtype), tuple(shape))
        self._check_size(type_, name)
        self.inputs[name] = type_
        self._names.add(name)
        known = tuple(0 if isinstance(n, Dim) else n for n in shape)
        value = Val(type_, symbols.var(name, shape=known, dtype=dtype), held=held)
        for axis, n in enumerate(shape):
            if isinstance(n, Dim):
                (text,) = n.names
                self._sizes.setdefault(text, (value, axis))
        return value

    def _check_size(self, type_: TensorType, name: str) -> None:
        fixed = math.prod(n for n in type_.shape if not isinstance(n, Dim)) * type_.dtype.itemsize
        if fixed > MOST_BYTES:
            raise CheckpointError(f"{self.file.path}: {shown(name)!r} would have {fixed:,} bytes")

    # Nodes

    def run(
        self,
        nodes: Any,
        env: dict[str, Val | None],
        versions: Mapping[str, int],
        given: Mapping[str, Any],
        depth: int,
        prefix: str = "",
    ) -> None:
        """Adds what the nodes compute; `env` has values by name, and gets those of the results."""
        if depth > MAX_DEPTH:
            raise CheckpointError(f"{self.file.path}: functions are nested more than {MAX_DEPTH} deep")
        for node in nodes:
            self._nodes += 1
            if self._nodes > MOST_NODES:
                raise CheckpointError(f"{self.file.path} has more than {MOST_NODES:,} nodes")
            unknown = [name for name in node.input if name not in env]
            if unknown:
                raise CheckpointError(
                    f"{self.file.path}: {node.op_type} reads {shown(unknown[0])!r}, which nothing before it makes"
                )
            inputs = [env[name] for name in node.input]
            domain = "" if node.domain == "ai.onnx" else node.domain
            if any(x is _LOST for x in inputs):
                env.update(dict.fromkeys(node.output, _LOST))
                if not self._has(domain, node.op_type, versions):
                    call = Call(node.op_type, domain, node.name or node.output[0], 0, (), (), {}, node)
                    self._note(call, "")
                continue
            attrs = attributes(self.file, node, given)
            version = versions.get(domain, versions.get("", 1))
            call = Call(node.op_type, domain, node.name, version, list(node.input), list(node.output), attrs, node)
            self._wanted = [f"{prefix}{name}" for name in node.output]
            self._stem = next((name for name in self._wanted if name), node.op_type)
            try:
                found = self._call(call, inputs, depth, env)
            except (Untranslated, NotImplementedError) as e:
                self._note(call, str(e))
                env.update(dict.fromkeys(node.output, _LOST))
                continue
            except (CheckpointError, MemoryError):
                raise
            except Undecided as e:
                self._note(call, f"of open dimensions: {e}")
                env.update(dict.fromkeys(node.output, _LOST))
                continue
            except (MXNetError, IRError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as e:
                what = f"node {shown(node.name or self._stem)} ({node.op_type})"
                raise CheckpointError(f"{self.file.path}: {what}: {e}") from e
            results = list(found) if isinstance(found, (list, tuple)) else [found]
            for name, value in zip(node.output, results):
                env[name] = value
            missing = [name for name in node.output[len(results) :] if name]
            if missing:
                self._note(call, f"whose result {len(results) + 1} is used")
                env.update(dict.fromkeys(missing, _LOST))
            env[""] = None

    def _has(self, domain: str, op: str, versions: Mapping[str, int]) -> bool:
        """Whether there is something for an operator, with some inputs at least."""
        if (domain, op) in self.file.functions or (not domain and op in TRANSLATIONS):
            return True
        onnx = require_onnx()
        try:
            schema = onnx.defs.get_schema(op, versions.get(domain, 1), domain)
        except onnx.defs.SchemaError:
            return False
        return schema.has_function or schema.has_context_dependent_function

    def _note(self, call: Call, why: str) -> None:
        op = f"{call.domain}.{call.op}" if call.domain else call.op
        where = shown(call.name or self._stem)
        self.problems[f"{where}: {op}{' ' + why if why else ''}"] = None

    def _call(self, call: Call, inputs: Sequence[Any], depth: int, env: Mapping[str, Any]) -> Any:
        held = [x.held for x in inputs if x is not None and x.held]
        if held and call.op not in UNWRAPPED and not _is_exponent(call, inputs):
            raise Untranslated(f"of {held[0]}")
        own = self.file.functions.get((call.domain, call.op))
        if own is not None:
            return self._function(own, call, inputs, depth)
        if not call.domain:
            sizes = self._of_sizes(call, inputs)
            if sizes is not None:
                return sizes
            translate = TRANSLATIONS.get(call.op)
            self.around = env, depth
            found = translate(self, call, *inputs) if translate else None
            if found is not None:
                return found
        body = self._body(call, inputs)
        if body is None:
            raise Untranslated("")
        return self._function(body, call, inputs, depth)

    def _body(self, call: Call, inputs: Sequence[Any]) -> Any:
        """The operator in terms of others, if the package onnx has it."""
        onnx = require_onnx()
        try:
            schema = onnx.defs.get_schema(call.op, call.version, call.domain)
        except onnx.defs.SchemaError:
            return None
        function = onnx.FunctionProto()
        if schema.has_function:
            function.CopyFrom(schema.function_body)
            return function
        if schema.has_context_dependent_function:
            types = []
            for x in inputs:
                kind = onnx.TypeProto()
                if x is not None:
                    sizes = [n if isinstance(n, int) else str(n) for n in x.shape]
                    number = onnx.helper.np_dtype_to_tensor_dtype(x.dtype)
                    kind = onnx.helper.make_tensor_type_proto(number, sizes)
                types.append(kind.SerializeToString())
            node = onnx.NodeProto()
            node.CopyFrom(call.proto)
            del node.attribute[:]  # some may refer to those of a function around it
            node.attribute.extend(
                onnx.helper.make_attribute(key, _as_proto(onnx, value)) for key, value in call.attrs.items()
            )
            data = schema.get_context_dependent_function(node.SerializeToString(), types)
            function.ParseFromString(data)
            return function if function.node else None
        return None

    def _function(self, function: Any, call: Call, inputs: Sequence[Any], depth: int) -> list[Any]:
        env: dict[str, Any] = {"": None, **dict.fromkeys(function.input)}
        env.update(zip(function.input, inputs))
        attrs = {**attributes(self.file, _Defaults(function.attribute_proto), {}), **call.attrs}
        if not call.domain or call.domain == "ai.onnx":
            attrs = {**_schema_defaults(self.file, call), **attrs}
        versions = {imported.domain: imported.version for imported in function.opset_import} or {"": call.version}
        stem, wanted = self._stem, self._wanted
        self.run(function.node, env, versions, attrs, depth + 1, f"{stem}_")
        self._stem, self._wanted = stem, wanted
        return [env.get(name) for name in function.output][: len(call.outputs)]

    def body(self, graph: Any, given: Sequence[Val], around: Any, prefix: str = "") -> list[Val]:
        """The outputs of a graph inside of a node, for these inputs."""
        outer, depth = around
        env = dict(outer)
        for tensor in graph.initializer:
            env[tensor.name] = self.constant(self.file.tensor(tensor), tensor.name)
        if len(graph.input) != len(given):
            raise CheckpointError(f"{self.file.path}: a graph inside takes {len(graph.input)} inputs, not {len(given)}")
        env.update(zip((x.name for x in graph.input), given))
        kept = self._stem, self._wanted, dict(self._extents)
        before = len(self.problems)
        self.run(graph.node, env, self.file.versions, {}, depth + 1, prefix)
        # What was added inside of the graph is of no use outside of it.
        self._stem, self._wanted, self._extents = kept
        if len(self.problems) > before:
            own = list(self.problems)[before:]
            for key in own:
                del self.problems[key]
            raise Untranslated("with " + ", ".join(own))
        return [env[output.name] for output in graph.output]

    def unused_name(self) -> str:
        return self._node_name(None)

    # Values

    def constant(self, array: Any, name: str = "") -> Val:
        array = np.asarray(array)
        for narrow, _, wide in HELD.values():
            if array.dtype == narrow:
                return Val(type_of(array.astype(wide)), array=array.astype(wide), name=name, held=array.dtype.name)
        return Val(type_of(array), array=array, name=name)

    def symbol(self, value: Val) -> Symbol:
        """The value as an output of the graph."""
        if value.source is None:
            if value.sizes is not None and value.array is None:
                value.source = self._written_sizes(value)
            else:
                if value.array is None:
                    raise Untranslated("a value that is not a tensor is returned, or read as one")
                name = self._free(value.name or f"{self._stem}_constant")
                self.args[name] = value.array
                value.source = symbols.var(name, shape=value.array.shape or None, dtype=value.array.dtype)
                value.source._heads[0][0].attrs.pop(MARK, None)  # a loop's body reads it from outside
        return value.source

    def _free(self, stem: str) -> str:
        if stem not in self.args and stem not in self.inputs:
            return stem
        k = 0
        while (name := f"{stem}_{k}") in self._names or name in self.args:
            k += 1
        return name

    def known(self, value: Val | None, what: str) -> np.ndarray:
        """The array that a value is; Untranslated if it is computed."""
        if value is None or value.array is None:
            raise self._computed_at_run_time(value, what)
        return value.array

    def _computed_at_run_time(self, value: Val | None, what: str) -> Untranslated:
        """Notes inputs that must be known."""
        if value is not None and value.source is not None:
            self.deciding.update({name: None for name in value.source.list_inputs() if name in self.inputs})
        return Untranslated(f"whose {what} is computed")

    def ints(self, value: Val, what: str) -> list[Any]:
        """A vector of sizes, which may be open."""
        if value.array is not None:
            return [int(n) for n in value.array.reshape(-1)]
        if value.sizes is None:
            raise self._computed_at_run_time(value, what)
        return list(value.sizes.reshape(-1))

    def op(self, name: str, *inputs: Val, **attrs: Any) -> Any:
        """Adds an operator; its visible results. What depends on small known arrays alone is computed now."""
        operator = registry.get(name)
        if operator.variadic and "num_args" in operator.attrs:
            attrs.setdefault("num_args", len(inputs))
        parsed = operator.parse(attrs)
        operator.check_arity(len(inputs), parsed)
        types = operator.infer([x.type for x in inputs], parsed)
        count = operator.visible(parsed) if operator.visible else len(operator.outputs(parsed))
        for t in types[:count]:
            self._check_size(t, self._stem)
        static = all(t.is_static for t in types)
        if static and all(x.array is not None for x in inputs) and operator.streams is None and not operator.host:
            if sum(t.size for t in types) <= FOLDED and sum(x.type.size for x in inputs) <= 64 * FOLDED:
                return self._computed(operator, inputs, parsed, count)
        wanted = None
        if self._wanted and self._wanted[0] and self._wanted[0] not in self.args:
            wanted = self._wanted[0]
        given = [self.symbol(x) for x in inputs]
        node_name = self._node_name(wanted)
        made = invoke(operator, given, attrs, name=node_name)
        found = [Val(t, made[k] if len(made) > 1 else made) for k, t in enumerate(types[:count])]
        return found[0] if count == 1 else found

    def _node_name(self, wanted: str | None) -> str:
        stem = (wanted or self._stem).removesuffix("_output")
        name, k = stem, 0
        while name in self.args or name in self._used or name in self.inputs:
            name, k = f"{stem}_{k}", k + 1
        self._used.add(name)
        return name

    def _computed(self, operator: Any, inputs: Sequence[Val], parsed: Mapping[str, Any], count: int) -> Any:
        body = operator.expansion([x.type for x in inputs], parsed)
        with np.errstate(all="ignore"):
            arrays = evaluate(body, [x.array for x in inputs])[0][:count]  # type: ignore[arg-type, misc]
        found = [self.constant(np.array(x), f"{self._stem}_{k}" if k else self._stem) for k, x in enumerate(arrays)]
        return found[0] if count == 1 else found

    # Sizes

    def sized(self, sizes: Any, dtype: Any = np.int64) -> Val:
        """A list of sizes, or a single one, as a value."""
        array = np.array(sizes, object)
        if not any(isinstance(n, Dim) for n in array.reshape(-1)):
            return self.constant(array.astype(dtype), self._stem)
        return Val(TensorType(ir_dtype(dtype), array.shape), sizes=array, name=self._stem)

    def _of_sizes(self, call: Call, inputs: Sequence[Any]) -> Val | None:
        rule = OF_SIZES.get(call.op)
        if rule is None or not any(x is not None and x.sizes is not None for x in inputs):
            return None
        arrays: list[Any] = []
        for x in inputs:
            if x is None:
                arrays.append(None)
            elif x.sizes is not None:
                arrays.append(x.sizes)
            elif x.array is not None:
                arrays.append(x.array.astype(object) if x.array.dtype.kind in "iu" else x.array)
            else:
                return None
        try:
            found = rule(self, call, *arrays)
        except Undecided:
            return None
        if found is None:
            return None
        small = (
            call.attrs["to"] == 6
            if call.op == "Cast"
            else any(x is not None and x.sizes is not None and x.dtype == np.int32 for x in inputs)
        )
        return self.sized(found, np.int32 if small else np.int64)

    def extent(self, n: Any) -> Val:
        """A size as a value of shape (1,), computed from the inputs."""
        if not isinstance(n, Dim):
            return self.constant(np.array([n], np.int64))
        if n not in self._extents:
            total: Val | None = None
            for names, factor in n.terms.items():
                product = self.constant(np.array([factor], np.int64))
                for text in names:
                    source, axis = self._sizes[text]
                    shape = self.op("shape_array", source)
                    size = self.op("slice_axis", shape, axis=0, begin=axis, end=axis + 1)
                    product = (
                        size if product.array is not None and factor == 1 else self.op("broadcast_mul", product, size)
                    )
                total = product if total is None else self.op("broadcast_add", total, product)
            if total is None:
                raise Untranslated("a size of no terms")
            self._extents[n] = total
        return self._extents[n]

    def _written_sizes(self, value: Val) -> Symbol:
        if value.sizes is None or not value.sizes.size:
            return self.symbol(self.constant(np.zeros(0, np.int64)))
        parts = [self.extent(n) for n in value.sizes.reshape(-1)]
        whole = self.op("Concat", *parts, dim=0) if len(parts) > 1 else parts[0]
        if value.rank != 1:
            whole = self.op("_np_reshape", whole, newshape=value.shape)
        return self.symbol(whole if value.dtype == np.int64 else self.op("Cast", whole, dtype=value.dtype.name))


def _as_proto(onnx: Any, value: Any) -> Any:
    return onnx.numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value


class _Defaults:
    """Attributes that a function declares, in the form of a node."""

    def __init__(self, attribute: Any) -> None:
        self.attribute = attribute
        self.name = self.op_type = "function"


def _schema_defaults(file: File, call: Call) -> dict[str, Any]:
    onnx = require_onnx()
    schema = onnx.defs.get_schema(call.op, call.version, call.domain)
    found = [a.default_value for a in schema.attributes.values() if a.default_value.name]
    return attributes(file, _Defaults(found), {})


_LOST: Any = Val(TensorType(ir_dtype(np.float32), ()))
"""What a node would have made for which there is no translation."""
