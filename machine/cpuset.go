package machine

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxCPU bounds the CPU numbers that are believed; Linux itself ends at 8192.
const maxCPU = 1 << 14

// cpuList is a set of CPU numbers in ascending order.
type cpuList []int

// parseCPUList reads the kernel's form, "0-3,8,10-11". Empty text is the empty set.
func parseCPUList(text string) (cpuList, error) {
	var list cpuList
	for part := range strings.SplitSeq(strings.TrimSpace(text), ",") {
		if part == "" {
			continue
		}
		first, last, isRange := strings.Cut(part, "-")
		lo, err := strconv.Atoi(first)
		hi := lo
		if err == nil && isRange {
			hi, err = strconv.Atoi(last)
		}
		if err != nil || lo < 0 || hi < lo || hi >= maxCPU {
			return nil, fmt.Errorf("CPU list %q: %q is not a number or range below %d", text, part, maxCPU)
		}
		for cpu := lo; cpu <= hi; cpu++ {
			list = append(list, cpu)
		}
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

// String is the kernel's form.
func (l cpuList) String() string {
	var b strings.Builder
	for i := 0; i < len(l); {
		j := i
		for j+1 < len(l) && l[j+1] == l[j]+1 {
			j++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		if b.WriteString(strconv.Itoa(l[i])); j > i {
			fmt.Fprintf(&b, "-%d", l[j])
		}
		i = j + 1
	}
	return b.String()
}

func (l cpuList) has(cpu int) bool {
	_, ok := slices.BinarySearch(l, cpu)
	return ok
}

// and returns the CPUs of l that are in m as well.
func (l cpuList) and(m cpuList) cpuList {
	return slices.DeleteFunc(slices.Clone(l), func(cpu int) bool { return !m.has(cpu) })
}
