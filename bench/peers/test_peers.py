"""python3 -m unittest discover bench/peers"""

import subprocess
import sys
import tempfile
import unittest

import peers


class Table(unittest.TestCase):
    def test_ratio_needs_steady_sides(self):
        steady, wild = [10, 10.5, 11], [20, 25, 30]
        self.assertEqual(peers.ratio(steady, [20, 21, 22]), "2.00x")
        self.assertIn("theirs spreads 40%", peers.ratio(steady, wild))
        self.assertIn("ours spreads 40%", peers.ratio(wild, steady))

    def test_spread_leaves_a_tenth_out_on_each_side(self):
        self.assertEqual(peers.spread([1] * 17 + [50, 55, 60]), 49)
        self.assertEqual(peers.spread([1] * 19 + [50]), 0)
        self.assertAlmostEqual(peers.spread([9, 10, 12]), 0.3)

    def test_table(self):
        ours = {"decode": [20, 20], "prefill": [1000], **{m: [10 * m] for m in peers.SIZES}}
        text = peers.table({"quickdraft": ours, "other": {"decode": [40, 40], 4: [100]}}, 500)
        self.assertIn("decode, tokens/s", text)
        self.assertIn("2.00x", text)
        self.assertIn("2.50x", text)
        self.assertEqual(text.count("cannot do it"), 5)

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
