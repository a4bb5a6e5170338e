#!/usr/bin/env python3
"""The `kiln` command and GPUs, where there is none.   cli_gpu_test.py PATH_OF_KILN [unittest options]"""

import os
import subprocess

import numpy as np

from cli_support import KILN, KilnTest, main


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
        options = ["--set", "block_m=128", "block_n=128"]
        text = self.kiln("dump", "block_sparse_attention", *options)
        gpu = self.kiln("dump", "block_sparse_attention", *options, "--tile", "--arch", "sm_90")
        self.assertIn("shared f16[64, 128]", text)
        self.assertNotIn("shared f16[128, 128]", text)
        self.assertIn("shared f16[128, 128]", gpu)
        self.assertIn("barrier", self.kiln("dump", "matmul", "--after", "insert_barriers", "--arch",
                                           "sm_80"))
        self.expect_error("--asm: of a CPU", "dump", "matmul", "--asm", "--arch", "sm_80")

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
        text = self.kiln("dump", "matmul", "--layouts", "--arch", "sm_80")
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
        text = self.kiln("explain", "block_sparse_attention", "--set", "dim=64", "--arch", "sm_80")
        for words in ("kernel block_sparse_attention for sm_80", "mma.sync m16n8k16: f16",
                      "cp.async: rows of 128 bytes", "shared memory  24 KiB of the 163 KiB",
                      "occupancy ", "registers ", "FLOP a byte", "roofline ", "wait for copies"):
            self.assertIn(words, text)
        self.assertRegex(text, r"gemm shared f16\[64, 64\].* \S*kernel.cpp:\d+\n")
        self.assertIn("fma: f32 keeps its precision",
                      self.kiln("explain", "matmul", "--set", "dtype=f32"))
        with open(self.path("k.tile"), "w") as file:
            file.write(self.kiln("dump", "row_softmax"))
        self.assertIn("kernel row_softmax for sm_90", self.kiln("explain", self.path("k.tile")))

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
