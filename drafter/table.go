package drafter

// gramKey is up to three tokens of context, right-aligned and padded with -1, and a continuation, -1 for the context itself.
type gramKey [4]int32

// hash is FNV-1a over tokens instead of bytes.
func (k *gramKey) hash() uint64 {
	h := uint64(14695981039346656037)
	for _, t := range k {
		h ^= uint64(uint32(t))
		h *= 1099511628211
	}
	return h
}

// gram counts a continuation, or holds the most frequent one of a context.
type gram struct {
	key   gramKey
	best  int32 // contexts: the continuation seen most often, the latest of those on a tie
	count int32 // continuations: how often it was seen; contexts: how often best was
}

// gramTable finds grams by their tokens in open addressing: a hash that collides costs a probe and never mixes two keys.
type gramTable struct {
	slots []int32 // (power of two) index into grams plus 1, 0 is free
	grams []gram
}

// find returns the gram of a key, nil when there is none. It is valid until the next add.
func (t *gramTable) find(k gramKey) *gram {
	if len(t.slots) == 0 {
		return nil
	}
	if i := t.slots[t.slot(&k)]; i > 0 {
		return &t.grams[i-1]
	}
	return nil
}

// slot returns where k is, or the free slot where it belongs.
func (t *gramTable) slot(k *gramKey) uint64 {
	mask := uint64(len(t.slots) - 1)
	h := k.hash()
	for at := (h ^ h>>32) & mask; ; at = (at + 1) & mask {
		if i := t.slots[at]; i == 0 || t.grams[i-1].key == *k {
			return at
		}
	}
}

// add returns the gram of a key and makes it when there is none. It is valid until the next add.
func (t *gramTable) add(k gramKey) *gram {
	if 2*len(t.grams) >= len(t.slots) {
		t.slots = make([]int32, max(64, 2*len(t.slots)))
		for i := range t.grams {
			t.slots[t.slot(&t.grams[i].key)] = int32(i + 1)
		}
	}
	at := t.slot(&k)
	if t.slots[at] == 0 {
		t.grams = append(t.grams, gram{key: k})
		t.slots[at] = int32(len(t.grams))
	}
	return &t.grams[t.slots[at]-1]
}

// bytes is the memory the table holds.
func (t *gramTable) bytes() int64 { return int64(4*cap(t.slots) + 24*cap(t.grams)) }
