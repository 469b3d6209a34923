"""What stands for Horovod where programs written for MXNet import it; see `gluonjit.horovod.mxnet`."""
