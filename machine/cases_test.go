package machine

import (
	"testing"

	"quickdraft/internal/golden"
)

// cases are what has gone wrong for users of other engines with their computers, and the tests of each.
var cases = map[string][]string{
	"a quota of 4 on 64 cores, affinity to 4, performance and efficiency cores, SMT": {"machine/TestThreads", "machine/TestCPUs"},
	"spinning without bounds": {"tensor/TestSpinIsBounded", "tensor/TestPoolParks"},
	"no AVX2, or AVX-512 whose state is not saved": {
		"asm/cpu/TestLevelsOfFeatures", "asm/cpu/TestDetectAgreesWithTheSystem", "asm/cpu/TestMissing", "cmd/quickdraft/TestOldProcessors",
	},
	"repacking doubles memory, every start is slow": {
		"cmd/quickdraft/TestResidentMemoryAndSecondStart", "model/TestTilesAreMappedTheSecondTime",
	},
	"an L3 that is not visible or split between groups of cores": {
		"machine/TestCaches", "tensor/TestPoolKeepsToItsCores", "cmd/quickdraft/TestADraftThatFitsItsCacheKeepsToOneGroupOfCores",
		"cmd/quickdraft/TestADraftInOneGroupOfCoresGivesTheSameAnswer",
	},
}

func TestEveryCaseHasATest(t *testing.T) { golden.Covered(t, cases) }
