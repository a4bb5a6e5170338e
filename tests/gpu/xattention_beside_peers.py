#!/usr/bin/env python3
"""XAttention by phases beside a Triton peer and dense attention: one process, the same tensors, the same timing.

    xattention_beside_peers.py LIBRARY PEERS [--len 32768 131072] [--stride 8 16] [--break-even]

LIBRARY is the target kiln_beside_torch, libkiln.so beside it; PEERS a folder with peer_xattention.py. f16, B1 H32
D128, 128-blocks, causal, the peer's data. A round times every competitor once, in turn; medians of the rounds.

Floors: FLOP at 650 TFLOP/s (what cuBLAS reaches), bytes at 4.814 TB/s. `--break-even`: our prefill and our dense
attention over lengths, for xattention_prefill's dense_below.
"""
import argparse
import ctypes
import math
import statistics
import sys

import torch

from beside_peers import Given, check, stream

HEADS, DIM, BLOCK, THRESHOLD, ROUNDS = 32, 128, 128, 0.9, 5
FLOPS, BYTES = 650e9, 4.814e9  # a millisecond
PHASES = ["scores", "block sums", "estimate", "choice", "sparse", "dense", "prefill"]


class Settings(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in "phase head_dim stride block".split()]


class Kiln:
    """One phase, compiled; called with tensors on the current stream."""

    library = None

    def __init__(self, phase, stride):
        self.handle = ctypes.c_int64()
        check(self.library.kiln_xattention_compile(ctypes.byref(Settings(PHASES.index(phase), DIM, stride, BLOCK)),
                                                   ctypes.byref(self.handle)))

    def __call__(self, *tensors, number=THRESHOLD):
        given = (Given * len(tensors))(*[Given(t) for t in tensors])
        check(self.library.kiln_xattention_call(self.handle, given, ctypes.c_float(number), stream()))


def load(path):
    library = ctypes.CDLL(path)
    for name in ("kiln_xattention_compile", "kiln_xattention_call"):
        getattr(library, name).restype = ctypes.c_char_p
    library.kiln_xattention_call.argtypes = [ctypes.c_int64, ctypes.c_void_p, ctypes.c_float, ctypes.c_void_p]
    Kiln.library = library


def taken(run):
    """Milliseconds of one run, and of as many as take 10 together where one takes less."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    run()
    end.record()
    torch.cuda.synchronize()
    once = begin.elapsed_time(end)
    more = max(1, min(50, int(10 / max(once, 1e-2))))
    begin.record()
    for _ in range(more):
        run()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / more


def in_turn(runners, rounds=ROUNDS):
    for run in runners.values():
        run()
    torch.cuda.synchronize()
    times = {name: [] for name in runners}
    for _ in range(rounds):
        for name, run in runners.items():
            times[name].append(taken(run))
    return {name: statistics.median(t) for name, t in times.items()}


class Problem:
    def __init__(self, peers, length, stride):
        self.length, self.stride, self.blocks, self.cells = length, stride, length // BLOCK, length // stride
        self.q, self.k = peers.make_qk(HEADS, length, DIM)
        torch.manual_seed(2)
        self.v = torch.randn_like(self.q)
        self.o, self.dense_o, self.peer_o = (torch.empty_like(self.q) for _ in range(3))
        def cells(dtype, *shape):
            return torch.zeros(1, HEADS, *shape, device="cuda", dtype=dtype)
        n = self.blocks
        self.sums, self.sums_of_scores = cells(torch.float32, n, n), cells(torch.float32, n, n)
        self.choice = [cells(torch.bool, n, n), cells(torch.int32, n), cells(torch.int32, n, n)]
        self.zero, self.there = (torch.tensor([x], device="cuda", dtype=torch.int32) for x in (0, n))
        self.rows = torch.tensor([self.cells], device="cuda", dtype=torch.int32)
        self.scale = 1 / (math.sqrt(DIM) * stride)

    def ours(self, whole_scores):
        s = self
        estimate, choice, sparse, dense, prefill = (
            Kiln(phase, s.stride) for phase in ("estimate", "choice", "sparse", "dense", "prefill"))
        runners = {
            "estimate and choice": lambda: estimate(s.q, s.k, s.sums, *s.choice),
            "choice": lambda: choice(s.sums, s.zero, s.there, *s.choice),
            "attend": lambda: sparse(s.q, s.k, s.v, s.o, *s.choice[1:]),
            "prefill": lambda: prefill(s.q, s.k, s.v, s.o),
            "dense": lambda: dense(s.q, s.k, s.v, s.dense_o),
        }
        if whole_scores:
            scores, block_sums = Kiln("scores", s.stride), Kiln("block sums", s.stride)
            matrix = torch.empty(1, HEADS, s.cells, s.cells, device="cuda", dtype=torch.float16)
            runners["scores"] = lambda: scores(s.q, s.k, matrix)
            runners["block sums"] = lambda: block_sums(matrix, s.zero, s.rows, s.rows, s.sums_of_scores,
                                                       number=s.scale)
        return runners

    def density(self, counts):
        return int(counts.sum()) / (HEADS * self.blocks * (self.blocks + 1) / 2)


def memory_of_prefill(problem):
    """Device memory that a call takes beyond its tensors: of one that is the first of this size."""
    prefill = Kiln("prefill", problem.stride)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.mem_get_info()[0]
    prefill(problem.q, problem.k, problem.v, problem.o)
    torch.cuda.synchronize()
    return before - torch.cuda.mem_get_info()[0]


def peer_runners(problem, peer, pp, configs):
    s = problem
    found = {}
    for fused in (False, True):
        if fused not in configs:
            configs[fused], _ = peer.tune(
                lambda c, co, fused=fused: peer.estimate(s.q[0], s.k[0], s.stride, c, 16384, fused, compile_only=co),
                peer.GEMM)
        name = "peer's estimate, fused" if fused else "peer's estimate"
        found[name] = lambda fused=fused: peer.estimate(s.q[0], s.k[0], s.stride, configs[fused], 16384, fused)
    w = found["peer's estimate"]()
    mask = peer.select(w, THRESHOLD)[None]
    indices, counts = pp.lists(mask)
    if "attend" not in configs:
        configs["attend"], _ = peer.tune(
            lambda c, co: pp.bs_attention(s.q, s.k, s.v, s.peer_o, indices, counts, BLOCK, c, compile_only=co),
            pp.configs(BLOCK))
    found["peer's choice (PyTorch)"] = lambda: pp.lists(peer.select(w, THRESHOLD)[None])
    found["peer's attend"] = lambda: pp.bs_attention(s.q, s.k, s.v, s.peer_o, indices, counts, BLOCK, configs["attend"])
    return found, w, mask, counts


def compare(problem, w, mask, counts):
    """Our sums and masks beside the peer's, and the mass that ours cover."""
    ours, chosen = problem.sums[0], problem.choice[0][0]
    error = ((ours - w).norm() / w.norm()).item()
    covered = ((ours * chosen).sum(-1) / ours.sum(-1).clamp_min(1e-30)).min().item()
    rows = (chosen.sum(-1) - counts[0]).abs()
    print(f"  sums beside the peer's: {error:.1e}; least mass covered {covered:.5f}; rows whose number of blocks differs "
          f"{int((rows > 0).sum())} of {rows.numel()}, by {int(rows.max())} at most; blocks in all "
          f"{int(chosen.sum())} and {int(mask.sum())}")
    assert error < 4e-3 and covered > THRESHOLD - 1e-3


def floors(problem, density):
    length, stride = problem.length, problem.stride
    cells = problem.cells * (problem.cells + 1) / 2
    table = HEADS * problem.blocks ** 2
    inputs = 2 * HEADS * length * DIM * 2
    return {"estimate and choice": max(HEADS * cells * 2 * stride * DIM / FLOPS, inputs / BYTES),
            "choice": table * (4 / 2 + 1 + 4) / BYTES,
            "attend": 4 * DIM * BLOCK ** 2 * density * HEADS * problem.blocks * (problem.blocks + 1) / 2 / FLOPS,
            "dense": 2 * HEADS * length ** 2 * DIM / FLOPS,
            "scores": max(HEADS * cells * 2 * stride * DIM / FLOPS, (inputs + HEADS * cells * 2) / BYTES),
            "block sums": HEADS * cells * 2 / BYTES}


def measure(length, stride, peer, pp, table, configs):
    problem = Problem(sys.modules["peers_common"], length, stride)
    whole = HEADS * problem.cells ** 2 * 2 < 20e9
    extra = memory_of_prefill(problem)
    runners = problem.ours(whole)
    for name in ("estimate and choice", "attend"):
        runners[name]()
    peers, w, mask, counts = peer_runners(problem, peer, pp, configs)
    compare(problem, w, mask, counts)
    from torch.nn.attention import SDPBackend, sdpa_kernel
    def cudnn():
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            torch.nn.functional.scaled_dot_product_attention(problem.q, problem.k, problem.v, is_causal=True)
    runners.update(peers)
    runners["dense, cuDNN"] = cudnn
    times = in_turn(runners)
    density = problem.density(problem.choice[1])
    floor = floors(problem, density)
    error = ((problem.o - problem.dense_o).float().norm() / problem.dense_o.float().norm()).item()
    matrix = HEADS * problem.cells ** 2 * 2
    head = f"S{length} stride {stride}"
    print(f"{head}: density {density:.3f} (peer's {problem.density(counts):.3f}), |sparse - dense| / |dense| {error:.4f}; "
          f"memory beyond tensors {extra / 2 ** 20:.0f} MiB, the matrix of scores {matrix / 2 ** 20:.0f} MiB: "
          f"1/{matrix / max(extra, 1):.0f}")
    for name, ms in times.items():
        line = f"{head:20s} {name:28s} {ms:9.3f} ms"
        if name in floor:
            line += f"  floor {floor[name]:8.3f}"
        if name in ("prefill", "dense"):
            line += f"  {times['dense'] / ms:5.2f} x our dense, {times['dense, cuDNN'] / ms:5.2f} x cuDNN's"
        print(line, flush=True)
        table.append(line)


def break_even(lengths, strides):
    import peers_common
    for length in lengths:
        for stride in strides:
            problem = Problem(peers_common, length, stride)
            runners = problem.ours(False)
            times = in_turn({name: runners[name] for name in ("prefill", "dense")}, rounds=7)
            runners["estimate and choice"]()
            print(f"break-even S{length:6d} stride {stride:2d}: prefill {times['prefill']:8.3f} ms, dense "
                  f"{times['dense']:8.3f} ms: {times['dense'] / times['prefill']:.2f}; density "
                  f"{problem.density(problem.choice[1]):.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("peers")
    parser.add_argument("--len", type=int, nargs="+", default=[32768, 131072])
    parser.add_argument("--stride", type=int, nargs="+", default=[8, 16])
    parser.add_argument("--break-even", action="store_true")
    args = parser.parse_args()
    load(args.library)
    sys.path.insert(0, args.peers)
    import peer_prefill as pp
    import peer_xattention as peer
    table = []
    if args.break_even:
        break_even([1024, 2048, 3072, 4096, 6144, 8192, 12288, 16384], args.stride)
    for stride in args.stride:
        configs = {}
        for length in args.len:
            measure(length, stride, peer, pp, table, configs)
            torch.cuda.empty_cache()
    print("\n".join(["", "all:"] + table))


if __name__ == "__main__":
    main()
