//go:build !linux

package machine

// pageBytes aligns heap memory as a mapping would be.
const pageBytes = 4096

func mapPages(n int, _ bool) (Pages, error) {
	mem := make([]byte, n+pageBytes)
	skip := int(-addressOf(mem) & (pageBytes - 1))
	return Pages{Data: mem[skip : skip+n : skip+n]}, nil
}

// Free drops the memory; Data must not be used afterwards. Calling it twice is harmless.
func (p *Pages) Free() { *p = Pages{} }
