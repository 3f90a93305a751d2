package tokenizer

const (
	maxIdle        = 32      // scratches kept between calls
	maxCachedWord  = 48      // bytes of a word worth remembering
	maxCacheWords  = 1 << 15 // words remembered by one scratch; then it starts again
	maxCacheIDs    = 1 << 18 // ids remembered by one scratch
	maxScratchKept = 1 << 20 // symbols of working memory that survive a call
)

// scratch is the working memory of one call, and the cache of words it met. It is used by one goroutine at a time.
type scratch struct {
	ids   []int32 // the result so far
	syms  []int32 // ids of the symbols of one word
	vals  []uint64
	heap  mergeHeap
	path  []hop
	buf   []byte
	words map[string]span
	known []int32 // ids of all cached words
}

// span is a range of scratch.known.
type span struct{ off, n uint32 }

func (t *Tokenizer) acquire() *scratch {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := len(t.free); n > 0 {
		s := t.free[n-1]
		t.free = t.free[:n-1]
		return s
	}
	return &scratch{words: make(map[string]span)}
}

func (t *Tokenizer) release(s *scratch) {
	if cap(s.ids) > maxScratchKept {
		s.ids = nil
	}
	if cap(s.syms) > maxScratchKept || cap(s.heap) > maxScratchKept || cap(s.path) > maxScratchKept {
		s.syms, s.vals, s.heap, s.path, s.buf = nil, nil, nil, nil, nil
	}
	s.ids = s.ids[:0]
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.free) < maxIdle {
		t.free = append(t.free, s)
	}
}

// recall appends the ids of a word met before.
func (s *scratch) recall(word string) bool {
	w, ok := s.words[word]
	if ok {
		s.ids = append(s.ids, s.known[w.off:w.off+w.n]...)
	}
	return ok
}

// remember stores the ids of a word, which are those from s.ids[from:] on.
func (s *scratch) remember(word string, from int) {
	n := len(s.ids) - from
	if len(word) > maxCachedWord {
		return
	}
	if len(s.words) >= maxCacheWords || len(s.known)+n > maxCacheIDs {
		clear(s.words)
		s.known = s.known[:0]
	}
	// The key is a copy: word may be a small part of a text of megabytes.
	s.words[string([]byte(word))] = span{uint32(len(s.known)), uint32(n)}
	s.known = append(s.known, s.ids[from:]...)
}
