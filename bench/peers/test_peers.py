"""python3 -m unittest discover bench/peers"""

import contextlib
import io
import subprocess
import sys
import tempfile
import unittest

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
        self.assertEqual(peers.arguments(["--rounds", "5", "q", "m"]).rounds, 5)

    def test_command_repeats_the_run(self):
        line = peers.command_line(["peers.py", "q", "my model.gguf"], {"QUICKDRAFT_ISA": "avx2", "HOME": "/h"})
        self.assertEqual(line, "QUICKDRAFT_ISA=avx2 python3 peers.py q 'my model.gguf'")
        self.assertEqual(peers.command_line(["peers.py"], {}), "python3 peers.py")


class Engines(unittest.TestCase):
    def test_an_engine_that_dies_says_how(self):
        peer = peers.Peer.__new__(peers.Peer)
        peer.log = tempfile.TemporaryFile()
        peer.process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        peer.process.wait()
        with self.assertRaisesRegex(RuntimeError, "exit status 3 at .*decode"):
            peer.round(8)
        peer.close()
        peer.process.stdout.close()


if __name__ == "__main__":
    unittest.main()
