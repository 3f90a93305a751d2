package tensor

import "fmt"

// CPU runs the operations of a forward pass on a Pool. Operations write dst fully, rows are tokens, and none allocates
// once its buffers have grown to the largest call (Attend's scores and Rope's tables grow; the rest is sized by NewCPU).
// A CPU is for one goroutine; several may not share a Pool at the same time. Shapes that do not fit panic.
type CPU struct {
	pool      *Pool
	maxTokens int
	kernels   *kernelSet
	lanes     []laneSums // of each worker

	mm     matmulTask
	embed  embedTask
	rows   rowsTask
	flat   flatTask
	attend attendTask
	tables ropeTables
	finite finiteTask
	watch  *Watch // nil: nobody looks on
}

// NewCPU returns the operations for passes of at most maxTokens tokens and matrices of at most maxCols columns.
func NewCPU(pool *Pool, maxTokens, maxCols int) *CPU {
	if maxTokens < 1 || maxCols < 1 {
		panic(fmt.Sprintf("tensor: NewCPU(maxTokens=%d, maxCols=%d), both must be positive", maxTokens, maxCols))
	}
	return newCPU(pool, maxTokens, maxCols, pickKernels())
}

// newCPU is NewCPU with the kernels of a certain level.
func newCPU(pool *Pool, maxTokens, maxCols int, kernels *kernelSet) *CPU {
	c := &CPU{pool: pool, maxTokens: maxTokens, kernels: kernels, lanes: make([]laneSums, pool.N())}
	c.mm.init(pool, maxTokens, maxCols, kernels)
	c.attend.init(pool, kernels)
	c.finite.kernels, c.finite.tops = kernels, make([]topsOfWorker, pool.N())
	return c
}

// Pool is the pool the operations run on.
func (c *CPU) Pool() *Pool { return c.pool }

// MaxTokens is the largest number of rows that a matrix multiplication takes.
func (c *CPU) MaxTokens() int { return c.maxTokens }

// serialElements is the amount of simple work (elements read) under which waking the other workers costs more than it
// saves: a barrier is about a microsecond, an element a fraction of a nanosecond.
const serialElements = 4096

// run has the pool do the task, or the calling goroutine alone when there is little to do.
func (c *CPU) run(task Task, elements int) {
	if elements < serialElements {
		task.Do(0, 1)
		return
	}
	c.pool.Run(task)
}

// runAny is run for a task that deals out its work by itself.
func (c *CPU) runAny(task Task, elements int) {
	if elements < serialElements {
		task.Do(0, 1)
		return
	}
	c.pool.RunAny(task)
}

func mustSame(op string, a, b F32) {
	if a.Rows != b.Rows || a.Cols != b.Cols {
		panic(fmt.Sprintf("tensor: %s of (%d, %d) and (%d, %d)", op, a.Rows, a.Cols, b.Rows, b.Cols))
	}
}
