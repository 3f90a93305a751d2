package main

import "slices"

// median returns the middle of the values, 0 for none.
func median(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(x))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// spread returns (max-min)/median.
func spread(x []float64) float64 {
	if len(x) == 0 || median(x) == 0 {
		return 0
	}
	return (slices.Max(x) - slices.Min(x)) / median(x)
}
