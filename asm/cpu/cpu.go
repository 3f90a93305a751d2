// Package cpu says which instruction set levels the kernels may use here.
//
// A level counts as present when the processor has its instructions and the operating system saves its registers.
// QUICKDRAFT_ISA caps the levels in use without changing what is present.
package cpu

import (
	"fmt"
	"os"
	"strings"
)

// EnvISA names the environment variable that caps the levels in use.
const EnvISA = "QUICKDRAFT_ISA"

// Level is an instruction set that kernels exist for. Levels are a partial order:
// go < avx2 < avxvnni and avx2 < avx512 < vnni < amx.
type Level uint8

// The levels, in the order in which a kernel is preferred (last is best).
const (
	Go      Level = iota // no assembly
	AVX2                 // AVX2, FMA, F16C, BMI2; YMM state
	AVXVNNI              // AVX2 and the VEX form of VPDPBUSD
	AVX512               // AVX2 and AVX-512 F, BW, VL, DQ; ZMM state
	VNNI                 // AVX512 and AVX512_VNNI
	AMX                  // VNNI, AMX-TILE and AMX-INT8; tile state, which Linux gives to processes that ask
)

var names = [...]string{Go: "go", AVX2: "avx2", AVXVNNI: "avxvnni", AVX512: "avx512", VNNI: "vnni", AMX: "amx"}

// below lists, for each level, the levels that it includes, itself among them, as a bit set.
var below = [...]uint8{
	Go:      1 << Go,
	AVX2:    1<<Go | 1<<AVX2,
	AVXVNNI: 1<<Go | 1<<AVX2 | 1<<AVXVNNI,
	AVX512:  1<<Go | 1<<AVX2 | 1<<AVX512,
	VNNI:    1<<Go | 1<<AVX2 | 1<<AVX512 | 1<<VNNI,
	AMX:     1<<Go | 1<<AVX2 | 1<<AVX512 | 1<<VNNI | 1<<AMX,
}

// Levels returns all levels, worst first.
func Levels() []Level { return []Level{Go, AVX2, AVXVNNI, AVX512, VNNI, AMX} }

// String returns the name that QUICKDRAFT_ISA uses.
func (l Level) String() string {
	if int(l) < len(names) {
		return names[l]
	}
	return fmt.Sprintf("level(%d)", uint8(l))
}

// Includes reports whether code for m runs wherever l is present.
func (l Level) Includes(m Level) bool { return int(l) < len(below) && below[l]&(1<<m) != 0 }

// ParseLevel returns the level of a name.
func ParseLevel(name string) (Level, error) {
	for l, n := range names {
		if n == name {
			return Level(l), nil
		}
	}
	return Go, fmt.Errorf("unknown instruction set %q; known are %s", name, strings.Join(names[:], ", "))
}

// choice is what this process may use: the present levels, and the cap from the environment.
type choice struct {
	present uint8 // bit set of levels
	cap     Level
	capped  bool
	err     error
}

var current = start(detect(), os.Getenv(EnvISA), requestTiles)

// start is choose without AMX where the operating system refuses the tile state. It is not asked when the cap excludes AMX.
func start(present uint8, isa string, request func() bool) choice {
	cap, err := ParseLevel(isa)
	excluded := isa != "" && (err != nil || !cap.Includes(AMX))
	if present&(1<<AMX) != 0 && (excluded || !request()) {
		present &^= 1 << AMX
	}
	return choose(present, isa)
}

// choose combines the present levels with the value of QUICKDRAFT_ISA ("" is no cap). An unknown value leaves Go only.
func choose(present uint8, isa string) choice {
	c := choice{present: present | 1<<Go, cap: AMX}
	if isa == "" {
		return c
	}
	c.capped = true
	level, err := ParseLevel(isa)
	switch {
	case err != nil:
		c.err = fmt.Errorf("%s: %w", EnvISA, err)
	case c.present&(1<<level) == 0:
		c.err = fmt.Errorf("%s=%s: this processor or operating system lacks %s; it has %s",
			EnvISA, isa, isa, strings.Join(c.presentNames(), ", "))
	}
	c.cap = level
	return c
}

// levels are those that are present, worst first.
func (c choice) levels() (out []Level) {
	for _, l := range Levels() {
		if c.present&(1<<l) != 0 {
			out = append(out, l)
		}
	}
	return out
}

func (c choice) presentNames() (out []string) {
	for _, l := range c.levels() {
		out = append(out, l.String())
	}
	return out
}

func (c choice) active(l Level) bool {
	return c.present&(1<<l) != 0 && (!c.capped || c.cap.Includes(l))
}

func (c choice) best() Level {
	best := Go
	for _, l := range Levels() {
		if c.active(l) {
			best = l
		}
	}
	return best
}

// Has reports whether processor and operating system support the level, whatever the cap says; but a process whose cap
// excludes AMX does not ask for its state and has no AMX.
func Has(l Level) bool { return current.present&(1<<l) != 0 }

// Host returns the levels that processor and operating system support, worst first, whatever the cap says.
func Host() []Level { return start(detect(), "", requestTiles).levels() }

// Active reports whether kernels of the level may run: it is present and within the cap.
func Active(l Level) bool { return current.active(l) }

// Best returns the preferred level among the active ones.
func Best() Level { return current.best() }

// Cap returns the level that QUICKDRAFT_ISA names, and whether it is set.
func Cap() (Level, bool) { return current.cap, current.capped }

// Missing says in one line why this machine has no level but Go, or "" where it has one.
func Missing() string {
	why := missing()
	if why == "" {
		return ""
	}
	return why + ": the portable Go kernels run, which are many times slower"
}

// Err reports a QUICKDRAFT_ISA that is unknown or not available on this machine; it names the value and what is known.
func Err() error { return current.err }
