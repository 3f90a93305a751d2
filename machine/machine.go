// Package machine says what this computer is: the processors that the process may use, caches and who shares them, and
// memory outside the garbage collector's heap.
package machine

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/cpuid/v2"
)

// Info describes a computer as this process may use it.
type Info struct {
	Model   string  // the processor's name
	Allowed int     // CPUs that the process may run on
	Cores   []int   // one CPU of each physical performance core among them; nil where the system does not tell
	Quota   float64 // CPUs' worth of time that the control group grants, +Inf without a limit
	Threads int     // workers to use: no more than cores or whole CPUs of quota, at least 1
	Caches  []Cache // of the first core, smallest first; instruction caches left out
}

// Cache is one level of cache.
type Cache struct {
	Level  int
	Bytes  int
	Shared int   // usable cores that share one instance, 0 when unknown
	Cores  []int // one CPU of each of these; nil when unknown
	Groups int   // instances that the usable cores spread over, 0 when unknown
}

// Host describes this computer; it looks once.
var Host = sync.OnceValue(func() *Info {
	info := root("/").detect()
	info.fillFromCPUID()
	return info
})

// Threads is the number of workers to use by default: CPUs in the affinity mask, at most the control group's quota, one
// for each physical core, efficiency cores left out.
func Threads() int { return Host().Threads }

// CPUs is how many threads can run at once: the CPUs in the affinity mask, at most the control group's quota rounded up.
func CPUs() int { return Host().CPUs() }

// CPUs is how many threads can run at once, at least 1.
func (m *Info) CPUs() int { return max(1, int(min(float64(m.Allowed), math.Ceil(m.Quota)))) }

// CacheBytes returns the size of one instance of a level of this computer's cache, 0 when unknown.
func CacheBytes(level int) int {
	for _, c := range Host().Caches {
		if c.Level == level {
			return c.Bytes
		}
	}
	return 0
}

// Near returns one CPU of each usable core that shares the last level of cache with the first one, when the usable cores
// spread over several such caches; nil when there is but one, or when the system does not tell. What is to stay in a cache
// and is read by all threads belongs to cores that share it.
func (m *Info) Near() []int {
	if len(m.Caches) == 0 {
		return nil
	}
	if last := m.Caches[len(m.Caches)-1]; last.Level >= 3 && last.Groups > 1 {
		return last.Cores
	}
	return nil
}

// Describe is one line about this computer.
func Describe() string { return Host().String() }

// String is one line: processor, cores, quota, caches.
func (m *Info) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s/%s", m.Model, runtime.GOOS, runtime.GOARCH)
	fmt.Fprintf(&b, ", %d of %d CPUs used", m.Threads, m.Allowed)
	if !math.IsInf(m.Quota, 1) {
		fmt.Fprintf(&b, " (quota %.3g)", m.Quota)
	}
	for _, c := range m.Caches {
		fmt.Fprintf(&b, ", L%d %s", c.Level, sizeText(c.Bytes))
		if c.Shared > 1 {
			fmt.Fprintf(&b, " shared by %d", c.Shared)
		}
	}
	return b.String()
}

func sizeText(n int) string {
	if n >= 1<<20 {
		return strconv.FormatFloat(float64(n)/(1<<20), 'g', 4, 64) + " MiB"
	}
	return strconv.FormatFloat(float64(n)/(1<<10), 'g', 4, 64) + " KiB"
}

// root is the folder that /proc and /sys are read below: "/" or a test's.
type root string

// read returns a file's text, "" when it cannot be read: every source here is optional.
func (r root) read(name string) string {
	b, err := os.ReadFile(filepath.Join(string(r), filepath.FromSlash(name)))
	if err != nil {
		return ""
	}
	return string(b)
}

// list reads a CPU list file; nil when it is absent, empty or damaged.
func (r root) list(name string) cpuList {
	l, err := parseCPUList(r.read(name))
	if err != nil {
		return nil
	}
	return l
}

// detect reads what Linux tells in files. Elsewhere, and where files are missing, the fields stay empty.
func (r root) detect() *Info {
	m := &Info{Quota: r.quota()}
	allowed := r.affinity()
	m.Allowed = len(allowed)
	m.Cores = r.physicalCores(r.performanceCores(allowed))
	m.Caches = r.caches(m.Cores)
	m.Model = r.model()
	m.Threads = threads(len(m.Cores), m.Quota)
	return m
}

// threads is the smaller of cores and whole CPUs of quota, at least 1.
func threads(cores int, quota float64) int {
	return max(1, int(min(float64(cores), quota)))
}

// affinity is the set of CPUs that the process may run on.
func (r root) affinity() cpuList {
	var allowed cpuList
	for line := range strings.Lines(r.read("proc/self/status")) {
		if text, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
			allowed, _ = parseCPUList(text)
		}
	}
	online := r.list("sys/devices/system/cpu/online")
	switch {
	case allowed == nil:
		return online
	case online == nil:
		return allowed
	}
	return allowed.and(online)
}

// performanceCores leaves out efficiency cores: those outside Intel's list of performance cores, or, on other hybrid
// machines, those of at most half the largest capacity. When nothing would be left, all stay.
func (r root) performanceCores(cpus cpuList) cpuList {
	if fast := cpus.and(r.list("sys/devices/cpu_core/cpus")); len(fast) > 0 {
		return fast
	}
	capacity := map[int]int{}
	biggest := 0
	for _, cpu := range cpus {
		n, err := strconv.Atoi(strings.TrimSpace(r.read(cpuFile(cpu, "cpu_capacity"))))
		if err != nil {
			return cpus
		}
		capacity[cpu] = n
		biggest = max(biggest, n)
	}
	return slices.DeleteFunc(slices.Clone(cpus), func(cpu int) bool { return capacity[cpu]*2 <= biggest && biggest > 0 })
}

// physicalCores keeps the first CPU of every set of SMT siblings.
func (r root) physicalCores(cpus cpuList) []int {
	seen := map[int]bool{}
	var cores []int
	for _, cpu := range cpus {
		if seen[cpu] {
			continue
		}
		siblings := r.list(cpuFile(cpu, "topology/core_cpus_list"))
		if siblings == nil {
			siblings = r.list(cpuFile(cpu, "topology/thread_siblings_list"))
		}
		for _, s := range siblings {
			seen[s] = true
		}
		cores = append(cores, cpu)
	}
	return cores
}

// maxCacheIndex bounds the cache folders looked at; real processors have four or five.
const maxCacheIndex = 16

// caches reads the data and unified caches of the first core.
func (r root) caches(cores []int) []Cache {
	if len(cores) == 0 {
		return nil
	}
	var caches []Cache
	for i := range maxCacheIndex {
		dir := fmt.Sprintf("cache/index%d/", i)
		level, err := strconv.Atoi(strings.TrimSpace(r.read(cpuFile(cores[0], dir+"level"))))
		bytes := parseSize(r.read(cpuFile(cores[0], dir+"size")))
		if err != nil || bytes == 0 || strings.TrimSpace(r.read(cpuFile(cores[0], dir+"type"))) == "Instruction" {
			continue
		}
		c := Cache{Level: level, Bytes: bytes}
		if shared := r.list(cpuFile(cores[0], dir+"shared_cpu_list")); shared != nil {
			c.Cores = cpuList(cores).and(shared)
			c.Shared = len(c.Cores)
			c.Groups = r.cacheGroups(cores, dir)
		}
		caches = append(caches, c)
	}
	slices.SortFunc(caches, func(a, b Cache) int { return a.Level - b.Level })
	return caches
}

// cacheGroups counts the different sets of sharers among the cores.
func (r root) cacheGroups(cores []int, dir string) int {
	groups := map[string]bool{}
	for _, cpu := range cores {
		groups[r.list(cpuFile(cpu, dir+"shared_cpu_list")).String()] = true
	}
	return len(groups)
}

// parseSize reads "48K", "32768K", "2M" or plain bytes; 0 for anything else.
func parseSize(text string) int {
	text = strings.TrimSpace(text)
	shift := 0
	if number, ok := strings.CutSuffix(text, "K"); ok {
		text, shift = number, 10
	} else if number, ok := strings.CutSuffix(text, "M"); ok {
		text, shift = number, 20
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > 1<<40>>shift {
		return 0
	}
	return n << shift
}

// model is the processor's name in /proc/cpuinfo, "" when it has none there.
func (r root) model() string {
	for line := range strings.Lines(r.read("proc/cpuinfo")) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func cpuFile(cpu int, name string) string {
	return fmt.Sprintf("sys/devices/system/cpu/cpu%d/%s", cpu, name)
}

// fillFromCPUID completes what files did not tell, from the processor itself and the Go runtime.
func (m *Info) fillFromCPUID() {
	c := &cpuid.CPU
	if m.Model == "" {
		if m.Model = c.BrandName; m.Model == "" {
			m.Model = "unknown processor"
		}
	}
	if m.Allowed == 0 {
		m.Allowed = runtime.NumCPU()
	}
	if m.Cores == nil {
		cores := runtime.NumCPU()
		if c.ThreadsPerCore > 1 {
			cores = (cores + c.ThreadsPerCore - 1) / c.ThreadsPerCore
		}
		m.Threads = threads(cores, m.Quota)
	}
	if m.Caches == nil {
		for i, bytes := range []int{c.Cache.L1D, c.Cache.L2, c.Cache.L3} {
			if bytes > 0 {
				m.Caches = append(m.Caches, Cache{Level: i + 1, Bytes: bytes})
			}
		}
	}
}
