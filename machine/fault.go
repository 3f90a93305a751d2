package machine

import "runtime"

// Fault is the panic of a goroutine that read memory which is mapped but not there, after debug.SetPanicOnFault. Without it
// such a read ends the process.
type Fault interface {
	runtime.Error
	Addr() uintptr
}

// ChangedError says that a mapped file was cut short, or its file system went away, while it was read.
type ChangedError struct{ File string }

func (e *ChangedError) Error() string {
	return e.File + ": the file was changed while in use: a part of it is gone; open the model again"
}

// CatchFault is for functions that read mapped files, which defer it. A panic that is a Fault at an address for which explain
// has an error becomes that error; every other panic goes on.
func CatchFault(err *error, explain func(addr uintptr) error) {
	x := recover()
	if x == nil {
		return
	}
	if fault, ok := x.(Fault); ok {
		if e := explain(fault.Addr()); e != nil {
			*err = e
			return
		}
	}
	panic(x)
}
