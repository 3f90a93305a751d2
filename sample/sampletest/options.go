// Package sampletest has sampling options for tests of distributions over 64 tokens.
package sampletest

import "quickdraft/sample"

// Mask is the name of the options that a test adds a mask to.
const Mask = "mask"

// Options are the steps of the pipeline, one after the other and together.
var Options = map[string]func(*sample.Params){
	"temperature 1":   func(*sample.Params) {},
	"temperature 0.7": func(p *sample.Params) { p.Temperature = 0.7 },
	"top-k":           func(p *sample.Params) { p.TopK = 7 },
	"top-p":           func(p *sample.Params) { p.TopP = 0.8 },
	"min-p":           func(p *sample.Params) { p.MinP = 0.1 },
	"penalties":       func(p *sample.Params) { p.RepeatPenalty, p.PresencePenalty, p.FrequencyPenalty = 1.5, 0.7, 0.4 },
	"bias":            func(p *sample.Params) { p.LogitBias = map[int32]float64{3: -100, 11: 2, 20: 1} },
	Mask:              func(p *sample.Params) { p.Temperature = 1.2 },
	"all": func(p *sample.Params) {
		p.Temperature, p.TopK, p.TopP, p.MinP, p.RepeatPenalty = 1.3, 30, 0.95, 0.01, 1.2
		p.LogitBias = map[int32]float64{3: -100, 11: 2}
	},
}
