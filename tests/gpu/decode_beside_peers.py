#!/usr/bin/env python3
"""Sparse decode beside a Triton peer and cuDNN's dense attention: one process, the same tensors, the same timing.

    decode_beside_peers.py LIBRARY PEERS [--cases …] [--sweep] [--peer-tune]

LIBRARY is the target kiln_beside_torch, libkiln.so beside it; PEERS a folder with peer_decode.py. Every timed call
meets a cold L2: caches or selections of at least three times its size take turns in a CUDA graph. Bytes are those of
the distinct selected keys and values that a sequence has. A round times every competitor once; medians of the rounds.
"""
import argparse
import ctypes
import itertools
import re
import statistics
import sys

import torch

from beside_peers import Given, check, stream

DEV, L2_BYTES, ROUNDS = "cuda", 60 << 20, 7
FORMS = {"indices": 0, "mask": 1, "dense": 3}


class Settings(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in
                "bf16 fp8_cache head_dim group block page form split stages threads".split()]


class Kiln:
    """One compiled kernel; called with tensors on the current stream."""

    library = None

    def __init__(self, **settings):
        self.handle = ctypes.c_int64()
        check(self.library.kiln_decode_compile(ctypes.byref(Settings(**settings)), ctypes.byref(self.handle)))

    def __call__(self, splits, *tensors):
        given = (Given * 9)(*[Given(t) for t in tensors])
        check(self.library.kiln_decode_call(self.handle, given, ctypes.c_int64(splits),
                                                 stream()))


def load(path):
    library = ctypes.CDLL(path)
    for name in ("kiln_decode_compile", "kiln_decode_call"):
        getattr(library, name).restype = ctypes.c_char_p
    library.kiln_decode_call.argtypes = [ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p]
    Kiln.library = library


class Case:
    """Caches, selections and lengths of a problem."""

    def __init__(self, name, batch, heads, heads_kv, room, block, entries, ragged, page=0, fp8=False):
        self.name, self.batch, self.heads, self.heads_kv, self.room = name, batch, heads, heads_kv, room
        self.block, self.page, self.fp8, self.head_dim = block, page, fp8, 128
        self.group = heads // heads_kv
        torch.manual_seed(1)
        lens = torch.randint(room // 2, room + 1, (batch,)) if ragged else torch.full((batch,), room)
        self.lens = lens.to(torch.int32).to(DEV)
        self.q = torch.randn(batch, heads, self.head_dim, device=DEV, dtype=torch.float16)
        self.o = torch.empty_like(self.q)
        once = 2 * batch * heads_kv * entries * block * self.head_dim * (1 if fp8 else 2)
        self.caches = [[torch.randn(batch, room, heads_kv, self.head_dim, device=DEV, dtype=torch.float16)
                        for _ in "kv"] for _ in range(max(1, min(4, -(-3 * L2_BYTES // once))))]
        self.lists = [self.selection(entries) for _ in range(max(2, len(self.caches)))]
        self.sets = [(*self.caches[i % len(self.caches)], self.lists[i]) for i in range(len(self.lists))]
        self.table = None
        if page:
            self.paged()
        self.keys = statistics.mean(self.count(chosen) for chosen in self.lists)
        self.bytes = self.keys * 2 * self.head_dim * (1 if fp8 else 2)
        self.scale = torch.tensor([0.02], device=DEV)
        if fp8:
            self.sets = [((k / 0.02).to(torch.float8_e4m3fn), (v / 0.02).to(torch.float8_e4m3fn), chosen)
                         for k, v, chosen in self.sets]

    def selection(self, entries):
        """Of each kv head's own, ascending, the last block among them; as many as its length's share."""
        blocks = (self.lens.long() + self.block - 1) // self.block
        drawn = torch.rand(self.batch, self.heads_kv, self.room // self.block, device=DEV)
        place = torch.arange(self.room // self.block, device=DEV)
        drawn[(place >= blocks[:, None])[:, None].expand_as(drawn)] = -1
        drawn.scatter_(2, (blocks - 1)[:, None, None].expand(-1, self.heads_kv, 1), 2.0)
        lists = drawn.topk(entries, -1).indices.sort(-1).values
        keep = (entries * blocks + self.room // self.block - 1) // (self.room // self.block)
        rank = torch.arange(entries, device=DEV)
        top = drawn.topk(entries, -1).indices
        top[(rank >= keep[:, None])[:, None].expand_as(top)] = 1 << 30
        lists = top.sort(-1).values
        lists[lists == 1 << 30] = -1
        return lists.to(torch.int32).contiguous()

    def count(self, chosen):
        ends = torch.minimum((chosen + 1).long() * self.block, self.lens.long()[:, None, None])
        return int((ends - chosen.long() * self.block)[chosen >= 0].clamp(min=0).sum())

    def paged(self):
        torch.manual_seed(7)
        pages = self.room // self.page
        self.table = torch.randperm(self.batch * pages, device=DEV).view(self.batch, pages).to(torch.int32)
        def scatter(x):
            y = torch.empty(self.batch * pages, self.page, self.heads_kv, self.head_dim, device=DEV, dtype=x.dtype)
            y[self.table.long().view(-1)] = x.view(self.batch * pages, self.page, self.heads_kv, self.head_dim)
            return y
        done = {}
        for k, v, _ in self.sets:
            for x in (k, v):
                if x.data_ptr() not in done:
                    done[x.data_ptr()] = (x, scatter(x))
        self.sets = [(done[k.data_ptr()][1], done[v.data_ptr()][1], chosen) for k, v, chosen in self.sets]

    def ours(self, splits=0, stages=0, threads=0, split=1):
        kernel = Kiln(bf16=0, fp8_cache=self.fp8, head_dim=self.head_dim, group=self.group, block=self.block,
                      page=self.page, form=FORMS["indices"], split=split, stages=stages, threads=threads)
        scales = (self.scale, self.scale) if self.fp8 else (None, None)
        return [lambda k=k, v=v, chosen=chosen: kernel(splits, self.q, k, v, self.o, self.lens, chosen, self.table,
                                                       *scales) for k, v, chosen in self.sets]


CASES = {
    "A": dict(name="B64 H32/8 S8192 block 64 keep 50 %", batch=64, heads=32, heads_kv=8, room=8192, block=64, entries=64),
    "B": dict(name="B16 H32/8 S65536 block 64 keep 20 %", batch=16, heads=32, heads_kv=8, room=65536, block=64,
              entries=205),
    "C": dict(name="B8 H32/8 S8192 block 32 keep 20 %", batch=8, heads=32, heads_kv=8, room=8192, block=32, entries=51),
    "D": dict(name="B32 H32/2 S131072 64 of 2048 blocks", batch=32, heads=32, heads_kv=2, room=131072, block=64,
              entries=64),
}
# The fastest of peer_decode.py's configurations, found with --peer-tune: (BN, splits, warps, stages, how).
PEER = {"A": (64, 1, 4, 4, "two"), "B": (64, 2, 4, 3, "pdl"), "C": (128, 8, 4, 2, "pdl"), "D": (64, 4, 4, 3, "pdl")}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("peers")
    parser.add_argument("--cases", default="A,B,C,D,Ar,Br,Cr,Dr,Ap256,Ap16,Af",
                        help="with r: lengths uniform in [S/2, S]; p256: pages of 256 keys; f: an fp8 cache")
    parser.add_argument("--sweep", action="store_true")
    parser.add_argument("--peer-tune", action="store_true")
    args = parser.parse_args()
    load(args.library)
    sys.path.insert(0, args.peers)
    import peer_decode as peer
    from peers_common import bench_graph, tune

    table = []
    for text in args.cases.split(","):
        letter, extra = text[0], text[1:]
        page = re.search(r"p(\d+)", extra)
        case = Case(**CASES[letter], ragged="r" in extra, page=int(page[1]) if page else 0, fp8="f" in extra)
        rows, entries = case.batch * case.heads_kv, case.lists[0].shape[-1]
        runners = {"kiln": case.ours()}
        bench_graph(runners["kiln"])
        mine = case.o.clone()
        if not case.fp8:
            ws = peer.Workspace(case.batch, case.heads_kv, case.group, case.head_dim)
            def triton(cfg, compile_only):
                calls = [lambda s=s: peer.sparse_decode(case.q, *s, case.lens, case.o, ws, case.block, cfg, case.table)
                         for s in case.sets]
                if compile_only:
                    peer.sparse_decode(case.q, *case.sets[0], case.lens, case.o, ws, case.block, cfg, case.table,
                                       compile_only=True)
                return calls
            if not (case.page and case.page < case.block):
                found = PEER.get(letter)
                if args.peer_tune or not found:
                    found, times = tune(triton, peer.configs(rows, entries, case.block),
                                        timer=lambda f: bench_graph(f(), reps=3), verbose=True)
                runners[f"triton {found}"] = triton(found, False)
                bench_graph(runners[f"triton {found}"])
                difference = (mine.float() - case.o.float()).abs().max().item()
                print(f"{text}: ours and the peer's differ by at most {difference:.1e}", flush=True)
        if args.sweep:
            for stages, threads, splits in itertools.product((2, 3, 4, 6), (64, 128, 256), (0, 1, 2, 3, 4, 6, 8, 16)):
                if (rows < 132 if splits == 0 else not 132 <= rows * splits <= 14 * 132) or splits > entries // 2:
                    continue
                try:
                    name = f"kiln stages {stages} threads {threads} splits {splits}"
                    runners[name] = case.ours(splits, stages, threads, split=int(splits > 0))
                    bench_graph(runners[name], reps=3)
                except RuntimeError as error:
                    print(name, "does not run:", str(error)[:120])
                    runners.pop(name, None)
        times = {name: [] for name in runners}
        for _ in range(3 if args.sweep else ROUNDS):
            for name, calls in runners.items():
                times[name].append(bench_graph(calls, reps=3 if args.sweep else 7))
        medians = {name: statistics.median(t) * 1e3 for name, t in times.items()}
        shown = sorted(medians, key=medians.get)[:14] if args.sweep else list(medians)
        for name in dict.fromkeys(shown + [n for n in medians if n.startswith("triton")] + ["kiln"]):
            line = (f"{case.name}{' ' + extra if extra else '':8s} {name:36s} {medians[name]:9.2f} us "
                    f"{case.bytes / medians[name] / 1e3:7.0f} GB/s  floor {case.bytes / 4.814e6:8.2f} us")
            print(line, flush=True)
            table.append(line)
        del case, runners
        torch.cuda.empty_cache()
    print("\n".join(["", "all:"] + table))


if __name__ == "__main__":
    main()
