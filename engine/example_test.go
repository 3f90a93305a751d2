package engine_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"quickdraft/engine"
	"quickdraft/sample"
)

// openExample opens a tiny random model; a program gives engine.Open the path of a GGUF file or a safetensors folder.
func openExample() (e *engine.Engine, closeAll func()) {
	dir, err := os.MkdirTemp("", "engine")
	if err != nil {
		panic(err)
	}
	path := filepath.Join(dir, "tiny.gguf")
	if err := engine.WriteTinyModel(path, nil); err != nil {
		panic(err)
	}
	e, err = engine.Open(path, engine.Options{Context: 1024, Threads: 1})
	if err != nil {
		panic(err)
	}
	return e, func() { _ = e.Close(); _ = os.RemoveAll(dir) }
}

// Tokens arrive as they are made; leaving the loop cancels the rest.
func ExampleEngine_Generate() {
	e, closeAll := openExample()
	defer closeAll()

	n := 0
	for id, err := range e.Generate(context.Background(), engine.Request{
		Prompt: []int32{10, 20, 30}, MaxTokens: 100, IgnoreEOS: true, Sampling: sample.Greedy(),
	}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		if n++; n == 5 || id < 0 {
			break
		}
	}
	fmt.Println(n, "tokens")
	// Output: 5 tokens
}

// A ticket delivers tokens with their probabilities, the reason for the end, and the figures of the request.
func ExampleEngine_Submit() {
	e, closeAll := openExample()
	defer closeAll()

	req := engine.Request{Prompt: []int32{10, 20, 30}, MaxTokens: 4, IgnoreEOS: true, Sampling: sample.Greedy(), Logprobs: true, TopLogprobs: 2}
	ticket, err := e.Submit(context.Background(), req)
	if err != nil {
		fmt.Println(err)
		return
	}
	for t := range ticket.Tokens() {
		if t.HasID {
			fmt.Println("the most probable one:", t.ID == t.Top[0].ID && t.Logprob == t.Top[0].Logprob)
		} else {
			fmt.Println("end:", t.Finish)
		}
	}
	s := ticket.Stats()
	fmt.Println(s.PromptTokens, "tokens of prompt,", s.DecodedTokens, "of answer")
	// Output:
	// the most probable one: true
	// the most probable one: true
	// the most probable one: true
	// the most probable one: true
	// end: length
	// 3 tokens of prompt, 4 of answer
}

// Several answers to one prompt share its computation. The first is the one that Submit would give.
func ExampleEngine_SubmitChoices() {
	e, closeAll := openExample()
	defer closeAll()

	params := sample.Default()
	params.Seed = 42
	req := engine.Request{Prompt: []int32{10, 20, 30}, MaxTokens: 3, IgnoreEOS: true, Sampling: params}
	tickets, err := e.SubmitChoices(context.Background(), req, 2, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for i, ticket := range tickets {
		n := 0
		for t := range ticket.Tokens() {
			if t.HasID {
				n++
			}
		}
		fmt.Printf("choice %d: %d tokens\n", i, n)
	}
	// Output:
	// choice 0: 3 tokens
	// choice 1: 3 tokens
}

// A beam search finds the most probable answers, best first.
func ExampleEngine_Beams() {
	e, closeAll := openExample()
	defer closeAll()

	req := engine.Request{Prompt: []int32{10, 20, 30}, MaxTokens: 4, IgnoreEOS: true, Sampling: sample.Greedy()}
	found, err := e.Beams(context.Background(), req, engine.BeamOptions{Beams: 2, LengthPenalty: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, b := range found {
		fmt.Println(len(b.IDs), "tokens, end:", b.Finish)
	}
	fmt.Println("best first:", found[0].Score >= found[1].Score)
	// Output:
	// 4 tokens, end: length
	// 4 tokens, end: length
	// best first: true
}

// When its context ends, a request ends within one pass, and the error says why.
func ExampleEngine_Generate_cancel() {
	e, closeAll := openExample()
	defer closeAll()

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for _, err := range e.Generate(ctx, engine.Request{Prompt: []int32{10, 20, 30}, MaxTokens: -1, IgnoreEOS: true, Sampling: sample.Greedy()}) {
		if err != nil {
			fmt.Println("end:", err)
			return
		}
		cancel()
	}
	fmt.Println("the answer was over first")
	// Output: end: context canceled
}

// The keys and values of a long prompt survive a restart: only new tokens are computed afterwards.
func ExampleEngine_SavePrefix() {
	dir, err := os.MkdirTemp("", "engine")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	model, saved := filepath.Join(dir, "tiny.gguf"), filepath.Join(dir, "prefix")
	if err := engine.WriteTinyModel(model, nil); err != nil {
		panic(err)
	}
	prompt := make([]int32, 64) // what many requests begin with
	for i := range prompt {
		prompt[i] = int32(3 * i)
	}

	e, err := engine.Open(model, engine.Options{Context: 128, Threads: 1})
	if err != nil {
		panic(err)
	}
	if err := e.SavePrefix(context.Background(), saved, prompt); err != nil {
		fmt.Println(err)
	}
	_ = e.Close()

	e, err = engine.Open(model, engine.Options{Context: 128, Threads: 1})
	if err != nil {
		panic(err)
	}
	defer e.Close()
	if _, err := e.RestorePrefix(context.Background(), saved); err != nil {
		fmt.Println(err)
	}
	ticket, err := e.Submit(context.Background(), engine.Request{Prompt: append(prompt, 1, 2), MaxTokens: 1, Sampling: sample.Greedy()})
	if err != nil {
		fmt.Println(err)
		return
	}
	for range ticket.Tokens() {
	}
	fmt.Println(ticket.Stats().CachedTokens, "of", ticket.Stats().PromptTokens, "tokens were there")
	// Output: 64 of 66 tokens were there
}
