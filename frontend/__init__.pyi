# Made by `python -m gluonjit.tools.stubs` from what the package contains.
from typing import Any

from gluonjit import attribute as attribute
from gluonjit import autograd as autograd
from gluonjit import base as base
from gluonjit import callback as callback
from gluonjit import context as context
from gluonjit import contrib as contrib
from gluonjit import engine as engine
from gluonjit.execution import executor as executor
from gluonjit import executor_manager as executor_manager
from gluonjit import gluon as gluon
from gluonjit import image as image
from gluonjit import image as img
from gluonjit import initializer as init
from gluonjit import initializer as initializer
from gluonjit import io as io
from gluonjit import kvstore as kv
from gluonjit import kvstore as kvstore
from gluonjit import libinfo as libinfo
from gluonjit import log as log
from gluonjit import lr_scheduler as lr_scheduler
from gluonjit import metric as metric
from gluonjit import module as mod
from gluonjit import model as model
from gluonjit import module as module
from gluonjit import monitor as mon
from gluonjit import monitor as monitor
from gluonjit import name as name
from gluonjit import ndarray as nd
from gluonjit import ndarray as ndarray
from gluonjit import notebook as notebook
from gluonjit import numpy as np
from gluonjit import numpy_extension as npx
from gluonjit import numpy as numpy
from gluonjit import numpy_extension as numpy_extension
from gluonjit import onnx as onnx
from gluonjit import operator as operator
from gluonjit import operators as operators
from gluonjit import optimizer as optimizer
from gluonjit import profiler as profiler
from gluonjit import random as random
from gluonjit import recordio as recordio
from gluonjit import registry as registry
from gluonjit import random as rnd
from gluonjit import rnn as rnn
from gluonjit import runtime as runtime
from gluonjit import symbol as sym
from gluonjit import symbol as symbol
from gluonjit import test_utils as test_utils
from gluonjit import util as util
from gluonjit import visualization as visualization
from gluonjit import visualization as viz
from gluonjit.attribute import AttrScope as AttrScope
from gluonjit.context import Context as Context
from gluonjit.base import MXNetError as MXNetError
from gluonjit.tools.serving.predictor import Predictor as Predictor
from gluonjit.execution.inspecting import compile as compile
from gluonjit.context import cpu as cpu
from gluonjit.context import cpu_pinned as cpu_pinned
from gluonjit.context import current_context as current_context
from gluonjit.runtime.threads import get_num_threads as get_num_threads
from gluonjit.context import gpu as gpu
from gluonjit.tools.dropin import install_as_mxnet as install_as_mxnet
from gluonjit.util import is_np_array as is_np_array
from gluonjit.util import is_np_shape as is_np_shape
from gluonjit.deployed import load as load
from gluonjit.util import np_array as np_array
from gluonjit.util import np_shape as np_shape
from gluonjit.execution.backends import register_backend as register_backend
from gluonjit.util import set_np_shape as set_np_shape
from gluonjit.runtime.threads import set_num_threads as set_num_threads
from gluonjit.util import use_np as use_np
from gluonjit.util import use_np_array as use_np_array
from gluonjit.util import use_np_shape as use_np_shape
from gluonjit._version import version as version

__version__: str
gluonjit_version: str
_MODULES: dict[str, str]
_OBJECTS: dict[str, str]
