package model

import (
	"testing"

	"quickdraft/internal/golden"
)

// cases are what has gone wrong for users of other engines with numbers, and the tests of each.
var cases = map[string][]string{
	"int8 products at the extremes: all 127, all -128, 255 with 127": {
		"quant/TestCandidatesHaveTheBitsOfTheReference", "quant/TestDotRefIsTheSpecification", "model/TestLogitsOfEveryLevel",
	},
	"a level without a kernel for a format": {"quant/TestMissingKernels", "quant/TestPickTakesTheBestActiveLevel", "quant/TestEveryCellIsServedByAssembly"},
	"a scale that is NaN or infinite":       {"quant/TestCheckScales", "model/TestMalformedGGUF"},
	"logits that are NaN or infinite end their request, naming the layer": {
		"model/TestNaNNamesTheLayer", "engine/TestNotANumberEndsItsRequestOnly", "engine/TestNotANumberInTheOnlyRow", "engine/TestInfinityInTheModelNamesTheLayer",
	},
	"NaN from a draft is no guess": {
		"engine/TestAGuessThatIsNoNumber", "engine/TestNaNGuessesEndNoSearch", "drafter/TestModelWithInfiniteLogitsMakesNoGuess", "drafter/TestNaNStopsOnlyTheLanesItIsIn",
	},
	"8-bit keys and values: taken back inside a block and written again": {"engine/TestEightBitCacheIsLawfulToo", "kvcache/TestAgainstModel"},
}

func TestEveryCaseHasATest(t *testing.T) { golden.Covered(t, cases) }
