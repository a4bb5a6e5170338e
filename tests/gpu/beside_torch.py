#!/usr/bin/env python3
"""Kiln and PyTorch in one process: PyTorch's tensors and streams, eager calls, a CUDA graph, Triton.

    beside_torch.py LIBRARY      build it with -DCMAKE_POSITION_INDEPENDENT_CODE=ON, target kiln_beside_torch
"""
import ctypes
import sys

import torch

torch.zeros(1, device="cuda")  # PyTorch comes first
kiln = ctypes.CDLL(sys.argv[1])
kiln.kiln_row_softmax.restype = ctypes.c_char_p
kiln.kiln_row_softmax.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_int64] * 2 + [ctypes.c_void_p]


def softmax(x, y):
    problem = kiln.kiln_row_softmax(x.data_ptr(), y.data_ptr(), x.shape[0], x.shape[1],
                                    torch.cuda.current_stream().cuda_stream)
    if problem:
        raise RuntimeError(problem.decode())


def check(what, y, x):
    error = (y - torch.softmax(x.double(), 1)).abs().max().item()
    print(f"{what}: largest error {error:.1e}")
    assert error < 1e-6, what


x = torch.randn(1000, 3001, device="cuda")
y = torch.full_like(x, float("nan"))
softmax(x, y)
check("default stream, not waited for between", y, x)

side = torch.cuda.Stream()
with torch.cuda.stream(side):
    z = x * 2  # queued before ours on the same stream
    softmax(z, y)
    w = y + 0  # and after
side.synchronize()
check("side stream, in order with PyTorch's kernels", w, x * 2)

graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    softmax(x, y)
x.normal_()
y.fill_(float("nan"))
graph.replay()
torch.cuda.synchronize()
check("captured in a graph, replayed on new data", y, x)

compiled = torch.compile(lambda a: torch.softmax(a, 1) * 3)  # Triton, with an LLVM of its own
assert torch.allclose(compiled(x), y * 3, atol=1e-6)
softmax(x, y)
check("after torch.compile", y, x)

cpu = torch.randn(4, 4)
try:
    softmax(cpu, y)
    raise AssertionError("a host pointer was taken")
except RuntimeError as error:
    print("host pointer:", str(error).splitlines()[0])
print("all right")
