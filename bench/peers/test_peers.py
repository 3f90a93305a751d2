"""python3 -m unittest discover bench/peers"""

import contextlib
import io
import signal
import sys
import tempfile
import unittest
from pathlib import Path

import peers


class Ratio(unittest.TestCase):
    steady = [20, 20.5, 21, 21.5, 22]
    wild = [10, 20, 25, 30, 40]  # the middle half is 20 to 30

    def test_needs_steady_sides(self):
        self.assertEqual(peers.ratio([10.5] * 5, self.steady), "2.00x")
        self.assertEqual(peers.ratio(self.steady, self.wild), "no ratio: theirs spreads 40%")
        self.assertEqual(peers.ratio(self.wild, self.steady), "no ratio: ours spreads 40%")

    def test_limit_is_a_fifth(self):
        at = [8, 9, 10, 11, 12]  # 2 / 10
        self.assertEqual(peers.ratio(at, at), "1.00x")
        self.assertIn("spreads 21%", peers.ratio(at, [8, 9, 10, 11.1, 12]))

    def test_needs_five_rounds_of_both(self):
        self.assertEqual(peers.ratio([10], [20]), "no ratio: ours has 1 of 5 rounds")
        self.assertEqual(peers.ratio(self.steady, self.steady[:4]), "no ratio: theirs has 4 of 5 rounds")
        self.assertEqual(peers.ratio(self.steady, self.steady), "1.00x")


class Spread(unittest.TestCase):
    def test_is_the_middle_half(self):
        self.assertEqual(peers.spread([5, 9, 10, 12, 900]), 0.3)
        self.assertAlmostEqual(peers.spread([9, 10, 10, 11, 10.5, 9.5]), 0.075)

    def test_does_not_grow_with_the_rounds(self):
        values = [9, 9.5, 10, 10.5, 11]
        self.assertAlmostEqual(peers.spread(values * 20), peers.spread(values))

    def test_of_few_is_unknown(self):
        for n in range(5):
            self.assertIsNone(peers.spread([10] * n))
        self.assertEqual(peers.percent(None), "n/a")


class Table(unittest.TestCase):
    def test_table(self):
        ours = {"decode": [20] * 5, "prefill": [1000], **{m: [10 * m] * 5 for m in peers.SIZES}}
        text = peers.table({"quickdraft": ours, "other": {"decode": [40] * 5, 4: [100] * 5, 2: [70] * 4}}, 500)
        self.assertRegex(text, r"decode, tokens/s +quickdraft +50.0 +0%\n +other +25.0 +0% +2.00x")
        self.assertRegex(text, r"pass over 4, ms +quickdraft +40.0 +0%\n +other +100.0 +0% +2.50x")
        self.assertRegex(text, r"pass over 2, ms +quickdraft +20.0 +0%\n +other +70.0 +n/a +no ratio: theirs has 4 of 5 rounds")
        self.assertRegex(text, r"prefill of 500, tokens/s +quickdraft +500.0 +n/a")
        self.assertEqual(text.count("cannot do it"), 4)


class Run:
    """An engine whose rounds are numbered."""

    def __init__(self, name, log, fails_at=None):
        self.name, self.log, self.fails_at, self.n, self.closed = name, log, fails_at, 0, False

    def round(self, prompt):
        self.n += 1
        self.log.append(self.name)
        if self.n == self.fails_at:
            raise RuntimeError("is out of memory")
        return {"decode": self.n, "prompt": prompt}

    def close(self):
        self.closed = True


class Measure(unittest.TestCase):
    def setUp(self):
        self.addCleanup(setattr, peers, "PAUSE", peers.PAUSE)
        peers.PAUSE = 0

    def test_engines_take_turns_and_the_first_round_warms_up(self):
        log = []
        with contextlib.redirect_stderr(io.StringIO()):
            results = peers.measure({"a": Run("a", log), "b": Run("b", log)}, 5, 99)
        self.assertEqual(log, ["a", "b"] * 6)
        self.assertEqual(results, {name: {"decode": [2, 3, 4, 5, 6], "prompt": [99] * 5} for name in "ab"})

    def test_one_that_fails_is_left_out(self):
        log = []
        broken = Run("b", log, fails_at=3)
        out = io.StringIO()
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(out):
            results = peers.measure({"a": Run("a", log), "b": broken}, 5, 99)
        self.assertEqual(list(results), ["a"])
        self.assertTrue(broken.closed)
        self.assertIn("b: left out, is out of memory", out.getvalue())


class Arguments(unittest.TestCase):
    def refused(self, *argv):
        err = io.StringIO()
        with contextlib.redirect_stderr(err), self.assertRaises(SystemExit):
            peers.arguments(list(argv))
        return err.getvalue()

    def test_refusals(self):
        self.assertIn("--rounds 1: want 5 or more", self.refused("--rounds", "1", "q", "m"))
        self.assertIn("--rounds 4: want 5 or more", self.refused("--rounds", "4", "q", "m"))
        self.assertIn("'x' is none of llama.cpp", self.refused("--engines", "x", "q", "m"))
        self.assertIn("want QUICKDRAFT and MODEL.gguf", self.refused())
        self.assertIn("--prompt of 1 to 1900", self.refused("--prompt", "0", "q", "m"))
        self.assertIn("is inside the checkout", self.refused("--home", str(peers.HERE / "x"), "q", "m"))
        self.assertEqual(peers.arguments(["--rounds", "5", sys.executable, __file__]).rounds, 5)

    def test_paths(self):
        here = str(peers.HERE)
        with tempfile.TemporaryDirectory() as folder:
            good = ["--home", folder + "/a/b", "--json", folder + "/c.json", sys.executable, __file__]
            self.assertEqual(peers.arguments(good).json, folder + "/c.json")
            self.assertIn("/none: is not a command", self.refused(*good[:4], folder + "/none", __file__))
            self.assertIn("test_peers.py: is not a command", self.refused(*good[:4], __file__, __file__))
            self.assertIn("/m.gguf: is not a file, want a GGUF", self.refused(*good[:5], folder + "/m.gguf"))
            self.assertIn(f"--json {here}: is not", self.refused("--home", folder, "--json", here, *good[4:]))
            self.assertIn("/none/c.json: is not", self.refused("--home", folder, "--json", folder + "/none/c.json", *good[4:]))
            for more in ([], ["--install-only"]):
                self.assertIn("is not a folder to write to", self.refused(*more, "--home", sys.executable + "/x", *good[4:]))
            self.assertTrue(peers.arguments(["--install-only", "--home", folder]).install_only)

    def test_command_repeats_the_run(self):
        line = peers.command_line(["peers.py", "q", "my model.gguf"], {"QUICKDRAFT_ISA": "avx2", "HOME": "/h"})
        self.assertEqual(line, "QUICKDRAFT_ISA=avx2 python3 peers.py q 'my model.gguf'")
        self.assertEqual(peers.command_line(["peers.py"], {}), "python3 peers.py")


class Engines(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.addCleanup(setattr, peers, "HERE", peers.HERE)
        self.addCleanup(setattr, peers, "TIMEOUT", peers.TIMEOUT)
        peers.HERE = self.folder

    def peer(self, program):
        """Runs a program in place of worker.py."""
        (self.folder / "worker.py").write_text(program)
        return peers.Peer("llama.cpp", sys.executable, "m.gguf", 2, self.folder / "log")

    def test_one_that_dies_says_how(self):
        peer = self.peer("print('{}')\nraise SystemExit(3)")
        peer.process.wait()
        with self.assertRaisesRegex(RuntimeError, "^ended with exit status 3 at .*decode"):
            peer.round(8)
        peer.close()

    def test_one_that_does_not_load(self):
        with self.assertRaisesRegex(RuntimeError, "^does not load the model, ended with exit status 1: m.gguf is no model$"):
            self.peer("import sys; sys.exit(sys.argv[2] + ' is no model')")

    def test_one_that_hangs_is_ended(self):
        peer = self.peer("import time\nprint('{}', flush=True)\ntime.sleep(20)")
        peers.TIMEOUT = 0.3
        with self.assertRaisesRegex(RuntimeError, "^no answer in 0.3 s at .*decode"):
            peer.round(8)
        self.assertEqual(peer.process.poll(), -signal.SIGKILL)
        peer.close()
        with self.assertRaisesRegex(RuntimeError, "^does not load the model, no answer in 0.3 s: no message"):
            self.peer("import time; time.sleep(20)")

    def test_answers(self):
        peer = self.peer("import json, sys\nprint('{}', flush=True)\nfor line in sys.stdin:\n"
                         " r = json.loads(line)\n m = r.get('m', r.get('n'))\n"
                         " print(json.dumps({'error': 'no'} if m == 2 else {'ms': m}), flush=True)")
        self.assertEqual(peer.round(99), {"decode": peers.DECODE, 1: 1, 4: 4, 8: 8, 16: 16, "prefill": 99})
        peer.close()


FAKE = f"""#!{sys.executable}
import json, os, sys
with open(os.path.join(os.path.dirname(__file__), "calls"), "a") as calls:
    print(os.environ.get("QUICKDRAFT_ISA"), *sys.argv[1:], file=calls)
if "missing.gguf" in sys.argv:
    sys.exit("a line\\nmissing.gguf: no such file")
rows = [{{"m": m, "ms": 10.0 * m}} for m in range(1, 17)]
found = {{"decode": {{"tokens_per_second": 50}}, "verify": {{"rows": rows}}, "prefill": {{"tokens_per_second": 400}}}}[sys.argv[2]]
print(json.dumps({{"machine": "a machine", "isa": "avx2", "threads": 3, "command": "c", **found}}))
"""


class Ours(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.command = Path(folder.name) / "quickdraft"
        self.command.write_text(FAKE)
        self.command.chmod(0o700)

    def test_a_round_of_known_figures(self):
        run = peers.Quickdraft(str(self.command), "m.gguf", 3, "avx2")
        want = {"decode": 20, "prefill": 250, 1: 10, 2: 20, 4: 40, 8: 80, 16: 160}
        self.assertEqual(run.round(100), want)
        self.assertEqual(run.head, {"machine": "a machine", "isa": "avx2", "threads": 3})
        self.assertEqual((self.command.parent / "calls").read_text().splitlines(), [
            "avx2 bench decode -n 16 -r 1 --depth 64 -m m.gguf -t 3 --json",
            "avx2 bench verify -r 3 --max 16 --depth 64 -m m.gguf -t 3 --json",
            "avx2 bench prefill -p 100 -r 1 -m m.gguf -t 3 --json",
        ])

    def test_a_command_that_fails(self):
        with self.assertRaisesRegex(SystemExit, "bench decode .*: missing.gguf: no such file$"):
            peers.Quickdraft(str(self.command), "missing.gguf", 3, None).round(100)


if __name__ == "__main__":
    unittest.main()
