"""What the tests of the `kiln` command share; each is started with the path of kiln as its first argument."""

import os
import subprocess
import sys
import tempfile
import unittest

import numpy as np

KILN = sys.argv.pop(1) if len(sys.argv) > 1 else "kiln"
SEED = int(os.environ.get("KILN_TEST_SEED", np.random.SeedSequence().entropy % 2**32))


class KilnTest(unittest.TestCase):
    def setUp(self):
        self.rng = np.random.default_rng(SEED)
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.env = dict(os.environ, KILN_CACHE_DIR=os.path.join(self.folder.name, "cache"))

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def save(self, name, array):
        np.save(self.path(name), array)
        return self.path(name)

    def read(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def normal(self, *shape, dtype=np.float16):
        return self.rng.standard_normal(shape).astype(dtype)

    def kiln(self, *args, fails=False):
        """Runs kiln; returns stdout, or stderr if it is to fail."""
        run = subprocess.run([KILN, *map(str, args)], env=self.env, capture_output=True, text=True)
        self.assertEqual(run.returncode != 0, fails, f"kiln {args}: {run.stdout}{run.stderr}")
        self.assertGreaterEqual(run.returncode, 0, f"kiln {args} died: {run.stderr}")
        return run.stderr if fails else run.stdout

    def expect_error(self, sentence, *args):
        self.assertIn(sentence, self.kiln(*args, fails=True))


def main():
    print(f"KILN_TEST_SEED={SEED}")
    unittest.main(verbosity=2)
