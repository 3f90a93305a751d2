package machine

import (
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// readChunk is the memory that a thread reads between two looks at the clock.
const readChunk = 1 << 20

// ReadBandwidth measures how fast threads read a buffer of the given size, each its own part over and over, in 10^9
// bytes a second. A buffer several times the last cache gives the bandwidth of memory, a smaller one that of the cache
// it fits. It takes dur and the time to fill the buffer. It returns 0 when there is no memory for the buffer.
//
// The loop is plain Go, eight 64-bit loads at a time: more than a core gets from memory, too
// slow for what an L2 cache gives.
func ReadBandwidth(threads, bytes int, dur time.Duration) float64 {
	threads = max(threads, 1)
	part := max(bytes/threads, readChunk) / readChunk * readChunk
	pages, err := MapPages(part*threads, true)
	if err != nil {
		return 0
	}
	defer pages.Free()
	words := unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(pages.Data))), len(pages.Data)/8)
	var ready, done sync.WaitGroup
	var start time.Time
	var total, sink atomic.Uint64
	begin := make(chan struct{})
	for i := range threads {
		mine := words[i*part/8 : (i+1)*part/8]
		ready.Add(1)
		done.Go(func() {
			for k := range mine { // every page its own memory: untouched pages share one of zeros
				mine[k] = uint64(k)
			}
			ready.Done()
			<-begin
			n, sum := readFor(mine, start, dur)
			total.Add(n)
			sink.Add(sum)
		})
	}
	ready.Wait()
	start = time.Now()
	close(begin)
	done.Wait()
	return float64(total.Load()) / float64(time.Since(start).Nanoseconds())
}

// readFor reads words again and again until dur after start; it returns the bytes read.
func readFor(words []uint64, start time.Time, dur time.Duration) (bytes, sum uint64) {
	for {
		for at := 0; at < len(words); at += readChunk / 8 {
			sum += sumWords(words[at : at+readChunk/8])
			bytes += readChunk
			if time.Since(start) > dur {
				return bytes, sum
			}
		}
	}
}

func sumWords(words []uint64) uint64 {
	var a, b, c, d uint64
	for ; len(words) >= 8; words = words[8:] {
		w := (*[8]uint64)(words)
		a += w[0] + w[4]
		b += w[1] + w[5]
		c += w[2] + w[6]
		d += w[3] + w[7]
	}
	return a + b + c + d
}
