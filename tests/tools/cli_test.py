#!/usr/bin/env python3
"""The `kiln` command, on files that NumPy wrote and reads.   cli_test.py PATH_OF_KILN [unittest options]"""

import os
import subprocess

import numpy as np

from cli_support import KILN, SEED, KilnTest, main


def softmax_attention(q, k, v, mask=None, block=64, causal=False, scale=None):
    """float64 attention and LSE of [B, H, S, D] arrays; a mask of blocks."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    scores = q @ k.swapaxes(-1, -2) * (scale or q.shape[-1] ** -0.5)
    seq, seq_kv = scores.shape[-2:]
    seen = np.ones(scores.shape, bool)
    if mask is not None:
        fine = np.repeat(np.repeat(mask != 0, block, axis=2), block, axis=3)
        seen &= fine[:, :, :seq, :seq_kv]
    if causal:
        seen &= np.arange(seq_kv) <= np.arange(seq)[:, None] + seq_kv - seq
    scores = np.where(seen, scores, -np.inf)
    top = scores.max(-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isfinite(top), top, 0))
    total = weights.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = np.log(total) + np.where(np.isfinite(top), top, 0)
    return np.where(total > 0, weights @ v / np.where(total > 0, total, 1), 0), lse[..., 0]


class Attend(KilnTest):
    def attend(self, q, k, v, *args, **kwargs):
        """The result of `kiln attend` on the arrays; keywords are further arrays, by option."""
        files = []
        for name, array in dict(q=q, k=k, v=v, **kwargs).items():
            files += [f"--{name}", self.save(f"{name}.npy", array)]
        self.kiln("attend", *files, *args, "--out", self.path("o.npy"), "--lse", self.path("l.npy"))
        return np.load(self.path("o.npy")), np.load(self.path("l.npy"))

    def check(self, got, expected, tolerance=2e-3):
        self.assertEqual(got.shape, expected.shape)
        self.assertTrue(np.array_equal(np.isfinite(got), np.isfinite(expected)))
        finite = np.isfinite(expected)
        error = np.abs(got[finite].astype(np.float64) - expected[finite])
        self.assertTrue(np.all(error <= tolerance * (1 + np.abs(expected[finite]))),
                        f"seed {SEED}: worst error {error.max(initial=0)}")

    def test_masks_and_groups(self):
        for dtype, mask_dtype, causal in [(np.float16, bool, False), (np.float32, np.int8, True),
                                          (np.float16, np.uint8, True)]:
            q = self.normal(2, 4, 130, 64, dtype=dtype)
            k, v = self.normal(2, 2, 200, 64, dtype=dtype), self.normal(2, 2, 200, 32, dtype=dtype)
            mask = (self.rng.random((2, 4, 3, 4)) < 0.5).astype(mask_dtype)
            o, lse = self.attend(q, k, v, *(["--causal"] if causal else []), mask=mask)
            expected, expected_lse = softmax_attention(q, k, v, mask, causal=causal)
            self.assertEqual(o.dtype, dtype)
            self.assertEqual(lse.dtype, np.float32)
            self.check(o, expected)
            self.check(lse, expected_lse, 1e-3)

    def test_dense_scale_block_and_device(self):
        q, k, v = self.normal(1, 1, 40, 32), self.normal(1, 1, 50, 32), self.normal(1, 1, 50, 32)
        for device in ("host", "interpreter"):
            o, lse = self.attend(q, k, v, "--dense", "--scale", "0.4", "--device", device)
            expected, expected_lse = softmax_attention(q, k, v, scale=0.4)
            self.check(o, expected)
            self.check(lse, expected_lse, 1e-3)
        mask = np.array([[[[1, 0, 0, 1], [0, 1, 1, 0], [0, 0, 0, 0]]]], bool)
        o, _ = self.attend(q, k, v, "--block", "16", "--causal", mask=mask)
        self.check(o, softmax_attention(q, k, v, mask, 16, causal=True)[0])

    def test_scores(self):
        q, k, v = (self.normal(1, 2, 256, 32) for _ in range(3))
        scores = self.normal(1, 2, 4, 4, dtype=np.float32)
        scores[..., 0] += 100
        best = np.argsort(-scores, axis=-1, kind="stable")[..., :2]
        mask = np.zeros(scores.shape, bool)
        np.put_along_axis(mask, best, True, axis=-1)
        o, _ = self.attend(q, k, v, "--topk", "2", "--causal", scores=scores)
        self.check(o, softmax_attention(q, k, v, mask, causal=True)[0])
        o, _ = self.attend(q, k, v, "--threshold", "-0.5", scores=scores)
        self.check(o, softmax_attention(q, k, v, scores > -0.5)[0])
        o, _ = self.attend(q, k, v, "--topk=2", "--use_dense_for_last_block", scores=scores)
        mask[:, :, 2:] = True
        self.check(o, softmax_attention(q, k, v, mask)[0])
        o, _ = self.attend(q, k, v, "--topk", "4", "--causal")  # scores of its own; 4 is all
        self.check(o, softmax_attention(q, k, v, causal=True)[0])

    def test_xattention(self):
        q, k, v = (self.normal(1, 2, n, 32) for n in (200, 300, 300))
        dense, _ = softmax_attention(q, k, v, causal=True)
        o, lse = self.attend(q, k, v, "--xattention", "1", "--causal")
        self.check(o, dense)
        # Keys of one block are all that matters: little is chosen, and nothing lost.
        q, k = np.abs(q), k * 0.01
        k[:, :, 64:128] = 1.0
        for flags in (["--xattention"], ["--xattention", "0.8", "--stride", "16", "--block=128"]):
            o, _ = self.attend(q.astype(np.float16), k.astype(np.float16), v, *flags, "--causal")
            self.check(o, softmax_attention(q, k, v, causal=True)[0], 0.05)
        self.expect_error("threshold: expected above 0, at most 1, got 2", "attend", "--q", self.path("q.npy"),
                   "--k", self.path("k.npy"), "--v", self.path("v.npy"), "--xattention", "2",
                   "--out", self.path("o.npy"))

    def test_run_xattention(self):
        out = self.kiln("run", "xattention", "--seq", "512", "--heads", "2", "--heads-kv", "1", "--dim",
                        "32", "--stride", "16", "--threshold", "0.8", "--device", "host")
        for line in ("density", "scores", "choice", "attend", "prefill", "dense", "error", "check"):
            self.assertRegex(out, rf"(?m)^{line} ")
        self.assertIn("right", out)
        self.expect_error("--seq-kv: expected 512 or more", "run", "xattention", "--seq", "512", "--seq-kv",
                   "100", "--device", "host")

    def test_fewer_axes(self):
        for shape in [(2, 70, 32), (70, 32)]:
            q, k, v = (self.normal(*shape) for _ in range(3))
            o, lse = self.attend(q, k, v, "--dense", "--causal")
            missing = (1,) * (4 - len(shape))
            whole = [x.reshape(missing + x.shape) for x in (q, k, v)]
            expected, expected_lse = softmax_attention(*whole, causal=True)
            self.check(o, expected.reshape(shape))
            self.check(lse, expected_lse.reshape(shape[:-1]), 1e-3)

    def test_orders_and_ends(self):
        q, k, v = self.normal(1, 2, 66, 32), self.normal(1, 2, 66, 32), self.normal(1, 2, 66, 32)
        plain, _ = self.attend(q, k, v, "--dense")
        for change in (np.asfortranarray, lambda x: x.astype(">f2"),
                       lambda x: np.asfortranarray(x.astype(">f2"))):
            changed, _ = self.attend(change(q), change(k), change(v), "--dense")
            self.assertTrue(np.array_equal(plain, changed))

    def test_bfloat16(self):
        def bits(x):
            return (x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)

        def value(b):
            return (b.astype(np.uint32) << 16).view(np.float32)

        arrays = [bits(self.normal(1, 1, 40, 32)) for _ in range(3)]
        o, _ = self.attend(*(x.view("V2") for x in arrays), "--dense")
        self.check(value(o.view(np.uint16)), softmax_attention(*map(value, arrays))[0], 1.6e-2)

    def test_nothing(self):
        o, lse = self.attend(self.normal(1, 2, 0, 32), self.normal(1, 2, 9, 32),
                             self.normal(1, 2, 9, 32), "--dense")
        self.assertEqual(o.shape, (1, 2, 0, 32))
        o, lse = self.attend(self.normal(1, 2, 9, 32), self.normal(1, 2, 0, 32),
                             self.normal(1, 2, 0, 32), "--dense", "--causal")
        self.assertTrue(np.all(o == 0) and np.all(lse == -np.inf))

    def test_bad_files(self):
        good = self.normal(1, 2, 70, 32)
        paths = {name: self.save(f"{name}.npy", good) for name in "qkv"}
        data = self.read("q.npy")

        def write(name, content):
            with open(self.path(name), "wb") as file:
                file.write(content)
            return self.path(name)

        def attend(q=None, how=("--dense",), **other):
            files = dict(paths, **other)
            if q:
                files["q"] = q
            return ["attend", *sum(([f"--{n}", p] for n, p in files.items()), []), *how,
                    "--out", self.path("never.npy")]

        expect = self.expect_error
        for cut in (0, 5, 9, 60, len(data) - 1):
            expect("cut.npy", *attend(write("cut.npy", data[:cut])))
        expect("truncated: shape [1, 2, 70, 32] of f16 needs 8960 bytes",
               *attend(write("cut.npy", data[:-1])))
        expect("trailing bytes", *attend(write("long.npy", data + b"x")))
        expect("expected a .npy file", *attend(write("text.npy", b"hello world")))
        expect("zip archive", *attend(self.save_zip(good)))
        expect("cannot open", *attend(self.path("absent.npy")))
        expect("cannot read", *attend(self.folder.name))
        expect("expected float16 or float32", *attend(self.save("f8.npy", good.astype(np.float64))))
        expect("expected float16 or float32", *attend(self.save("i4.npy", good.astype(np.int32))))
        expect("'<c8' is not supported", *attend(self.save("c8.npy", good.astype(np.complex64))))
        expect("pickled", *attend(self.save("object.npy", np.array([None, 1], dtype=object))))
        expect("structured", *attend(self.save("s.npy", np.zeros(2, dtype=[("a", "<f2")]))))
        expect("k: expected dtype f32, got f16",
               *attend(self.save("f4.npy", good.astype(np.float32))))
        expect("got shape [2240]", *attend(self.save("flat.npy", good[0, 0].ravel())))
        expect("expected 3 axes as q has", *attend(self.save("three.npy", good[0])))
        expect("got shape [1, 1, 2, 70, 32]", *attend(self.save("five.npy", good[None])))
        expect("got shape []", *attend(self.save("scalar.npy", np.float16(1))))
        expect("head_dim: expected a multiple of 16", *attend(self.save("d.npy", good[..., :20])))
        expect("head_dim: expected a multiple of 16", *attend(self.save("d0.npy", good[..., :0])))
        expect("k: expected shape", *attend(self.save("d16.npy", good[..., :16])))
        expect("v: expected shape [1, 2, 70, 32], got [1, 2, 69, 32]",
               *attend(v=self.save("short.npy", good[:, :, 1:])))
        expect("heads: expected a multiple of the 2 heads of k and v, got 3",
               *attend(self.save("h3.npy", self.normal(1, 3, 70, 32))))
        masks = [("mask: expected at least [1, 2, 2, 2], got [1, 2, 2, 1]", np.ones((1, 2, 2, 1), bool)),
                 ("expected at least [1, 2, 2, 2], got [1, 1, 2, 2]", np.ones((1, 1, 2, 2), bool)),
                 ("mask: ", np.ones((2, 2), bool)), ("expected bool or int8", good),
                 ("expected at least", np.ones((1, 2, 0, 2), bool))]
        for sentence, mask in masks:
            expect(sentence, *attend(how=("--mask", self.save("mask.npy", mask))))
        scores = self.save("scores.npy", self.normal(1, 2, 2, 3))
        expect("scores", *attend(how=("--topk", "1", "--scores", scores)))
        expect("expected shape [1, 2, 2, 2], got [1, 2, 2, 3]",
               *attend(how=("--topk", "1", "--scores", scores)))
        expect("expected a multiple of 16", *attend(how=("--dense", "--block", "20")))
        expect("no device 'moon'", *attend(how=("--dense", "--device", "moon")))
        expect("scale: expected a finite number above 0", *attend(how=("--dense", "--scale", "-1")))
        expect("cannot write", *attend(how=("--dense", "--lse", self.path("no/such/l.npy"))))
        for how in ((), ("--dense", "--topk", "1"), ("--topk", "-1"), ("--topk", "x"),
                    ("--dense", "--nonsense"), ("--dense", "--use-dense-for-last-block"),
                    ("--mask", paths["q"], "--use_dense_for_last_block")):
            self.kiln(*attend(how=how), fails=True)

    def test_files_that_are_not_files(self):
        q = self.save("q.npy", self.normal(1, 1, 70, 32))
        command = [KILN, "attend", "--q", "/dev/stdin", "--k", q, "--v", q, "--dense", "--out"]
        for out in ("/dev/stdout", self.path("o.npy")):
            run = subprocess.run([*command, out], env=self.env, input=self.read("q.npy"),
                                 capture_output=True, check=True)
        self.assertTrue(run.stdout.startswith(self.path("o.npy").encode()))
        self.assertEqual(self.kiln("attend", "--q", q, "--k", q, "--v", q, "--dense", "--out",
                                   "/dev/null"), "/dev/null: f16 [1, 1, 70, 32]\n")

    def test_outputs(self):
        q = self.save("q.npy", self.normal(1, 1, 70, 32))
        attend = ["attend", "--q", q, "--k", q, "--v", q, "--dense", "--out"]
        self.kiln(*attend, self.path("o.npy"))
        whole, before = self.read("o.npy"), sorted(os.listdir(self.folder.name))
        # One that cannot be written is told before the work; nothing else is written then.
        self.expect_error("/no/o.npy: cannot write: No such file", *attend, self.path("no/o.npy"))
        self.expect_error("cannot write: No such file", *attend, self.path("new.npy"), "--lse",
                          self.path("no/l.npy"))
        self.expect_error("Is a directory", *attend, self.folder.name)
        self.expect_error("--lse and --out are to be written to one file", *attend,
                          self.path("new.npy"), "--lse", self.folder.name + "/./new.npy")
        self.assertEqual(sorted(os.listdir(self.folder.name)), before)
        # One that fails half-way leaves what was there.
        half = subprocess.run(["bash", "-c", 'trap "" XFSZ; ulimit -f 2; exec "$@"', "-", KILN,
                               *attend, self.path("o.npy")], env=self.env, capture_output=True,
                              text=True)
        self.assertEqual(half.returncode, 1)
        self.assertIn("o.npy: cannot write: File too large", half.stderr)
        self.assertEqual(self.read("o.npy"), whole)
        self.assertEqual(sorted(os.listdir(self.folder.name)), before)
        # A link stays one, permissions stay, an input may be replaced.
        os.symlink("o.npy", self.path("link.npy"))
        os.chmod(self.path("o.npy"), 0o640)
        self.save("o.npy", np.zeros(3))
        self.kiln(*attend, self.path("link.npy"))
        self.assertTrue(os.path.islink(self.path("link.npy")))
        self.assertEqual(self.read("o.npy"), whole)
        self.assertEqual(os.stat(self.path("o.npy")).st_mode & 0o777, 0o640)
        self.kiln(*attend, q)
        self.assertEqual(self.read("q.npy"), whole)

    def save_zip(self, array):
        np.savez(self.path("z.npz"), array)
        return self.path("z.npz")


class Kernels(KilnTest):
    def test_call(self):
        a, b = self.normal(70, 50), self.normal(50, 33)
        out = self.kiln("call", "matmul", "--in", f"a={self.save('a.npy', a)}", "--in",
                        f"b={self.save('b.npy', b)}", "--set", "block_m=16", "--out",
                        f"c={self.path('c.npy')}")
        self.assertIn("c f32 [70, 33]", out)
        self.assertLess(np.abs(np.load(self.path("c.npy")) - a.astype(np.float64) @ b).max(), 1e-4)
        x = self.normal(40, 300, dtype=np.float32)
        self.kiln("call", "row_softmax", "--in", f"x={self.save('x.npy', x)}", "--out",
                  f"y={self.path('y.npy')}", "--device", "interpreter")
        weights = np.exp(x - x.max(-1, keepdims=True))
        expected = weights / weights.sum(-1, keepdims=True)
        self.assertLess(np.abs(np.load(self.path("y.npy")) - expected).max(), 1e-6)

    def test_call_mistakes(self):
        a = f"a={self.save('a.npy', self.normal(8, 8))}"
        b = f"b={self.save('b.npy', self.normal(9, 8))}"
        expect = self.expect_error
        expect("no kernel 'matmul2'", "call", "matmul2")
        expect("b", "call", "matmul", "--in", a)
        expect("k", "call", "matmul", "--in", a, "--in", b, "--out", f"c={self.path('c.npy')}")
        expect("--in z: the kernel has no tensor of that name", "call", "matmul", "--in", "z=z.npy")
        expect("--out a: it is an input", "call", "matmul", "--in", a, "--out", "a=c.npy")
        expect("--in c: it is an output", "call", "matmul", "--in", a.replace("a=", "c="))
        expect("expected name=value, got 'a'", "call", "matmul", "--in", "a")
        expect("'a' twice", "call", "matmul", "--in", a, "--in", a)
        expect("no option, dim or param", "call", "matmul", "--set", "tile=8")
        expect("block_m: expected an integer", "call", "matmul", "--set", "block_m=many")
        expect("expected dtype f32, got f16", "call", "matmul", "--set", "dtype=f32", "--in", a)

    def attention_files(self):
        q, k, v = self.normal(1, 2, 130, 32), self.normal(1, 1, 150, 32), self.normal(1, 1, 150, 32)
        mask = self.rng.random((1, 2, 3, 3)) < 0.7
        mask[..., 0] = True
        files = []
        for name, array in dict(q=q, k=k, v=v, mask=mask).items():
            files += ["--in", f"{name}={self.save(name + '.npy', array)}"]
        return (q, k, v, mask), files

    def test_tile_is_the_library_call(self):
        arrays, files = self.attention_files()
        options = ["--set", "head_dim=32", "--set", "causal=true", "--set", "lse=true"]
        for device in ("host", "interpreter"):
            self.kiln("call", "block_sparse_attention", *options, *files, "--device", device,
                      "--out", f"o={self.path('o1.npy')}", "--out", f"lse={self.path('l1.npy')}")
            with open(self.path("k.tile"), "w") as file:
                file.write(self.kiln("dump", "block_sparse_attention", *options, "--tile"))
            self.kiln("run", self.path("k.tile"), *files, "--set", f"scale={np.float32(32 ** -0.5)!s}",
                      "--device", device, "--out", f"o={self.path('o2.npy')}", "--out",
                      f"lse={self.path('l2.npy')}")
            for name in "ol":
                self.assertEqual(self.read(f"{name}1.npy"), self.read(f"{name}2.npy"))
        expected, _ = softmax_attention(*arrays, causal=True)
        self.assertLess(np.abs(np.load(self.path("o1.npy")) - expected).max(), 4e-3)

    def test_editing_the_tile_changes_the_result(self):
        arrays, files = self.attention_files()
        options = ["--set", "head_dim=32", "--set", "written_out=true"]
        text = self.kiln("dump", "block_sparse_attention", *options)

        def run(tile, scale):
            with open(self.path("k.tile"), "w") as file:
                file.write(tile)
            self.kiln("run", self.path("k.tile"), *files, "--set", f"scale={scale}", "--out",
                      f"o={self.path('o.npy')}")
            return np.load(self.path("o.npy"))

        for scale in (0.1, 0.75):
            expected, _ = softmax_attention(*arrays, scale=scale)
            self.assertLess(np.abs(run(text, scale) - expected).max(), 4e-3)
        self.expect_error("scale", "run", self.path("k.tile"), *files)
        self.assertIn('= param {name = "scale"}', text)
        fixed = text.replace('= param {name = "scale"}', "= const {value = 0.75}")
        with open(self.path("k.tile"), "w") as file:
            file.write(fixed)
        self.kiln("run", self.path("k.tile"), *files, "--out", f"o={self.path('fixed.npy')}")
        self.assertEqual(self.read("fixed.npy"), self.read("o.npy"))
        # The smallest of -inf and anything is -inf: nothing is subtracted, every tile forgets the ones
        # before it, and what is left is the softmax over the last selected block.
        self.assertEqual(text.count("kind = max"), 1)
        q, k, v, mask = arrays
        last = mask & (np.cumsum(mask[..., ::-1], axis=-1)[..., ::-1] == 1)
        self.assertTrue(np.any(last != mask))
        expected, _ = softmax_attention(q, k, v, last, scale=0.1)
        got = run(text.replace("kind = max", "kind = min"), 0.1)
        self.assertLess(np.abs(got - expected).max(), 4e-3)
        with open(self.path("bad.tile"), "w") as file:
            file.write(text.replace("gemm", "gem", 1))
        self.expect_error("bad.tile:", "run", self.path("bad.tile"), *files)

    def test_dump_and_opt(self):
        traced = self.kiln("dump", "block_sparse_attention", "--set", "head_dim=64")
        self.assertIn("selected", traced)
        self.assertIn("softmax_step", traced)
        self.assertNotIn("softmax_step", self.kiln("dump", "block_sparse_attention", "--after",
                                                   "expand_online_softmax"))
        self.assertIn("define", self.kiln("dump", "row_softmax", "--llvm"))
        self.assertIn("ret", self.kiln("dump", "row_softmax", "--asm"))
        with open(self.path("k.tile"), "w") as file:
            file.write(traced)
        self.assertEqual(self.kiln("dump", self.path("k.tile")), traced)
        self.assertNotIn("selected", self.kiln("opt", self.path("k.tile"), "--passes",
                                               "lower_selected,dead_code"))
        self.assertEqual(self.kiln("opt", self.path("k.tile")), traced)
        self.expect_error("one of", "dump", "row_softmax", "--after", "nonsense")
        self.expect_error("nonsense", "opt", self.path("k.tile"), "--passes", "nonsense")
        self.kiln("dump", "row_softmax", "--llvm", "--asm", fails=True)

    def test_spellings(self):
        a, b = self.save("a.npy", self.normal(8, 8)), self.save("b.npy", self.normal(8, 8))
        once = ["--set", "block_m=16", "--set", "block_n=16", "--in", f"a={a}", "--in", f"b={b}"]
        together = ["--set", "block-m=16", "block-n=16", "--in", f"a={a}", f"b={b}"]
        self.kiln("call", "matmul", *once, "--out", f"c={self.path('c1.npy')}")
        self.kiln("call", *together, "matmul", "--out", f"c={self.path('c2.npy')}")
        self.assertEqual(self.read("c1.npy"), self.read("c2.npy"))
        self.assertEqual(*(self.kiln("dump", f"block{c}sparse{c}attention", "--after",
                                     f"lower{c}selected", "--set", f"head{c}dim{c}v=32") for c in "-_"))
        text = self.kiln("dump", "row-softmax")
        with open(self.path("k.tile"), "w") as file:
            file.write(text)
        self.assertEqual(*(self.kiln("opt", self.path("k.tile"), f"--passes=dead{c}code,unroll")
                           for c in "-_"))


class Run(KilnTest):
    def run_attention(self, *args, **kwargs):
        defaults = [f"{name}={value}" for name, value in
                    {"--heads": 2, "--seq": 300, "--dim": 32}.items() if name not in args]
        return self.kiln("run", "block_sparse_attention", *defaults, *args, **kwargs)

    def test_forms(self):
        for args in (["--topk", "2", "--force-first", "--causal"], ["--density", "0.3"],
                     ["--threshold", "-0.5", "--form", "lists"], [], ["--density", "0.5", "--causal"],
                     ["--topk=1", "--heads_kv", "1", "--seq_kv=500", "--dim_v", "48", "--causal"],
                     ["--topk=1", "--heads-kv", "1", "--seq-kv=500", "--dim-v", "48", "--causal"],
                     ["--dtype", "bf16", "--block", "32", "--density", "0.4", "--set", "lse=true"],
                     ["--dtype", "f32", "--set", "written_out=true"], ["--seq", "0"],
                     ["--seq", "64", "--device", "interpreter", "--form", "mask_i8", "--topk", "1"]):
            out = self.run_attention("--check", *args)
            self.assertIn("o: right", out)
            for word in ("GFLOP/s", "density", "ms, median of"):
                self.assertIn(word, out)
        self.assertIn("dense    ", self.run_attention("--density", "0.3", "--compare-dense"))
        same = [self.run_attention("--density", "0.3", "--seed", "7", "--check") for _ in range(2)]
        checks = [[line for line in out.splitlines() if "check" in line] for out in same]
        self.assertEqual(checks[0], checks[1])

    def test_decode(self):
        small = ["--batch=2", "--heads-kv=2", "--max_cache_seqlen=300", "--device=host"]
        fits = ["--heads=8", *small]
        for args in ([], ["--form=mask", "--set", "lse=true"], ["--form=paged", "--num_pages=9"],
                     ["--form=paged", "--page_block_size=16", "--dtype=bf16", "--sparse_ratio=0.5"],
                     ["--splits=3"], ["--batch-invariant"], ["--sparse_ratio=0", "--dim_v=64"]):
            out = self.kiln("run", "sparse_decode", *fits, *args)
            for word in ("o against float64: right", "GB/s", "sparse  ", "dense   ", "density"):
                self.assertIn(word, out)
            self.assertEqual("o against dense: right" in out,
                             "--sparse_ratio=0" in args or "--num_pages=9" in args)
        self.expect_error("--heads: expected a multiple of the 2 kv heads, got 7", "run",
                          "sparse_decode", *small, "--heads=7")
        for sentence, *args in (("--num-pages: expected at least 4 for 2 sequences, got 3",
                                 "--form=paged", "--num-pages=3"),
                                ("only --form paged has pages", "--num-pages=3"),
                                ("--set head_dim: kiln run makes the inputs of this", "--set", "head_dim=64")):
            self.expect_error(sentence, "run", "sparse_decode", *fits, *args)

    def test_mistakes(self):
        for args in (["--topk", "1", "--density", "0.5"], ["--density", "2"], ["--seq", "-1"],
                     ["--dtype", "f64"], ["--heads_kv", "3"], ["--set", "head_dim=64"], ["--form", "x"],
                     ["--in", "q=q.npy"], ["--dim", "20"], ["--form", "lists"], ["--force-first"],
                     ["--density", "0.5", "--use-dense-for-last-block"]):
            self.run_attention(*args, fails=True)
        self.expect_error("--seq: expected a whole number from 0 on, got '-1'", "run",
                          "block_sparse_attention", "--seq", "-1")
        self.expect_error("kiln call matmul", "run", "matmul")
        self.expect_error("cannot open", "run", self.path("absent.tile"))
        self.expect_error("takes its inputs from --in", "run", self.path("absent.tile"), "--heads=1")


class Information(KilnTest):
    def test_words(self):
        self.assertRegex(self.kiln("--version"), r"kiln \d+\.\d+\.\d+")
        self.assertIn("block_sparse_attention", self.kiln("list"))
        self.assertIn("interpreter", self.kiln("devices"))
        for command in ("", "run", "attend", "call", "bench", "dump", "explain", "opt", "cache", "list"):
            self.assertIn("--help", self.kiln(*command.split(), "--help"))
        self.assertIn("mask         input: bool [batch, heads, rows, cols]", self.kiln("list"))
        for command in ("", "nonsense", "run", "cache", "cache nonsense", "attend --dense",
                        "list --nonsense"):
            run = subprocess.run([KILN, *command.split()], capture_output=True, text=True)
            self.assertEqual((run.returncode, run.stdout), (2, ""), command)
            self.assertIn("--help", run.stderr)

    def test_cache(self):
        x = self.save("x.npy", self.normal(3, 3, dtype=np.float32))
        self.kiln("call", "row_softmax", "--in", f"x={x}", "--out", f"y={self.path('y.npy')}")
        self.assertRegex(self.kiln("cache", "info"), r"entries +1\n")
        self.assertIn("removed 1 ", self.kiln("cache", "clear"))
        self.assertRegex(self.kiln("cache", "info"), r"entries +0\n")


if __name__ == "__main__":
    main()
