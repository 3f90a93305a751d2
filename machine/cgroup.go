package machine

import (
	"math"
	"path"
	"strconv"
	"strings"
)

// quota returns the CPUs' worth of time that the process may use, the smallest limit on the way from its control group
// up to the root, in version 1 and version 2 hierarchies alike; +Inf when nothing limits it.
func (r root) quota() float64 {
	limit := math.Inf(1)
	for line := range strings.Lines(r.read("proc/self/cgroup")) {
		// hierarchy:controllers:path; version 2 has hierarchy 0 and no controllers
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		v2 := fields[0] == "0" && fields[1] == ""
		if !v2 && !hasField(fields[1], "cpu") {
			continue
		}
		for _, m := range r.cgroupMounts(v2) {
			limit = min(limit, r.quotaUpwards(m, fields[2], v2))
		}
	}
	return limit
}

// cgroupMount is where a hierarchy is visible and which of its groups that place shows.
type cgroupMount struct{ point, group string }

// cgroupMounts finds the mounts of the version 2 hierarchy or of the version 1 hierarchy with the cpu controller.
func (r root) cgroupMounts(v2 bool) []cgroupMount {
	var mounts []cgroupMount
	for line := range strings.Lines(r.read("proc/self/mountinfo")) {
		// id parent major:minor root point options [tags] - type source superoptions
		before, after, ok := strings.Cut(strings.TrimSpace(line), " - ")
		fields, kind := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 5 || len(kind) < 3 {
			continue
		}
		if v2 && kind[0] == "cgroup2" || !v2 && kind[0] == "cgroup" && hasField(kind[2], "cpu") {
			mounts = append(mounts, cgroupMount{point: fields[4], group: fields[3]})
		}
	}
	if mounts != nil {
		return mounts
	}
	if v2 {
		return []cgroupMount{{"/sys/fs/cgroup", "/"}, {"/sys/fs/cgroup/unified", "/"}}
	}
	return []cgroupMount{{"/sys/fs/cgroup/cpu", "/"}, {"/sys/fs/cgroup/cpu,cpuacct", "/"}}
}

// quotaUpwards takes the smallest limit from the group up to the mount point. A container may see its own group's path
// without the folders that lead to it; those levels have no files and count as unlimited.
func (r root) quotaUpwards(m cgroupMount, group string, v2 bool) float64 {
	rel, ok := strings.CutPrefix(path.Clean("/"+group), path.Clean(m.group))
	if !ok {
		rel = group
	}
	limit := math.Inf(1)
	for rel = path.Clean("/" + rel); ; rel = path.Dir(rel) {
		dir := path.Join(m.point, rel)
		if v2 {
			limit = min(limit, quotaV2(r.read(dir+"/cpu.max")))
		} else {
			limit = min(limit, quotaOf(r.read(dir+"/cpu.cfs_quota_us"), r.read(dir+"/cpu.cfs_period_us")))
		}
		if rel == "/" {
			return limit
		}
	}
}

// quotaV2 reads "max 100000" or "150000 100000".
func quotaV2(text string) float64 {
	fields := strings.Fields(text)
	if len(fields) != 2 {
		return math.Inf(1)
	}
	return quotaOf(fields[0], fields[1])
}

// quotaOf is quota/period in CPUs; "max", -1 and anything else that is not a positive number is no limit.
func quotaOf(quota, period string) float64 {
	q, err := strconv.ParseInt(strings.TrimSpace(quota), 10, 64)
	p, err2 := strconv.ParseInt(strings.TrimSpace(period), 10, 64)
	if err != nil || err2 != nil || q <= 0 || p <= 0 {
		return math.Inf(1)
	}
	return float64(q) / float64(p)
}

// hasField reports whether a comma-separated list names the field.
func hasField(list, field string) bool {
	for f := range strings.SplitSeq(list, ",") {
		if f == field {
			return true
		}
	}
	return false
}
