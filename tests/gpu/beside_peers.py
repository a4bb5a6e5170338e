"""Tensors as Kiln's library takes them (beside_peers.h)."""
import ctypes

import torch

DTYPES = {torch.float16: 0, torch.bfloat16: 1, torch.float32: 2, torch.int32: 3, torch.bool: 4, torch.int8: 5,
          torch.float8_e4m3fn: 6}


class Given(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("dtype", ctypes.c_int64), ("rank", ctypes.c_int64),
                ("shape", ctypes.c_int64 * 5), ("strides", ctypes.c_int64 * 5)]

    def __init__(self, tensor):
        super().__init__()
        if tensor is None:
            return
        self.data, self.dtype, self.rank = tensor.data_ptr(), DTYPES[tensor.dtype], tensor.dim()
        self.shape[:tensor.dim()], self.strides[:tensor.dim()] = tensor.shape, tensor.stride()


def check(problem):
    if problem:
        raise RuntimeError(problem.decode())


def stream():
    return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
