package machine

// hugePageBytes is the size from which memory is worth asking huge pages for (x86-64 and most arm64 kernels).
const hugePageBytes = 2 << 20

// Pages is a run of zeroed memory outside the garbage collector's heap where the system allows that. It starts on a
// page border, so on a cache line too. Touching it makes it resident, a page at a time.
type Pages struct {
	Data   []byte // the memory asked for
	mapped []byte // what the system mapped; nil when Data lies on the heap
}

// MapPages returns n bytes of zeroed memory. huge asks the kernel for huge pages, which it may ignore. The error names
// the size when the system has no such memory; n <= 0 gives an empty run.
func MapPages(n int, huge bool) (Pages, error) {
	if n <= 0 {
		return Pages{}, nil
	}
	return mapPages(n, huge && n >= hugePageBytes)
}
