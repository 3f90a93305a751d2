package bench

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// Spread is how far measurements of one thing reach, as a share of their median; NaN where there are too few to say.
type Spread float64

// SpreadOf returns how far the middle of the values reaches, (90th percentile - 10th percentile) / median; with fewer than
// ten values that is the whole range, with fewer than two nothing is known.
func SpreadOf(x []float64) Spread {
	m := Median(x)
	if len(x) < 2 || m == 0 {
		return Spread(math.NaN())
	}
	s := slices.Sorted(slices.Values(x))
	skip := len(s) / 10
	return Spread((s[len(s)-1-skip] - s[skip]) / m)
}

// String is in percent, or n/a.
func (s Spread) String() string {
	if math.IsNaN(float64(s)) {
		return "n/a"
	}
	return fmt.Sprintf("%.0f %%", 100*float64(s))
}

// MarshalJSON writes null for what is not known.
func (s Spread) MarshalJSON() ([]byte, error) {
	if math.IsNaN(float64(s)) {
		return []byte("null"), nil
	}
	return strconv.AppendFloat(nil, float64(s), 'g', -1, 64), nil
}

// Figure is a number; 0 where it is not known, as what follows from the peak of products where no kernel measures it.
type Figure float64

// text is the number as format says, or n/a.
func (f Figure) text(format string) string {
	if f == 0 {
		return "n/a"
	}
	return fmt.Sprintf(format, float64(f))
}

// MarshalJSON writes null for what is not known.
func (f Figure) MarshalJSON() ([]byte, error) {
	if f == 0 {
		return []byte("null"), nil
	}
	return json.Marshal(float64(f))
}

// Median returns the middle of the values, 0 for none.
func Median(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(x))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}
