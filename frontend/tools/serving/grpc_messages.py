"""The messages of the Open Inference Protocol's gRPC service, `inference.GRPCInferenceService`, described in code.

They have a pool of descriptors of their own: a program may hold a client of the same protocol, with its own.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = "inference"
SERVICE = f"{PACKAGE}.GRPCInferenceService"

_FIELD = descriptor_pb2.FieldDescriptorProto
SCALARS = {
    "bool": _FIELD.TYPE_BOOL,
    "int32": _FIELD.TYPE_INT32,
    "int64": _FIELD.TYPE_INT64,
    "uint32": _FIELD.TYPE_UINT32,
    "uint64": _FIELD.TYPE_UINT64,
    "float": _FIELD.TYPE_FLOAT,
    "double": _FIELD.TYPE_DOUBLE,
    "string": _FIELD.TYPE_STRING,
    "bytes": _FIELD.TYPE_BYTES,
}

_PARAMETERS = "map InferParameter"
_TENSOR = {"name": (1, "string"), "datatype": (2, "string"), "shape": (3, "* int64")}
_VALUE = {**_TENSOR, "parameters": (4, _PARAMETERS), "contents": (5, "InferTensorContents")}
_MODEL = {"name": (1, "string"), "version": (2, "string")}
_CHANGE = {
    "repository_name": (1, "string"),
    "model_name": (2, "string"),
    "parameters": (3, "map ModelRepositoryParameter"),
}

MESSAGES: Mapping[str, Mapping[str, tuple[int, str]]] = {
    # message: {field: (number, type)}; `*` repeats, `map X` maps texts to X, `|` is one of the message's choices
    "ServerLiveRequest": {},
    "ServerLiveResponse": {"live": (1, "bool")},
    "ServerReadyRequest": {},
    "ServerReadyResponse": {"ready": (1, "bool")},
    "ModelReadyRequest": _MODEL,
    "ModelReadyResponse": {"ready": (1, "bool")},
    "ServerMetadataRequest": {},
    "ServerMetadataResponse": {**_MODEL, "extensions": (3, "* string")},
    "ModelMetadataRequest": _MODEL,
    "ModelMetadataResponse.TensorMetadata": _TENSOR,
    "ModelMetadataResponse": {
        "name": (1, "string"),
        "versions": (2, "* string"),
        "platform": (3, "string"),
        "inputs": (4, "* ModelMetadataResponse.TensorMetadata"),
        "outputs": (5, "* ModelMetadataResponse.TensorMetadata"),
    },
    "InferParameter": {
        "bool_param": (1, "| bool"),
        "int64_param": (2, "| int64"),
        "string_param": (3, "| string"),
        "double_param": (4, "| double"),
        "uint64_param": (5, "| uint64"),
    },
    "InferTensorContents": {
        "bool_contents": (1, "* bool"),
        "int_contents": (2, "* int32"),
        "int64_contents": (3, "* int64"),
        "uint_contents": (4, "* uint32"),
        "uint64_contents": (5, "* uint64"),
        "fp32_contents": (6, "* float"),
        "fp64_contents": (7, "* double"),
        "bytes_contents": (8, "* bytes"),
    },
    "ModelInferRequest.InferInputTensor": _VALUE,
    "ModelInferRequest.InferRequestedOutputTensor": {"name": (1, "string"), "parameters": (2, _PARAMETERS)},
    "ModelInferRequest": {
        "model_name": (1, "string"),
        "model_version": (2, "string"),
        "id": (3, "string"),
        "parameters": (4, _PARAMETERS),
        "inputs": (5, "* ModelInferRequest.InferInputTensor"),
        "outputs": (6, "* ModelInferRequest.InferRequestedOutputTensor"),
        "raw_input_contents": (7, "* bytes"),
    },
    "ModelInferResponse.InferOutputTensor": _VALUE,
    "ModelInferResponse": {
        "model_name": (1, "string"),
        "model_version": (2, "string"),
        "id": (3, "string"),
        "parameters": (4, _PARAMETERS),
        "outputs": (5, "* ModelInferResponse.InferOutputTensor"),
        "raw_output_contents": (6, "* bytes"),
    },
    "ModelRepositoryParameter": {
        "bool_param": (1, "| bool"),
        "int64_param": (2, "| int64"),
        "string_param": (3, "| string"),
        "bytes_param": (4, "| bytes"),
    },
    "RepositoryIndexRequest": {"repository_name": (1, "string"), "ready": (2, "bool")},
    "RepositoryIndexResponse.ModelIndex": {
        "name": (1, "string"),
        "version": (2, "string"),
        "state": (3, "string"),
        "reason": (4, "string"),
    },
    "RepositoryIndexResponse": {"models": (1, "* RepositoryIndexResponse.ModelIndex")},
    "RepositoryModelLoadRequest": _CHANGE,
    "RepositoryModelLoadResponse": {},
    "RepositoryModelUnloadRequest": _CHANGE,
    "RepositoryModelUnloadResponse": {},
}

METHODS = (
    "ServerLive",
    "ServerReady",
    "ModelReady",
    "ServerMetadata",
    "ModelMetadata",
    "ModelInfer",
    "RepositoryIndex",
    "RepositoryModelLoad",
    "RepositoryModelUnload",
)
"""Each takes a message `…Request` and gives a `…Response`."""


@functools.cache
def message(name: str) -> Any:
    """The class of a message."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"{PACKAGE}.{name}"))


@functools.cache
def _pool() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="gluonjit_inference.proto", package=PACKAGE, syntax="proto3")
    made: dict[str, Any] = {}
    for name, fields in sorted(MESSAGES.items(), key=lambda item: item[0].count(".")):
        outer, _, own = name.rpartition(".")
        kind = made[outer].nested_type.add(name=own) if outer else file.message_type.add(name=name)
        made[name] = kind
        for field, (number, type) in fields.items():
            _add(kind, name, field, number, type)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


def _add(kind: Any, within: str, field: str, number: int, type: str) -> None:
    mark, _, plain = type.rpartition(" ")
    added = kind.field.add(name=field, number=number, label=_FIELD.LABEL_OPTIONAL)
    if mark == "map":
        entry = kind.nested_type.add(name="".join(word.capitalize() for word in field.split("_")) + "Entry")
        entry.options.map_entry = True
        _add(entry, "", "key", 1, "string")
        _add(entry, "", "value", 2, plain)
        plain = f"{within}.{entry.name}"
    if mark in ("*", "map"):
        added.label = _FIELD.LABEL_REPEATED
    if mark == "|":
        if not kind.oneof_decl:
            kind.oneof_decl.add(name="parameter_choice")
        added.oneof_index = 0
    if plain in SCALARS:
        added.type = SCALARS[plain]
    else:
        added.type, added.type_name = _FIELD.TYPE_MESSAGE, f".{PACKAGE}.{plain}"
