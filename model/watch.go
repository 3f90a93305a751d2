package model

import "quickdraft/tensor"

// Watch has w look on at the passes from now on; nil ends it. It must not be called during a pass.
func (m *Model) Watch(w *tensor.Watch) { m.cpu.SetWatch(w) }

// Mats returns the matrices in the order in which they were loaded. The parts of one tensor (experts, or q, k and v)
// have its name and follow one another. The slice is shared: do not change it.
func (m *Model) Mats() []*tensor.Mat { return m.mats }
