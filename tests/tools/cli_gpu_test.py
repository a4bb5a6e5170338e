#!/usr/bin/env python3
"""The `kiln` command and GPUs, where there is none.   cli_gpu_test.py PATH_OF_KILN [unittest options]"""

import json
import os
import re
import shutil
import subprocess

import numpy as np

from cli_support import KILN, KilnTest, main


# y = factor * x, each block's 64 elements reversed.
REVERSE = """.version 7.0
.target sm_80
.address_size 64
.file 1 "reverse.cu"
.visible .entry reverse(.param .u64 reverse_param_0, .param .u64 reverse_param_1,
                        .param .f32 reverse_param_2)
{
  .reg .b32 %r<6>;
  .reg .f32 %f<5>;
  .reg .b64 %rd<8>;
  .shared .align 4 .b8 tile[256];
  ld.param.u64 %rd1, [reverse_param_0];
  ld.param.u64 %rd2, [reverse_param_1];
  ld.param.f32 %f4, [reverse_param_2];
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, %ctaid.x;
  mad.lo.s32 %r3, %r2, 64, %r1;
  mul.wide.s32 %rd3, %r3, 4;
  add.s64 %rd4, %rd1, %rd3;
  add.s64 %rd5, %rd2, %rd3;
  mov.u32 %r5, tile;
  .loc 1 12 0
  ld.global.f32 %f1, [%rd4];
  shl.b32 %r4, %r1, 2;
  add.s32 %r4, %r5, %r4;
  st.shared.f32 [%r4], %f1;
  bar.sync 0;
  .loc 1 13 0
  shl.b32 %r4, %r1, 2;
  sub.s32 %r4, %r5, %r4;
  add.s32 %r4, %r4, 252;
  ld.shared.f32 %f2, [%r4];
  mul.f32 %f3, %f2, %f4;
  .loc 1 14 0
  st.global.f32 [%rd5], %f3;
  ret;
}
"""

# A block reads a shared tile along its columns.
COLUMN = """kernel @column {
  %n = dim {name = "n"} : i32
  %one = const {value = 1} : i32
  %rows = add %n, %one : i32
  %x = tensor {name = "x"} : tensor f32[32, 32]
  %y = tensor {name = "y", role = output} : tensor f32[32, 32]
  launch %one do |%b: i32| {
    %s = alloc : shared f32[32, 32]
    %zero = const {value = 0} : i32
    %in = slice %x, %zero, %zero : view global f32[32, 32]
    copy %in, %s
    parallel {extents = [32, 32]} do |%i: i32, %j: i32| {
      %a = load %s, %j, %i : f32
      store %a, %y, %i, %j
    }
  }
}
"""


class Gpu(KilnTest):
    """What is seen of the GPU tier without a GPU, and of a driver that only seems to have one."""

    def setUp(self):
        super().setUp()
        self.env["KILN_LIBCUDA"] = self.path("no-libcuda.so")

    def test_ptx(self):
        for arch in ("sm_80", "sm_90"):
            ptx = self.kiln("dump", "row_softmax", "--ptx", "--arch", arch)
            self.assertIn(f".target {arch}", ptx)
            self.assertIn(".entry row_softmax(", ptx)
        self.assertIn("nvptx64", self.kiln("dump", "row_softmax", "--llvm", "--arch", "sm_80"))
        self.assertIn("mma.sync", self.kiln("dump", "matmul", "--ptx", "--arch=sm_80"))
        # What is left open is chosen for the target: a GPU's block has more rows.
        options = ["--set", "block=128"]
        text = self.kiln("dump", "block_sparse_attention", *options)
        gpu = self.kiln("dump", "block_sparse_attention", *options, "--tile", "--arch", "sm_90")
        self.assertIn("shared f16[64, 128]", text)
        self.assertNotIn("shared f16[128, 128]", text)
        self.assertIn("shared f16[128, 128]", gpu)
        self.assertIn("barrier", self.kiln("dump", "matmul", "--after", "insert_barriers", "--arch",
                                           "sm_80"))
        self.expect_error("--asm: of a CPU", "dump", "matmul", "--asm", "--arch", "sm_80")

    def test_prebuild(self):
        self.env.pop("KILN_PTXAS", None)
        lines = self.kiln("prebuild", "--arch", "sm_80,host", "tile_copy", "--out", self.path("image")).splitlines()
        self.assertEqual(len(lines), 2)
        self.assertRegex(lines[0], r"^tile_copy +PTX for sm_80 +\d+\.\d ms +\d+\.\d KiB$")
        self.assertRegex(lines[1], r"^tile_copy +code for host +\d+\.\d ms +\d+\.\d KiB$")
        again = self.kiln("prebuild", "--arch", "sm_80", "tile-copy", "--out", self.path("image"))
        self.assertRegex(again, r"^tile_copy +PTX for sm_80 +already there ")
        self.assertEqual(os.stat(self.path("image")).st_mode & 0o777, 0o755)
        text = self.kiln("prebuild", "--arch", "sm_80", "matmul", "--set", "dtype=f32", "block_m=32")
        self.assertRegex(text, r"^matmul dtype=f32 block_m=32 +PTX for sm_80 ")

        # Another process finds what is there, and makes nothing of its own.
        self.env["KILN_CACHE_DIR"] = self.path("own")
        self.env["KILN_CACHE_PATH"] = self.path("image")
        self.save("x.npy", self.normal(5, 70, dtype=np.float32))
        for device in ("emulator", "host"):
            self.kiln("call", "tile_copy", "--in", f"x={self.path('x.npy')}", "--out", f"y={self.path('y.npy')}",
                      "--device", device)
        self.assertFalse(os.path.exists(self.path("own")))
        info = self.kiln("cache", "info")
        self.assertRegex(info, r"directory  \S*own\nin use     yes\nentries    0\n")
        self.assertRegex(info, r"directory  \S*image\nin use     yes, read-only: .*\nentries    2\n")

        with open(self.path("k.tile"), "w") as file:
            file.write(self.kiln("dump", "tile_copy", "--arch", "sm_80"))
        self.assertIn("already there", self.kiln("prebuild", "--arch", "sm_80", self.path("k.tile")))

    def test_prebuild_cubins(self):
        if not (shutil.which("ptxas") or os.path.exists("/usr/local/cuda/bin/ptxas")):
            self.skipTest("no ptxas")
        self.env["KILN_PTXAS"] = "auto"
        for time in (r"\d+\.\d ms", "already there"):
            lines = self.kiln("prebuild", "--arch", "sm_90", "tile_copy").splitlines()
            self.assertEqual(len(lines), 2)
            self.assertRegex(lines[1], rf"^tile_copy +cubin for sm_90 by ptxas V\S+ +{time} ")

    def test_prebuild_mistakes(self):
        for sentence, words in (("expected kernels or --all, got neither", []),
                                ("expected kernels or --all, got both", ["--all", "matmul"]),
                                ("no kernel 'nothing'", ["nothing"]),
                                ("expected one kernel to set it of, got 2", ["matmul", "tile_copy", "--set", "dtype=f32"]),
                                ("matmul: no option 'colour'", ["matmul", "--set", "colour=red"])):
            self.expect_error(sentence, "prebuild", "--arch", "sm_80", *words)
        self.expect_error("sm_70 is too old", "prebuild", "--arch", "sm_80,sm_70", "matmul")
        self.expect_error("--arch is required", "prebuild", "matmul")
        self.env["KILN_CACHE"] = "off"
        self.expect_error("cannot be stored: there is no disk cache", "prebuild", "--arch", "sm_80", "tile_copy")

    def test_architectures(self):
        for command in (["dump", "matmul", "--ptx"], ["explain", "matmul"],
                        ["run", "block_sparse_attention", "--device", "emulator"]):
            for arch, sentence in (("sm_70", "GPU architecture sm_70 is too old"),
                                   ("hopper", "no GPU architecture is named 'hopper'")):
                message = self.kiln(*command, "--arch", arch, fails=True)
                self.assertIn(sentence, message)
                self.assertIn("one of sm_80, sm_86", message)
        for device in (["--device", "host"], ["--device", "interpreter"], []):
            self.expect_error("an architecture (sm_80) is for GPUs", "run", "block_sparse_attention",
                              "--arch", "sm_80", *device)
        self.expect_error("device emulator:sm_80: the architecture is to be sm_90 as well", "bench",
                          "--device", "emulator:sm_80", "--arch", "sm_90")

    def test_layouts(self):
        text = self.kiln("dump", "matmul", "--layouts", "--arch", "sm_80", "--set", "block_m=64", "--set", "block_n=64",
                         "--set", "block_k=64", "--set", "stages=0")
        self.assertRegex(text, r"\nshared f16\[64, 64\]: offset \d+\n  offset = axis\d")
        self.assertRegex(text, r"\nfragment f32\[64, 64\]: reg 32 lane 32 warp 4\n  axis 0 = ")
        self.assertRegex(text, r"\n  at \S*kernels/matmul/kernel.cpp:\d+\n")

    def test_sass(self):
        run = subprocess.run([KILN, "dump", "row_softmax", "--sass", "--arch", "sm_80"], env=self.env,
                             capture_output=True, text=True)
        if run.returncode:
            self.assertRegex(run.stderr, "no ptxas|no nvdisasm")
            self.skipTest(run.stderr.strip())
        self.assertIn("EXIT", run.stdout)

    def test_explain(self):
        text = self.kiln("explain", "block_sparse_attention", "--set", "head_dim=64", "--arch", "sm_80")
        for words in ("kernel block_sparse_attention for sm_80", "mma.sync m16n8k16: f16",
                      "cp.async: rows of 128 bytes", "shared memory  41 KiB of the 163 KiB",
                      "occupancy ", "registers ", "FLOP a byte", "roofline ", "wait for copies"):
            self.assertIn(words, text)
        self.assertRegex(text, r"gemm shared f16\[64, 64\].* \S*kernel.cpp:\d+\n")
        self.assertIn("4 warps, 128 threads: as the gemm 64x64x64 divides (full_row)", text)
        self.assertIn("fma: f32 keeps its precision",
                      self.kiln("explain", "matmul", "--set", "dtype=f32"))
        with open(self.path("k.tile"), "w") as file:
            file.write(self.kiln("dump", "row_softmax"))
        self.assertIn("kernel row_softmax for sm_90", self.kiln("explain", self.path("k.tile")))

    def test_explain_pipeline(self):
        matmul = ["explain", "matmul", "--set", "block_m=64", "--set", "block_n=64", "--set", "block_k=64"]
        text = self.kiln(*matmul, "--set", "stages=3", "--arch", "sm_80,sm_86")
        # Each architecture asked for, in turn; what is under way in each part of a round.
        self.assertLess(text.index("for sm_80"), text.index("for sm_86"))
        self.assertRegex(text, r"\n  pipeline +\S*kernel.cpp:\d+: fetches 2 rounds ahead, into 3 slots")
        self.assertIn("a: 3 slots of f16[64, 64], 8192 bytes each", text)
        rows = [r"before +fetch a\(0\), a\(1\), b\(0\), b\(1\) +32 KiB",
                r"round i +wait for a\(i\), b\(i\) +16 KiB", r" +fetch a\(i\+2\), b\(i\+2\) +32 KiB",
                r" +gemm a\(i\), b\(i\) -> f32\[64, 64\] +32 KiB", r" +free a\(i\), b\(i\) +32 KiB"]
        self.assertRegex(text, "\n +" + "\n +".join(row.strip() for row in rows))
        self.assertRegex(text, r"occupancy +[1-9] blocks a multiprocessor, .*; limited by (registers|shared memory)\n")
        # Not ahead: begun as early as possible in the round.
        text = self.kiln(*matmul, "--set", "stages=3", "--arch", "sm_80", "--without", "make-async")
        self.assertRegex(text, r"round i +fetch a\(i\), b\(i\) +16 KiB\n +wait for a\(i\), b\(i\) +0 B\n +gemm")
        text = self.kiln("explain", "block_sparse_attention", "--set", "block=128",
                         "--set", "block_m=64", "--set", "block_n=128", "--set", "stages=2", "--arch", "sm_120")
        self.assertRegex(text, r"pipeline .*: not fetched ahead: 2 slots a tile would need \d+ bytes of shared "
                               r"memory, sm_120 has 101376;")

        self.assertRegex(self.kiln("explain", "row_softmax", "--arch", "sm_90"),
                         r"round i +copy x -> f32\[16, 128\], .*\n +elements: 2 loops, 2 reductions, \d+ exponentials")

    def test_explain_conflicts(self):
        text = self.kiln("explain", "matmul", "--set", "block_m=64", "--set", "block_n=64", "--arch", "sm_80",
                         "--conflicts")
        self.assertRegex(text, r"\n  in the emulator, with k 512, m 512, n 512\n")
        self.assertRegex(text, r"\n( +[0-9]+){4} +16  \S*matmul/kernel.cpp:\d+\n")
        self.assertRegex(text, r"\n    \d+ bank conflicts? in all\n")
        # Eight lanes read one bank's column: what the counters are for.
        with open(self.path("k.tile"), "w") as file:
            file.write(COLUMN)
        text = self.kiln("explain", self.path("k.tile"), "--arch", "sm_80", "--conflicts")
        self.assertRegex(text, r"\n    [1-9]\d* bank conflicts in all\n")
        with open(self.path("k.tile"), "w") as file:
            file.write(COLUMN.replace('tensor {name = "x"} : tensor f32[32, 32]',
                                      'tensor %rows {name = "x"} : tensor f32[?, 32]'))
        self.expect_error("--conflicts: x has an extent that is computed, ", "explain", self.path("k.tile"),
                          "--arch", "sm_80", "--conflicts")

    def test_emulator(self):
        run = ["run", "block_sparse_attention", "--heads", "2", "--seq", "70", "--dim", "32", "--block",
               "32", "--density", "0.5", "--causal", "--check"]
        for device in (["emulator"], ["emulator", "--arch", "sm_90"]):
            self.assertIn("o: right", self.kiln(*run, "--device", *device))
        a, b = self.normal(33, 40), self.normal(40, 17)
        self.kiln("call", "matmul", "--in", f"a={self.save('a.npy', a)}", "--in",
                  f"b={self.save('b.npy', b)}", "--out", f"c={self.path('c.npy')}", "--device",
                  "emulator:sm_90")
        self.assertLess(np.abs(np.load(self.path("c.npy")) - a.astype(np.float64) @ b).max(), 1e-4)

    def test_emulator_options(self):
        x = self.normal(20, 40, dtype=np.float32)
        call = ["call", "row_softmax", "--in", f"x={self.save('x.npy', x)}", "--out",
                f"y={self.path('y.npy')}"]
        out = self.kiln(*call, "--device", "emulator", "--profile")
        y = np.load(self.path("y.npy"))
        self.assertRegex(out, r"\n +[1-9][0-9]*  instructions of lanes\n")
        self.assertRegex(out, r"\n( +[0-9]+){5}  \S*row_softmax/kernel.cpp:\d+\n")
        self.kiln(*call, "--device", "emulator", "--block-only", "1")
        one = np.load(self.path("y.npy"))
        ran = one.any(axis=1)
        self.assertTrue(ran.any() and not ran.all())
        np.testing.assert_array_equal(one[ran], y[ran])
        self.expect_error("the only block to run is outside of the grid", *call, "--device",
                          "emulator", "--block-only", "1000")
        self.expect_error("only the emulator can do that", *call, "--device", "host", "--profile")

    def test_emulator_options_of_other_commands(self):
        run = ["run", "block_sparse_attention", "--heads", "2", "--seq", "256", "--dim", "32"]

        def figures(out):
            return [int(n) for n in re.findall(r"(?m)^ +(\d+)  instructions of warps$", out)]

        out = self.kiln(*run, "--device", "emulator", "--profile", "--check", "--compare-dense")
        self.assertIn("o: right", out)
        self.assertRegex(out, r"\n( +[1-9]\d*){2}( +0){3}  mma\n")
        all_blocks = figures(out)
        self.assertEqual(len(all_blocks), 2)
        out = self.kiln(*run, "--device", "emulator", "--profile", "--block-only", "1,1,0")
        self.assertEqual(figures(out)[0] * 8, all_blocks[0])  # 4 x 2 blocks, all alike
        q = self.save("q.npy", self.normal(64, 32, dtype=np.float16))
        attend = ["attend", "--q", q, "--k", q, "--v", q, "--dense", "--block", "32", "--out",
                  self.path("o.npy")]
        self.kiln(*attend, "--device", "emulator")
        o = np.load(self.path("o.npy"))
        out = self.kiln(*attend, "--device", "emulator", "--block-only", "1", "--profile")
        one = np.load(self.path("o.npy"))
        np.testing.assert_array_equal(one[32:], o[32:])
        self.assertFalse(one[:32].any())
        self.assertEqual(len(figures(out)), 1)
        bench = ["bench", "--quick", "--only", "tile_copy f16"]
        out = self.kiln(*bench, "--device", "emulator", "--profile", "--block-only", "1")
        self.assertEqual(len(figures(out)), 1)
        out = self.kiln(*bench, "--device", "emulator", "--block-only", "0,0,99")
        self.assertIn("the only block to run is outside of the grid", out)
        for command in (run, attend, bench):
            for device in ("host", "interpreter"):
                self.expect_error("only the emulator can do that", *command, "--device", device,
                                  "--block-only", "0")
            self.expect_error("--block-only: expected one to three whole numbers", *command,
                              "--device", "emulator", "--block-only", "0,x")
        for command in (run, attend):
            self.expect_error("the only block to run is outside of the grid", *command, "--device",
                              "emulator", "--block-only", "0,0,99")
        self.expect_error("with --block-only most of the result is missing", *run, "--device",
                          "emulator", "--block-only", "0", "--check")

    def emulate(self, *args):
        """Exit status, stdout and stderr of kiln emulate."""
        run = subprocess.run([KILN, "emulate", *map(str, args)], env=self.env, capture_output=True,
                             text=True)
        self.assertGreaterEqual(run.returncode, 0, run.stderr)
        return run.returncode, run.stdout, run.stderr

    def save_text(self, name, text):
        with open(self.path(name), "w") as file:
            file.write(text)
        return self.path(name)

    def test_emulate(self):
        ptx = self.save_text("reverse.ptx", REVERSE)
        x = self.normal(3, 64, dtype=np.float32)
        run = ["--grid", "3", "--block", "64", "--arg", f"in:{self.save('x.npy', x)}", "--arg",
               f"out:{self.path('y.npy')}:f32[3,64]", "--arg", "f32:2.5"]
        for mode in ("issue", "latest"):
            status, out, err = self.emulate(ptx, *run, "--entry", "reverse", "--async", mode)
            self.assertEqual((status, err), (0, ""))
            self.assertEqual(out, f"{self.path('y.npy')}: f32 [3, 64]\n")
            np.testing.assert_array_equal(np.load(self.path("y.npy")), 2.5 * x[:, ::-1])
        status, out, _ = self.emulate(ptx, *run, "--profile")
        self.assertEqual(status, 0)
        for row in (r"\n +6  arrivals of warps at barriers\n", r"\n +0  wavefronts that are bank",
                    r"\n +6 +192 +0 +0 +0  bar\n", r"\n +6 +192 +6 +0 +0  ld.shared\n",
                    r"\n +30 +960 +6 +0 +24  reverse.cu:12\n"):
            self.assertRegex(out, row)
        self.emulate(ptx, *run, "--block-only", "1")
        only = np.load(self.path("y.npy"))
        np.testing.assert_array_equal(only[1], 2.5 * x[1, ::-1])
        self.assertFalse(only[[0, 2]].any())

    def test_timeline(self):
        ptx = self.save_text("reverse.ptx", REVERSE)
        x = self.save("x.npy", self.normal(3, 64, dtype=np.float32))
        trace = self.path("t.json")
        run = [ptx, "--grid", "3", "--block", "64", "--arg", f"in:{x}", "--arg", "zeros:f32[3,64]",
               "--arg", "f32:2.5", "--timeline"]
        for block, more in ("0 0 0", []), ("2 0 0", ["--block-only", "2"]):
            status, out, err = self.emulate(*run, trace, *more)
            self.assertEqual((status, err), (0, ""))
            self.assertRegex(out, rf"t.json: [1-9]\d* clocks of block {block}, the tensor cores busy 0 %")
            with open(trace) as file:
                events = json.load(file)["traceEvents"]
            self.assertIn("wait: bar.sync", [event["name"] for event in events])
            self.assertEqual({event["args"]["name"] for event in events if event["name"] ==
                              "thread_name"}, {"warp 0", "warp 1"})
        status, _, err = self.emulate(*run, self.path("none/t.json"))
        self.assertEqual(status, 1)
        self.assertIn("none", err)
        late = os.path.join(os.path.dirname(__file__), "../files/late/copy_ring.tile")
        x = self.save("x.npy", self.normal(100, 64))
        self.kiln("run", late, "--in", f"x={x}", "--device", "emulator:sm_90a", "--timeline", trace)
        with open(trace) as file:
            events = json.load(file)["traceEvents"]
        self.assertIn("TMA load", [event["name"] for event in events])
        self.assertIn("stage 1", " ".join(str(event["args"].get("name")) for event in events))
        self.expect_error("only the emulator can do that", "run", late, "--in", f"x={x}", "--device",
                          "host", "--timeline", trace)

    def test_emulate_findings(self):
        text = REVERSE.replace("bar.sync 0;", "")
        race = self.save_text("race.ptx", text)
        x = self.save("x.npy", self.normal(64, dtype=np.float32))
        run = ["--block", "64", "--arg", f"in:{x}", "--arg", "zeros:f32[64]", "--arg", "f32:1"]
        status, out, err = self.emulate(race, *run)
        self.assertEqual(status, 1)
        line = 1 + text.splitlines().index("  ld.shared.f32 %f2, [%r4];")
        self.assertRegex(out, rf"(?m)^reverse.cu:13: data race: .*\n.*PTX line {line}: ld.shared.f32\n"
                              r"  try: ")
        self.assertRegex(err, "race.ptx: the emulator found [0-9]+ mistakes")
        right = self.save_text("right.ptx", REVERSE)
        status, out, _ = self.emulate(right, *run[:4], "--arg", "zeros:f32[63]", "--arg", "f32:1")
        self.assertEqual(status, 1)
        self.assertRegex(out, r"^reverse.cu:14: out of bounds: .*zeros:f32\[63\]")

    def test_emulate_errors(self):
        ptx = self.save_text("reverse.ptx", REVERSE)
        for sentence, *args in (
                ("--block is required",),
                ("reverse takes 3 arguments, got 1", "--block", "64", "--arg", "u32:1"),
                ("it has 4 bytes, reverse_param_0 has 8", "--block", "64", "--arg", "u32:1", "--arg",
                 "u32:1", "--arg", "u32:1"),
                ("there is no entry 'r'", "--block", "64", "--entry", "r"),
                ("-1 is not a value of u32", "--block", "64", "--arg", "u32:-1"),
                ("'x' is no type", "--block", "64", "--arg", "x:1"),
                ("got 'f32[4'", "--block", "64", "--arg", "zeros:f32[4"),
                ("--block: expected one to three whole numbers", "--block", "64,", "--arg", "u64:1",
                 "--arg", "u64:1", "--arg", "f32:1")):
            self.expect_error(sentence, "emulate", ptx, *args)
        wrong = self.save_text("wrong.ptx", REVERSE.replace("bar.sync 0;", "bar.none 0;"))
        self.expect_error("wrong.ptx: PTX line ", "emulate", wrong, "--block", "64")

    def test_bench(self):
        text = self.kiln("bench", "--quick", "--device", "host", "--only", "tile_copy", "--rounds", "1")
        self.assertRegex(text, r"tile_copy f32 1024x8192 +[0-9.]+ +[0-9.]+ +[0-9.]+\n")
        self.assertNotIn("matmul", text)

    def test_no_driver(self):
        run = subprocess.run([KILN, "run", "block_sparse_attention", "--device", "cuda"], env=self.env,
                             capture_output=True, text=True)
        self.assertEqual((run.returncode, run.stdout), (1, ""))
        self.assertIn("no CUDA driver: ", run.stderr)
        self.assertIn("try: install an NVIDIA driver", run.stderr)
        devices = subprocess.run([KILN, "devices"], env=self.env, capture_output=True, text=True)
        self.assertEqual(devices.returncode, 0)
        self.assertIn("note: no GPU: no CUDA driver", devices.stderr)
        self.assertRegex(devices.stdout, r"^host .*\ninterpreter .*\nemulator .*\n$")

    def test_default_device(self):
        x = self.save("x.npy", self.normal(0, 4, dtype=np.float32))  # nothing to launch
        call = [KILN, "call", "row_softmax", "--in", f"x={x}", "--out", f"y={self.path('y.npy')}"]
        def note(*more):
            run = subprocess.run([*call, *more], env=self.env, capture_output=True, text=True)
            self.assertEqual(run.returncode, 0, run.stderr)
            return run.stderr
        self.assertRegex(note(), r"^note: row_softmax ran on host in ")
        if "KILN_FAKE_CUDA" not in os.environ:
            self.skipTest("KILN_FAKE_CUDA names no driver without a GPU")
        self.env["KILN_LIBCUDA"] = os.environ["KILN_FAKE_CUDA"]
        self.assertRegex(note(), r"^note: on cuda:0, Fake H200; --device host is the CPU\n"
                                 r"note: row_softmax ran on cuda:0 in ")
        self.assertRegex(note("--arch", "sm_80"), "ran on cuda:0 in ")
        self.assertRegex(note("--device", "host"), r"^note: row_softmax ran on host in ")
        self.expect_error("it cannot run code for sm_100", *call[1:], "--arch", "sm_100")
        self.assertIn("kernel row_softmax for sm_90", self.kiln("explain", "row_softmax"))
        self.assertRegex(self.kiln("devices"), r"cuda:3 +Fake A100, sm_80, .*\n(.*\n)*gpu 2: .*too old")


if __name__ == "__main__":
    main()
