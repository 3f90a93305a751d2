package tokenizer

import "math/bits"

// table maps uint64 keys to uint64 values by open addressing: one cache line a lookup, which a Go map does not give.
// The key ^0 is not allowed; it marks a free slot.
type table struct {
	slots []slot // a power of two, at most half full
	shift uint
}

type slot struct{ key, val uint64 }

const noKey = ^uint64(0)

// newTable makes a table for n keys.
func newTable(n int) table {
	log := uint(bits.Len(uint(2 * n)))
	t := table{slots: make([]slot, 1<<log), shift: 64 - log}
	for i := range t.slots {
		t.slots[i].key = noKey
	}
	return t
}

func (t *table) find(key uint64) *slot {
	mask := uint64(len(t.slots) - 1)
	for i := key * 0x9E3779B97F4A7C15 >> t.shift; ; i++ {
		if s := &t.slots[i&mask]; s.key == key || s.key == noKey {
			return s
		}
	}
}

// get returns the value of key.
func (t *table) get(key uint64) (uint64, bool) {
	if len(t.slots) == 0 {
		return 0, false
	}
	s := t.find(key)
	return s.val, s.key == key
}

// put sets the value of key. The caller keeps the number of keys within that of newTable.
func (t *table) put(key, val uint64) { *t.find(key) = slot{key, val} }

// trie finds strings by their bytes. Node 0 is the root.
type trie struct {
	edges table   // node<<8 | byte -> node
	value []int32 // by node: what the string that ends here was added with, -1 for none
}

// newTrie makes a trie for strings of n bytes together.
func newTrie(n int) trie { return trie{edges: newTable(n), value: []int32{-1}} }

// add puts a string in, replacing the value it may have.
func (t *trie) add(s string, value int32) {
	at := uint64(0)
	for i := range len(s) {
		key := at<<8 | uint64(s[i])
		next, ok := t.edges.get(key)
		if !ok {
			next = uint64(len(t.value))
			t.value = append(t.value, -1)
			t.edges.put(key, next)
		}
		at = next
	}
	t.value[at] = value
}

// step follows one byte from a node.
func (t *trie) step(at uint64, b byte) (uint64, bool) { return t.edges.get(at<<8 | uint64(b)) }
