package cpu

import (
	"syscall"
	"unsafe"
)

// Arguments of arch_prctl (asm/prctl.h) and the components of the tile state (bits of XCR0).
const (
	archGetSupported  = 0x1021
	archRequestPermit = 0x1023
	tileConfig        = 17
	tileData          = 18
)

// requestTiles asks Linux, which allocates the 8 KiB of tile state at the first use, for the permission to use it. All
// threads of the process have it from then on. False means that the kernel does not know or not save that state, or refuses,
// as it does when a thread's signal stack could not hold it.
func requestTiles() bool {
	var supported uint64
	_, _, errno := syscall.RawSyscall(syscall.SYS_ARCH_PRCTL, archGetSupported, uintptr(unsafe.Pointer(&supported)), 0)
	if errno != 0 || supported>>tileConfig&1 == 0 || supported>>tileData&1 == 0 {
		return false
	}
	_, _, errno = syscall.RawSyscall(syscall.SYS_ARCH_PRCTL, archRequestPermit, tileData, 0)
	return errno == 0
}
