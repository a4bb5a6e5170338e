"""tools/gpu/compare_counters.py with an ncu that only seems to be one: what it makes of ncu's pages."""
import os
import pathlib
import stat
import subprocess
import sys
import tempfile
import textwrap
import unittest

KILN = os.path.abspath(sys.argv[1])
SCRIPT = pathlib.Path(__file__).parents[2] / "tools/gpu/compare_counters.py"

# Answers with the emulator's figures under the names of SASS; FAKE_NCU_SKEW multiplies ex2.
NCU = textwrap.dedent('''\
    #!{python}
    import os, pathlib, sys
    sys.path.insert(0, {folder!r})
    import compare_counters as c
    arguments = sys.argv[1:]
    if "--query-metrics" in arguments:
        print("Device X\\n---\\nsmsp__inst_executed_pipe_tensor_op_hmma   inst   text")
    elif "--export" in arguments:
        path = arguments[arguments.index("--export") + 1]
        assert arguments[-1] == "cuda", arguments
        open(path + ".ncu-rep", "w").close()
        print("==PROF== Profiling")
    elif "source" in arguments:
        path = arguments[arguments.index("--import") + 1]
        table = c.emulated(pathlib.Path(path.replace(".ncu-rep", ".emulator.txt")))
        sass = {{"mma": "HMMA.16816.F32", "ex2": "MUFU.EX2", "bar": "BAR.SYNC.DEFER_BLOCKING",
                "ldmatrix.shared": "LDSM.16.M88.4", "cp.async": "LDGSTS.E.BYPASS.128",
                "ld.global": "@P0 LDG.E.128.CONSTANT", "st.global": "@!P1 STG.E",
                "atom.global": "ATOMG.E.ADD", "ld.shared": "LDS.128", "st.shared": "STS", "wgmma": "HGMMA.64x256x16.F32",
                "stmatrix.shared": "STSM.16.M88.4", "cp.async.bulk.load": "UTMALDG.2D",
                "cp.async.bulk.store": "UTMASTG.2D", "mbarrier.arrive": "@!P0 SYNCS.ARRIVE.TRANS64",
                "mbarrier.try_wait": "SYNCS.PHASECHK.TRANS64.TRYWAIT"}}
        print('"Kernel Name","k"')
        print(",".join('"%s"' % name for name in ("Address", "Source", c.EXECUTED, c.LANES_ON,
                                                  c.SHARED, c.EXCESS, c.GLOBAL)))
        for name, row in table.items():
            skew = float(os.environ.get("FAKE_NCU_SKEW", 1)) if name == "ex2" else 1
            print('"0x0","      %s R0, R1 ","%d","%d","%d","%d","%d"' % (sass.get(name, "NOP"), row[0],
                  skew * row[1], row[2], row[3], row[4]))
        print('"0x1","      @!PT LDS RZ, [RZ] ","7","0","0","0","-"')
    elif "raw" in arguments:
        print('"ID","Kernel Name","smsp__inst_executed_pipe_tensor_op_hmma.sum"')
        print('"","","inst"')
        print('"0","k","12,345"')
    ''')


class Counters(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def compare(self, *, ncu=True, **environment):
        fake = pathlib.Path(self.folder.name) / "bin" / "ncu"
        fake.parent.mkdir(exist_ok=True)
        if ncu:
            fake.write_text(NCU.format(python=sys.executable, folder=str(SCRIPT.parent)))
            fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
        elif fake.exists():
            fake.unlink()
        env = {**os.environ, "PATH": str(fake.parent), "KILN_CACHE_DIR": self.folder.name,
               "PYTHONDONTWRITEBYTECODE": "1", **environment}
        run = subprocess.run([sys.executable, SCRIPT, "--kiln", KILN, self.folder.name], env=env,
                             capture_output=True, text=True)
        self.assertEqual(run.stderr, "")
        return run.returncode, run.stdout

    def test_equal_counters_agree(self):
        status, out = self.compare()
        self.assertEqual(status, 0, out)
        self.assertRegex(out, r"\nattention_d128_mask: 16 counters compared, all within 2 %\n")
        self.assertRegex(out, r"\ntensor-core operations +[1-9]\d* +[1-9]\d* +1.000 +12345  smsp__inst")
        self.assertRegex(out, r"\nwavefronts, st.shared +([1-9]\d*) +\1 +1.000")
        for name, counters in ("late_gemm", 8), ("late_attention", 13):
            self.assertIn(f"\n{name}: {counters} counters compared, all within 2 %\n", out)
        self.assertIn("this ncu lacks: ", out)

    def test_a_difference_is_told(self):
        status, out = self.compare(FAKE_NCU_SKEW="1.03")
        self.assertEqual(status, 1)
        self.assertRegex(out, r"\nex2, lanes .* 0.971 .*DIFFERS\n")
        self.assertIn("row_softmax: 4 counters compared, 1 differ: ex2, lanes\n", out)
        self.assertEqual(self.compare(FAKE_NCU_SKEW="1.015")[0], 0)

    @unittest.skipIf(any(pathlib.Path("/usr/local").glob("cuda*/bin/ncu")), "ncu is here")
    def test_without_ncu(self):
        status, out = self.compare(ncu=False)
        self.assertEqual(status, 77)
        self.assertIn("no ncu", out)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
