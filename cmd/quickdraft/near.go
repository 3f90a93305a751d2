package main

import (
	"os"

	"quickdraft/machine"
)

// draftCores returns the CPUs for a draft's threads where the last level of cache is split between groups of cores: one
// group, if the draft fits its cache. Nil leaves the draft to the target's threads.
func draftCores(file string) []int {
	info, err := os.Stat(file)
	near := machine.Host().Near()
	if err != nil || len(near) == 0 || info.Size() > int64(machine.CacheBytes(3)) {
		return nil
	}
	return near
}
