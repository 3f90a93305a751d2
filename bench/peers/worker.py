"""Runs one engine for peers.py: a JSON request a line on standard input, a JSON answer a line on standard output.

usage: worker.py ENGINE MODEL THREADS

requests  {"op": "pass", "m": M, "depth": N}   one pass over M tokens after N others, all logits wanted -> {"ms": ..}
          {"op": "decode", "n": N, "depth": D} N tokens one after the other -> {"ms": .. of one token}
          {"op": "prefill", "n": N}            a prompt of N tokens, the last one's logits wanted -> {"ms": ..}
An engine that cannot do something answers {"error": ..}.
"""

import json
import random
import sys
import time


class Llama:
    """llama.cpp and its forks through the ctypes layer of their Python packages."""

    def __init__(self, module, path, threads):
        import importlib

        self.c = c = importlib.import_module(module)
        self.lib = getattr(c, "_lib", None)  # for what the package does not bind
        c.llama_backend_init()
        model_params = c.llama_model_default_params()
        model_params.n_gpu_layers = 0
        load = self.first("llama_model_load_from_file", "llama_load_model_from_file")
        self.model = load(path.encode(), model_params)
        if not self.model:
            raise SystemExit(f"{module}: cannot load {path}")
        params = c.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = 2048, 512, 512
        params.n_threads = params.n_threads_batch = threads
        if hasattr(params, "flash_attn"):  # newer ones choose by themselves
            params.flash_attn = True
        new = self.first("llama_init_from_model", "llama_new_context_with_model")
        self.ctx = new(self.model, params)
        if not self.ctx:
            raise SystemExit(f"{module}: cannot make a context for {path}")
        self.seq_rm = self.find_seq_rm()
        if hasattr(c, "llama_vocab_n_tokens") and hasattr(c, "llama_model_get_vocab"):
            self.vocab = c.llama_vocab_n_tokens(c.llama_model_get_vocab(self.model))
        else:
            self.vocab = c.llama_n_vocab(self.model)
        self.batch = c.llama_batch_init(512, 0, 1)
        self.depth = 0

    def first(self, *names):
        for name in names:
            if hasattr(self.c, name):
                return getattr(self.c, name)
        raise SystemExit("the package has none of " + ", ".join(names))

    def find_seq_rm(self):
        """Returns a function that removes the positions from n on."""
        c = self.c
        if hasattr(c, "llama_memory_seq_rm"):
            return lambda n: c.llama_memory_seq_rm(c.llama_get_memory(self.ctx), 0, n, -1)
        for name in ("llama_kv_self_seq_rm", "llama_kv_cache_seq_rm"):
            remove = getattr(c, name, None)
            if remove is None and hasattr(self.lib, name):
                import ctypes

                remove = getattr(self.lib, name)
                remove.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32, ctypes.c_int32]
                remove.restype = ctypes.c_bool
            if remove is not None:
                return lambda n: remove(self.ctx, 0, n, -1)
        raise SystemExit("the package cannot remove positions from the cache")

    def keep(self, n):
        """Forgets all positions from n on."""
        self.seq_rm(n)
        self.depth = n

    def feed(self, n, all_logits):
        b = self.batch
        b.n_tokens = n
        for i in range(n):
            b.token[i] = random.randrange(self.vocab)
            b.pos[i] = self.depth + i
            b.n_seq_id[i] = 1
            b.seq_id[i][0] = 0
            b.logits[i] = 1 if all_logits or i == n - 1 else 0
        start = time.perf_counter()
        if self.c.llama_decode(self.ctx, b) != 0:
            raise RuntimeError(f"llama_decode of {n} tokens failed")
        self.c.llama_get_logits_ith(self.ctx, n - 1)  # waits for the pass
        took = time.perf_counter() - start
        self.depth += n
        return took

    def fill(self, n):
        """Puts n tokens into the cache and returns the seconds that took."""
        took = 0.0
        if self.depth != n:
            self.keep(0)
        while self.depth < n:
            took += self.feed(min(512, n - self.depth), False)
        return took

    def run_pass(self, m, depth):
        self.fill(depth)
        took = self.feed(m, True)
        self.keep(depth)
        return took

    def run_decode(self, n, depth):
        self.fill(depth)
        took = sum(self.feed(1, True) for _ in range(n))
        self.keep(depth)
        return took / n

    def run_prefill(self, n):
        self.keep(0)
        return self.fill(n)


class OpenVINO:
    """openvino-genai, which reads some GGUF files. It has no passes over several tokens."""

    def __init__(self, path, threads):
        import openvino_genai

        self.genai = openvino_genai
        self.pipe = openvino_genai.LLMPipeline(path, "CPU", INFERENCE_NUM_THREADS=threads)

    def generate(self, n_prompt, n):
        import numpy
        import openvino

        ids = numpy.random.randint(1000, 20000, size=(1, n_prompt))
        config = self.genai.GenerationConfig(max_new_tokens=n, ignore_eos=True, do_sample=False)
        tokens = self.genai.TokenizedInputs(openvino.Tensor(ids), openvino.Tensor(numpy.ones_like(ids)))
        return self.pipe.generate(tokens, config).perf_metrics

    def run_pass(self, m, depth):
        raise NotImplementedError("it has no pass over several tokens")

    def run_decode(self, n, depth):
        return self.generate(depth, n + 1).get_tpot().mean / 1e3

    def run_prefill(self, n):
        return self.generate(n, 1).get_ttft().mean / 1e3


def main():
    engine, path, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
    answers = sys.stdout
    sys.stdout = sys.stderr  # engines print what they like
    if engine == "openvino_genai":
        e = OpenVINO(path, threads)
    else:
        e = Llama(engine, path, threads)

    def answer(value):
        print(json.dumps(value), file=answers, flush=True)

    answer({"ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        op = request.pop("op")
        try:
            answer({"ms": 1e3 * getattr(e, "run_" + op)(**request)})
        except (NotImplementedError, RuntimeError) as err:
            answer({"error": str(err)})


if __name__ == "__main__":
    main()
