package machine

import (
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// tree writes files below a new folder and returns it as a root.
func tree(t *testing.T, files map[string]string) root {
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text+"\n"), 0o644))
	}
	return root(dir)
}

// cpus describes n CPUs in order, smt of which share a core, all of which may be used.
func cpus(n, smt int) map[string]string {
	files := map[string]string{
		"proc/self/status":              "Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t" + span(0, n),
		"sys/devices/system/cpu/online": span(0, n),
	}
	for cpu := range n {
		core := cpu / smt * smt
		files[cpuFile(cpu, "topology/thread_siblings_list")] = span(core, core+smt)
	}
	return files
}

func span(lo, hi int) string {
	if hi-lo == 1 {
		return fmt.Sprint(lo)
	}
	return fmt.Sprintf("%d-%d", lo, hi-1)
}

func with(files map[string]string, more ...string) map[string]string {
	files = maps.Clone(files)
	for i := 0; i < len(more); i += 2 {
		files[more[i]] = more[i+1]
	}
	return files
}

const (
	v2Mount = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate"
	v1Mount = "33 24 0:28 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct"
)

func TestThreads(t *testing.T) {
	hybrid := func() map[string]string { // 8 performance cores of two threads, 12 efficiency cores
		files := cpus(28, 1)
		for cpu := range 16 {
			files[cpuFile(cpu, "topology/core_cpus_list")] = span(cpu/2*2, cpu/2*2+2)
		}
		return with(files, "sys/devices/cpu_core/cpus", "0-15", "sys/devices/cpu_atom/cpus", "16-27")
	}
	bigLittle := func() map[string]string {
		files := cpus(8, 1)
		for cpu := range 8 {
			files[cpuFile(cpu, "cpu_capacity")] = map[bool]string{true: "446", false: "1024"}[cpu < 4]
		}
		return files
	}
	for _, c := range []struct {
		name    string
		files   map[string]string
		threads int
		quota   float64
	}{
		{"plain", cpus(8, 1), 8, math.Inf(1)},
		{"SMT", cpus(16, 2), 8, math.Inf(1)},
		{"SMT of four", cpus(16, 4), 4, math.Inf(1)},
		{"affinity to 4", with(cpus(64, 1), "proc/self/status", "Cpus_allowed_list:\t0-1,8,63"), 4, math.Inf(1)},
		{"affinity to two threads of one core", with(cpus(8, 2), "proc/self/status", "Cpus_allowed_list:\t2-3"), 1, math.Inf(1)},
		{"affinity names CPUs that are offline",
			with(cpus(4, 1), "proc/self/status", "Cpus_allowed_list:\t0-127"), 4, math.Inf(1)},
		{"8 P and 12 E cores", hybrid(), 8, math.Inf(1)},
		{"affinity to E cores alone", with(hybrid(), "proc/self/status", "Cpus_allowed_list:\t20-23"), 4, math.Inf(1)},
		{"big.LITTLE", bigLittle(), 4, math.Inf(1)},
		{"cgroup v2 quota 4 on 64 cores", with(cpus(64, 1), "proc/self/cgroup", "0::/", "proc/self/mountinfo", v2Mount,
			"sys/fs/cgroup/cpu.max", "400000 100000"), 4, 4},
		{"cgroup v2 without a limit", with(cpus(8, 1), "proc/self/cgroup", "0::/a", "proc/self/mountinfo", v2Mount,
			"sys/fs/cgroup/a/cpu.max", "max 100000"), 8, math.Inf(1)},
		{"cgroup v2, the parent limits", with(cpus(8, 1), "proc/self/cgroup", "0::/a/b", "proc/self/mountinfo", v2Mount,
			"sys/fs/cgroup/a/b/cpu.max", "600000 100000", "sys/fs/cgroup/a/cpu.max", "250000 100000"), 2, 2.5},
		{"cgroup v2, half a CPU", with(cpus(8, 1), "proc/self/cgroup", "0::/", "proc/self/mountinfo", v2Mount,
			"sys/fs/cgroup/cpu.max", "50000 100000"), 1, 0.5},
		{"cgroup v2, no mountinfo", with(cpus(8, 1), "proc/self/cgroup", "0::/x", "sys/fs/cgroup/cpu.max", "300000 100000"), 3, 3},
		{"cgroup v1", with(cpus(8, 1), "proc/self/cgroup", "5:cpu,cpuacct:/job\n4:memory:/job", "proc/self/mountinfo", v1Mount,
			"sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "200000",
			"sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000"), 2, 2},
		{"cgroup v1 without a limit", with(cpus(8, 1), "proc/self/cgroup", "5:cpu,cpuacct:/job", "proc/self/mountinfo", v1Mount,
			"sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "-1",
			"sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000"), 8, math.Inf(1)},
		{"cgroup v1 in a container that sees its own group as the root",
			with(cpus(8, 1), "proc/self/cgroup", "5:cpu:/docker/abc", "proc/self/mountinfo",
				"33 24 0:28 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu",
				"sys/fs/cgroup/cpu/cpu.cfs_quota_us", "300000", "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000"), 3, 3},
		{"cgroup v1, cpuset alone is not a quota", with(cpus(8, 1), "proc/self/cgroup", "3:cpuset:/", "proc/self/mountinfo", v1Mount,
			"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "100000",
			"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000"), 8, math.Inf(1)},
		{"quota above the cores", with(cpus(4, 1), "proc/self/cgroup", "0::/", "sys/fs/cgroup/cpu.max", "800000 100000"), 4, 8},
		{"quota of nonsense", with(cpus(4, 1), "proc/self/cgroup", "0::/\n::\nx", "sys/fs/cgroup/cpu.max", "-5 0"), 4, math.Inf(1)},
		{"no topology", map[string]string{"proc/self/status": "Cpus_allowed_list:\t0-2"}, 3, math.Inf(1)},
		{"nothing at all", nil, 1, math.Inf(1)},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := tree(t, c.files).detect()
			require.Equal(t, c.threads, m.Threads)
			require.Equal(t, c.quota, m.Quota)
			require.Contains(t, m.String(), fmt.Sprintf("%d of %d CPUs", c.threads, m.Allowed))
		})
	}
}

func TestCaches(t *testing.T) {
	files := cpus(8, 2)
	for cpu := range 8 {
		core, group := span(cpu/2*2, cpu/2*2+2), span(cpu/4*4, cpu/4*4+4)
		for i, c := range [][4]string{
			{"1", "Data", "32K", core}, {"1", "Instruction", "32K", core}, {"2", "Unified", "1024K", core}, {"3", "Unified", "32M", group},
		} {
			for k, name := range []string{"level", "type", "size", "shared_cpu_list"} {
				files[cpuFile(cpu, fmt.Sprintf("cache/index%d/%s", i, name))] = c[k]
			}
		}
	}
	want := []Cache{{1, 32 << 10, 1, []int{0}, 4}, {2, 1 << 20, 1, []int{0}, 4}, {3, 32 << 20, 2, []int{0, 2}, 2}}
	m := tree(t, with(files, "proc/cpuinfo", "processor\t: 0\nmodel name\t: Some CPU\nmodel name\t: other")).detect()
	require.Equal(t, want, m.Caches)
	require.Equal(t, "Some CPU", m.Model)
	require.Equal(t, []int{0, 2, 4, 6}, m.Cores)
	require.Contains(t, m.String(), "L3 32 MiB shared by 2")
	require.Equal(t, []int{0, 2}, m.Near())
	oneGroup := with(files)
	for cpu := range 8 {
		oneGroup[cpuFile(cpu, "cache/index3/shared_cpu_list")] = "0-7"
	}
	require.Nil(t, tree(t, oneGroup).detect().Near(), "all cores share the cache")
	for cpu := range 8 {
		delete(oneGroup, cpuFile(cpu, "cache/index3/shared_cpu_list"))
	}
	require.Nil(t, tree(t, oneGroup).detect().Near(), "nobody knows who shares it")
	require.Nil(t, tree(t, cpus(8, 2)).detect().Near(), "no cache is visible")

	for _, size := range []string{"", "x", "-1K", "99999999999999999999K", "9999999999999M"} {
		broken := with(files)
		for cpu := range 8 {
			broken[cpuFile(cpu, "cache/index3/size")] = size
		}
		require.Equal(t, want[:2], tree(t, broken).detect().Caches, "size %q", size)
	}
}

func TestCPUList(t *testing.T) {
	for text, want := range map[string]cpuList{
		"":              nil,
		"\n":            nil,
		"0":             {0},
		"3,1,2,2-4":     {1, 2, 3, 4},
		" 0-1,8,10-11 ": {0, 1, 8, 10, 11},
	} {
		got, err := parseCPUList(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"a", "1-", "-1", "3-2", "0-99999999999", "1;2", "16384"} {
		_, err := parseCPUList(text)
		require.ErrorContains(t, err, text)
	}
	rapid.Check(t, func(t *rapid.T) {
		l := cpuList(rapid.SliceOfDistinct(rapid.IntRange(0, maxCPU-1), rapid.ID).Draw(t, "cpus"))
		var parts []string
		for _, cpu := range l {
			parts = append(parts, fmt.Sprint(cpu))
		}
		sorted, err := parseCPUList(strings.Join(parts, ","))
		require.NoError(t, err)
		require.Len(t, sorted, len(l))
		again, err := parseCPUList(sorted.String())
		require.NoError(t, err)
		require.Equal(t, sorted, again)
	})
}

func TestHost(t *testing.T) {
	m := Host()
	require.NotEmpty(t, m.Model)
	require.Positive(t, m.Allowed)
	require.GreaterOrEqual(t, Threads(), 1)
	require.LessOrEqual(t, Threads(), max(1, m.Allowed))
	require.Equal(t, m.String(), Describe())
	require.Zero(t, CacheBytes(9))
	for _, c := range m.Caches {
		require.Positive(t, CacheBytes(c.Level))
	}
	t.Log(Describe(), "on", runtime.NumCPU())
}

func TestPages(t *testing.T) {
	for _, n := range []int{1, 4095, 4096, 5 << 20} {
		p, err := MapPages(n, true)
		require.NoError(t, err)
		require.Len(t, p.Data, n)
		require.Zero(t, p.Data[0]|p.Data[n-1])
		p.Data[0], p.Data[n-1] = 1, 2
		p.Free()
		p.Free()
		require.Nil(t, p.Data)
	}
	p, err := MapPages(0, true)
	require.NoError(t, err)
	require.Empty(t, p.Data)
	if runtime.GOOS == "linux" {
		_, err = MapPages(1<<60, false)
		require.ErrorContains(t, err, fmt.Sprint(1<<60))
	}
}

func TestCPUs(t *testing.T) {
	for _, c := range []struct {
		allowed int
		quota   float64
		want    int
	}{{8, math.Inf(1), 8}, {8, 2.5, 3}, {8, 0.1, 1}, {2, 64, 2}, {0, math.Inf(1), 1}} {
		require.Equal(t, c.want, (&Info{Allowed: c.allowed, Quota: c.quota}).CPUs())
	}
	require.GreaterOrEqual(t, CPUs(), Threads())
}
