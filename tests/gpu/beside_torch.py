#!/usr/bin/env python3
"""Kiln and PyTorch in one process: PyTorch's tensors and streams, eager calls, a CUDA graph, Triton;
Kiln loaded before PyTorch and Triton, and after them.

    beside_torch.py LIBRARY                  the target kiln_beside_torch, libkiln.so beside it
    beside_torch.py LIBRARY kiln|torch       one order only: which comes first

Without a GPU only the host's part runs: both loaded, Kiln's compiler used, results right.
"""
import ctypes
import math
import random
import subprocess
import sys


def load_kiln(path, mode):
    """y = softmax of x's rows on the device, on the stream."""
    kiln = ctypes.CDLL(path, mode=mode)
    kiln.kiln_row_softmax.restype = ctypes.c_char_p
    kiln.kiln_row_softmax.argtypes = ([ctypes.c_char_p] + [ctypes.c_void_p] * 2
                                      + [ctypes.c_int64] * 2 + [ctypes.c_void_p])

    def softmax(device, x, y, rows, columns, stream=None):
        problem = kiln.kiln_row_softmax(device.encode(), x, y, rows, columns, stream)
        if problem:
            raise RuntimeError(problem.decode())

    return softmax


def check_host(softmax):
    """Kiln compiles for the CPU, without PyTorch's help."""
    rows, columns = 5, 301
    x = (ctypes.c_float * (rows * columns))(*[random.gauss(0, 1) for _ in range(rows * columns)])
    y = (ctypes.c_float * (rows * columns))()
    softmax("host", x, y, rows, columns)
    for row in range(rows):
        weights = [math.exp(value) for value in x[row * columns:(row + 1) * columns]]
        for weight, got in zip(weights, y[row * columns:(row + 1) * columns]):
            assert abs(got - weight / sum(weights)) < 1e-6, "host"
    print("kiln's own compiler, on the host: right")


def check_triton(torch, factor):
    """Triton compiles a kernel, another for each factor."""
    import triton
    import triton.language as tl

    @triton.jit
    def scale(x, y, count, factor: tl.constexpr, block: tl.constexpr):
        at = tl.program_id(0) * block + tl.arange(0, block)
        tl.store(y + at, tl.load(x + at, mask=at < count) * factor, mask=at < count)

    x = torch.randn(1000, device="cuda")
    y = torch.empty_like(x)
    scale[(8,)](x, y, 1000, factor, 128)
    assert torch.equal(y, x * factor), "Triton"
    print(f"Triton {triton.__version__}: right")


def check_gpu(torch, run):
    def softmax(x, y):
        run("cuda", x.data_ptr(), y.data_ptr(), x.shape[0], x.shape[1],
            torch.cuda.current_stream().cuda_stream)

    def check(what, y, x):
        error = (y - torch.softmax(x.double(), 1)).abs().max().item()
        print(f"{what}: largest error {error:.1e}")
        assert error < 1e-6, what

    x = torch.randn(1000, 3001, device="cuda")
    y = torch.full_like(x, float("nan"))
    softmax(x, y)
    check("default stream, not waited for between", y, x)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
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


def in_order(library, first):
    softmax = None
    if first == "kiln":
        # Its symbols are offered to all that is loaded later.
        softmax = load_kiln(library, ctypes.RTLD_GLOBAL)
        check_host(softmax)
    import torch
    try:
        import triton
        print(f"PyTorch {torch.__version__}, Triton {triton.__version__}")
    except ImportError:
        print(f"PyTorch {torch.__version__}, no Triton")
    assert torch.allclose(torch.ones(3, 4) @ torch.ones(4, 5), torch.full((3, 5), 4.0))
    gpu = torch.cuda.is_available()
    if gpu:
        torch.zeros(1, device="cuda")
        check_triton(torch, 3)
    if first == "torch":
        softmax = load_kiln(library, ctypes.RTLD_LOCAL)
        check_host(softmax)
    if not gpu:
        print("no GPU: the rest is left out")
        return
    check_gpu(torch, softmax)
    check_triton(torch, 5)


def main():
    if len(sys.argv) == 3:
        return in_order(*sys.argv[1:])
    for first in ("torch", "kiln"):
        print(f"-- {first} first", flush=True)
        subprocess.run([sys.executable, __file__, sys.argv[1], first], check=True)
    print("all right")


if __name__ == "__main__":
    main()
