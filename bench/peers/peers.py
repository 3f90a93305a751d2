#!/usr/bin/env python3
"""Measures quickdraft and other engines on the same file, threads and token counts, in turns, and prints one table.

usage: peers.py [--engines a,b] [--threads N] [--rounds N] [--prompt N] [--isa LEVEL] [--json FILE] QUICKDRAFT MODEL.gguf

QUICKDRAFT is the built command. Engines are installed by name from the package index that pip is set up for, each into
its own environment below --home (default: ~/.cache/quickdraft-peers), never into the checkout; --install-only ends there.
A round runs every engine once, so that all of them see the same drift of a shared machine. A ratio is printed only when
both sides spread by at most 20 % over the rounds: (third quartile - first quartile) / median, the middle half, whose width
does not depend on the number of rounds, of which 5 are the least.
"""

import argparse
import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import threading
import time
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
MAX_SPREAD = 0.20
MIN_ROUNDS = 5
PAUSE = 0.3
TIMEOUT = 600  # seconds for one answer of an engine, the loading of its model among them
SIZES = (1, 2, 4, 8, 16)
DEPTH = 64
DECODE = 16

# A package without a wheel is compiled, llama-cpp-python in 178 files; without those that read pictures in 127.
BUILD = {"CMAKE_ARGS": "-DLLAVA_BUILD=OFF"}

# engine: (packages, module whose import proves that it works)
ENGINES = {
    "llama.cpp": (["llama-cpp-python"], "llama_cpp"),
    "ik_llama.cpp": (["ik-llama-cpp-python"], "ik_llama_cpp._ctypes_api"),
    "openvino": (["openvino-genai"], "openvino_genai"),
}


def install(name, home):
    """Returns the engine's Python, or None and why it cannot be used."""
    packages, module = ENGINES[name]
    env = home / name
    python = env / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    check = [str(python), "-c", f"import {module}"]
    if python.exists() and subprocess.run(check, capture_output=True).returncode == 0:
        return python, None
    venv.create(env, with_pip=True, clear=True)
    print(f"installing {' '.join(packages)} into {env}, which takes many minutes where it must be compiled", file=sys.stderr)
    pip = subprocess.run([str(python), "-m", "pip", "install", "--quiet", *packages], capture_output=True, text=True,
                         env={**BUILD, **os.environ})
    if pip.returncode != 0:
        return None, "not installed: " + last_line(pip.stderr)
    proof = subprocess.run(check, capture_output=True, text=True)
    if proof.returncode != 0:
        return None, "installed but not importable: " + last_line(proof.stderr)
    return python, None


def last_line(text):
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1].strip()[:200] if lines else "no message"


class Peer:
    """Another engine in a process of its own, which keeps the model loaded and sleeps between requests."""

    def __init__(self, name, python, model, threads, log):
        self.log = open(log, "w")
        self.process = subprocess.Popen(
            [str(python), str(HERE / "worker.py"), ENGINES[name][1], model, str(threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True)
        try:
            self.read()
        except RuntimeError as err:
            self.close()
            raise RuntimeError(f"does not load the model, {err}: " + last_line(Path(log).read_text(errors="replace"))) from None

    def read(self):
        """The next line. A process that has ended, or is ended because it was silent for TIMEOUT, is a RuntimeError."""
        start = time.monotonic()
        kill = threading.Timer(TIMEOUT, self.process.kill)
        kill.start()
        try:
            line = self.process.stdout.readline()
        finally:
            kill.cancel()
        if line:
            return line
        status = self.process.wait()
        late = time.monotonic() - start >= TIMEOUT
        raise RuntimeError(f"no answer in {TIMEOUT} s" if late else f"ended with exit status {status}")

    def ask(self, **request):
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # what follows says that it ended
        try:
            return json.loads(self.read()).get("ms")
        except RuntimeError as err:
            raise RuntimeError(f"{err} at {json.dumps(request)}") from None

    def round(self, prompt):
        """Milliseconds by measurement; what the engine cannot do is left out."""
        found = {"decode": self.ask(op="decode", n=DECODE, depth=DEPTH)}
        for m in SIZES:
            times = [t for t in (self.ask(op="pass", m=m, depth=DEPTH) for _ in range(3)) if t is not None]
            if times:
                found[m] = statistics.median(times)
        found["prefill"] = self.ask(op="prefill", n=prompt)
        return {key: ms for key, ms in found.items() if ms is not None}

    def close(self):
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass  # it has ended by itself
        self.process.wait()
        self.process.stdout.close()
        self.log.close()


class Quickdraft:
    def __init__(self, command, model, threads, isa):
        self.command, self.model, self.threads = command, model, threads
        self.env = dict(os.environ, **({"QUICKDRAFT_ISA": isa} if isa else {}))
        self.head = None

    def bench(self, *args):
        argv = [self.command, "bench", *args, "-m", self.model, "-t", str(self.threads), "--json"]
        done = subprocess.run(argv, capture_output=True, text=True, env=self.env)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(argv)}: {last_line(done.stderr)}")
        result = json.loads(done.stdout)
        self.head = {key: result[key] for key in ("machine", "isa", "threads")}
        return result

    def round(self, prompt):
        decode = self.bench("decode", "-n", str(DECODE), "-r", "1", "--depth", str(DEPTH))
        verify = self.bench("verify", "-r", "3", "--max", str(max(SIZES)), "--depth", str(DEPTH))
        prefill = self.bench("prefill", "-p", str(prompt), "-r", "1")
        found = {"decode": 1e3 / decode["tokens_per_second"], "prefill": 1e3 * prompt / prefill["tokens_per_second"]}
        found.update({row["m"]: row["ms"] for row in verify["rows"] if row["m"] in SIZES})
        return found

    def close(self):
        pass


def spread(values):
    """The width of the middle half over the median; None where there are too few values to say."""
    if len(values) < MIN_ROUNDS:
        return None
    first, median, third = statistics.quantiles(values, n=4, method="inclusive")
    return (third - first) / median


def percent(share):
    return "n/a" if share is None else f"{share:.0%}"


def ratio(ours, theirs):
    """How many times as fast as theirs ours is, or why that is not said."""
    for side, values in (("ours", ours), ("theirs", theirs)):
        if len(values) < MIN_ROUNDS:
            return f"no ratio: {side} has {len(values)} of {MIN_ROUNDS} rounds"
        if spread(values) > MAX_SPREAD:
            return f"no ratio: {side} spreads {percent(spread(values))}"
    return f"{statistics.median(theirs) / statistics.median(ours):.2f}x"


def table(results, prompt):
    rows = [("decode", "decode, tokens/s", 1e3)]
    rows += [(m, f"pass over {m}, ms", None) for m in SIZES]
    rows += [("prefill", f"prefill of {prompt}, tokens/s", 1e3 * prompt)]
    lines = [["", "engine", "median", "spread", "quickdraft against it"]]
    for key, title, rate in rows:
        for name, found in results.items():
            values = found.get(key)
            if not values:
                lines.append([title, name, "-", "-", "cannot do it"])
            else:
                median = statistics.median(values)
                shown = f"{rate / median:.1f}" if rate else f"{median:.1f}"
                against = "" if name == "quickdraft" else ratio(results["quickdraft"][key], values)
                lines.append([title, name, shown, percent(spread(values)), against])
            title = ""
    widths = [max(len(line[i]) for line in lines) for i in range(5)]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(line, widths)).rstrip() for line in lines)


def arguments(argv=None):
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--engines", default=",".join(ENGINES), help="of " + ", ".join(ENGINES))
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())
    p.add_argument("--rounds", type=int, default=7, help=f"{MIN_ROUNDS} or more")
    p.add_argument("--prompt", type=int, default=512)
    p.add_argument("--isa", help="QUICKDRAFT_ISA of our side: avx2, avxvnni, avx512, vnni, amx, go")
    p.add_argument("--json", help="file for all measurements")
    p.add_argument("--home", default=str(Path.home() / ".cache" / "quickdraft-peers"))
    p.add_argument("--install-only", action="store_true")
    p.add_argument("quickdraft", nargs="?")
    p.add_argument("model", nargs="?")
    a = p.parse_args(argv)
    a.engines = a.engines.split(",")
    for name in a.engines:
        if name not in ENGINES:
            p.error(f"--engines: {name!r} is none of {', '.join(ENGINES)}")
    if not a.install_only and not a.model:
        p.error("want QUICKDRAFT and MODEL.gguf")
    if a.threads < 1 or not 1 <= a.prompt <= 1900:
        p.error("want --threads of 1 or more, --prompt of 1 to 1900")
    if a.rounds < MIN_ROUNDS:
        p.error(f"--rounds {a.rounds}: want {MIN_ROUNDS} or more, fewer have no spread")
    if HERE.parents[1] in Path(a.home).resolve().parents:
        p.error(f"--home {a.home}: is inside the checkout")
    wrong = wrong_path(a)
    if wrong:
        p.error(wrong)
    return a


def wrong_path(a):
    """What is wrong with a path, or None: it is said before engines are installed and measured for an hour."""
    home = Path(a.home).resolve()
    while not home.exists():
        home = home.parent
    if not home.is_dir() or not os.access(home, os.W_OK):
        return f"--home {a.home}: {home} is not a folder to write to"
    if a.install_only:
        return None
    if not shutil.which(a.quickdraft):
        return f"{a.quickdraft}: is not a command, want the built quickdraft"
    if not os.path.isfile(a.model):
        return f"{a.model}: is not a file, want a GGUF model"
    if a.json:
        to = Path(a.json).resolve()
        if to.is_dir() or not os.access(to if to.exists() else to.parent, os.W_OK):
            return f"--json {a.json}: is not a file to write to"
    return None


def command_line(argv, env):
    """What a shell runs to repeat this run."""
    return shlex.join([f"{name}={env[name]}" for name in ("QUICKDRAFT_ISA", "GOMAXPROCS") if env.get(name)] + ["python3", *argv])


def measure(runs, rounds, prompt):
    """Has every engine measure once a round, in turns, after a round to warm up; one that fails is closed and left out."""
    results = {name: {} for name in runs}
    for n in range(rounds + 1):
        for name, run in list(runs.items()):
            time.sleep(PAUSE)  # workers of the one before stop spinning
            try:
                found = run.round(prompt)
            except RuntimeError as err:
                print(f"{name}: left out, {err}")
                runs.pop(name).close()
                del results[name]
                continue
            for key, ms in found.items():
                if n > 0:
                    results[name].setdefault(key, []).append(ms)
        print(f"round {n} of {rounds}", file=sys.stderr)
    return results


def main():
    a = arguments()
    home = Path(a.home)
    home.mkdir(parents=True, exist_ok=True)
    pythons = {}
    for name in a.engines:
        python, why = install(name, home)
        if why:
            print(f"{name}: left out, {why}")
        else:
            pythons[name] = python
            print(f"{name}: {' '.join(ENGINES[name][0])} in {home / name}")
    if a.install_only:
        return
    runs = {"quickdraft": Quickdraft(a.quickdraft, a.model, a.threads, a.isa)}
    for name, python in pythons.items():
        try:
            runs[name] = Peer(name, python, a.model, a.threads, home / f"{name}.log")
        except RuntimeError as err:
            print(f"{name}: left out, {err}")
    results = measure(runs, a.rounds, a.prompt)
    for run in runs.values():
        run.close()
    head = runs["quickdraft"].head
    print(f"machine  {head['machine']}\ncommand  {command_line(sys.argv, os.environ)}\nkernels  {head['isa']}, {head['threads']} threads; {a.rounds} rounds in turns\n")
    print(table(results, a.prompt))
    if a.json:
        Path(a.json).write_text(json.dumps({**head, "command": command_line(sys.argv, os.environ), "model": a.model, "ms": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
