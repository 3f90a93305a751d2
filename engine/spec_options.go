package engine

import (
	"fmt"

	"quickdraft/drafter"
	"quickdraft/model"
)

// SpecOptions configure speculation.
type SpecOptions struct {
	Drafter  drafter.Drafter // nil: no speculation; the engine closes it
	NMax     int             // guesses a round and request at most; default 16
	NMin     int             // fewer guesses than this are not verified
	PMin     float64         // stop drafting where the drafter believes less than this
	Fixed    int             // guesses in every round, whatever the controller thinks; 0: the controller decides
	Lenience float64         // in (0, 1]: accept with min(1, p/(lq)), lossy below 1; default 1
	Branch   int             // guesses for one position at most; 0: what the controller thinks best, 1 with Fixed
	Cores    []int           // CPUs that the draft's own pool keeps to, and with it the engine's thread; nil: no such pool

	// Open, when Drafter is nil, makes it once the target is loaded.
	Open func(target *model.Model) (drafter.Drafter, error)
}

// Check reports what is wrong with the options, defaults put in.
func (o SpecOptions) Check() error { return o.fill() }

// fill checks the options and puts the defaults in.
func (o *SpecOptions) fill() error {
	if o.NMax == 0 {
		o.NMax = 16
	}
	if o.Lenience == 0 {
		o.Lenience = 1
	}
	switch {
	case o.NMax < 1 || o.NMax > maxGuesses:
		return fmt.Errorf("speculation: at most %d guesses a round asked for, want 1 to %d", o.NMax, maxGuesses)
	case o.NMin < 0 || o.NMin > o.NMax:
		return fmt.Errorf("speculation: at least %d guesses a round asked for, want 0 to %d", o.NMin, o.NMax)
	case o.Fixed < 0 || o.Fixed > o.NMax:
		return fmt.Errorf("speculation: %d fixed guesses a round asked for, want 0 to %d", o.Fixed, o.NMax)
	case o.Fixed > 0 && o.Fixed < o.NMin:
		return fmt.Errorf("speculation: %d fixed guesses a round asked for, where fewer than %d are not verified", o.Fixed, o.NMin)
	case o.Branch < 0 || o.Branch > maxBranch:
		return fmt.Errorf("speculation: %d guesses for one position asked for, want 0 to %d", o.Branch, maxBranch)
	case !(o.PMin >= 0 && o.PMin <= 1):
		return fmt.Errorf("speculation: least probability %v, want 0 to 1", o.PMin)
	case !(o.Lenience > 0 && o.Lenience <= 1):
		return fmt.Errorf("speculation: lenience %v, want more than 0 and at most 1", o.Lenience)
	}
	return nil
}

// maxGuesses and maxBranch bound a tree.
const (
	maxGuesses = 64
	maxBranch  = 8
)

// MaxGuesses and MaxBranch are the largest values of SpecOptions.NMax and Branch.
const (
	MaxGuesses = maxGuesses
	MaxBranch  = maxBranch
)
