"""`mx.contrib.svrg_optimization`: training with stochastic variance reduced gradients."""

from gluonjit.contrib.svrg_optimization import svrg_module

__all__ = ["svrg_module"]
