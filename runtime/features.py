"""`mx.runtime.Features`: what the library was built with, under MXNet's names for such things."""

from __future__ import annotations

from typing import NamedTuple

from gluonjit.codegen.target import host

# MXNet's name: the CPU feature that it stands for, in LLVM's spelling.
_CPU = {
    "CPU_SSE": "sse",
    "CPU_SSE2": "sse2",
    "CPU_SSE3": "sse3",
    "CPU_SSE4_1": "sse4.1",
    "CPU_SSE4_2": "sse4.2",
    "CPU_SSE4A": "sse4a",
    "CPU_AVX": "avx",
    "CPU_AVX2": "avx2",
    "F16C": "f16c",
}
_PRESENT = ("LAPACK", "CXX14", "INT64_TENSOR_SIZE")  # NumPy's linear algebra; tensors of 2³¹ elements and more
_NAMES = (
    "CUDA CUDNN NCCL CUDA_RTC TENSORRT CPU_SSE CPU_SSE2 CPU_SSE3 CPU_SSE4_1 CPU_SSE4_2 CPU_SSE4A CPU_AVX CPU_AVX2 "
    "OPENMP SSE F16C JEMALLOC BLAS_OPEN BLAS_ATLAS BLAS_MKL BLAS_APPLE LAPACK MKLDNN OPENCV CAFFE PROFILER "
    "DIST_KVSTORE CXX14 INT64_TENSOR_SIZE SIGNAL_HANDLER DEBUG TVM_OP"
).split()


class Feature(NamedTuple):
    """Whether one thing is there."""

    name: str
    enabled: bool

    def __repr__(self) -> str:
        return f"{'✔' if self.enabled else '✖'} {self.name}"


def feature_list() -> list[Feature]:
    """Every feature that MXNet 1.9.1 knows, in its order. CPU features are those of this machine."""
    cpu = set(host().features.replace("+", "").split(","))
    return [Feature(name, _CPU[name] in cpu if name in _CPU else name in _PRESENT) for name in _NAMES]


class Features(dict):
    """All features by name."""

    def __init__(self) -> None:
        super().__init__((feature.name, feature) for feature in feature_list())

    def __repr__(self) -> str:
        return str(list(self.values()))

    def is_enabled(self, feature_name: str) -> bool:
        """RuntimeError for a name that is no feature."""
        feature = self.get(feature_name.upper())
        if feature is None:
            raise RuntimeError(f"Feature '{feature_name}' is unknown, known features are: {list(self)}")
        return feature.enabled
