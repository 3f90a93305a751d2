package mapfile

import (
	"os"
	"unsafe"

	"golang.org/x/sys/windows"
)

func mapBytes(f *os.File, size int) ([]byte, bool, error) {
	section, err := windows.CreateFileMapping(windows.Handle(f.Fd()), nil, windows.PAGE_READONLY, 0, 0, nil)
	if err != nil {
		return nil, false, os.NewSyscallError("CreateFileMapping", err)
	}
	// The view keeps the section alive.
	defer windows.CloseHandle(section)
	addr, err := windows.MapViewOfFile(section, windows.FILE_MAP_READ, 0, 0, uintptr(size))
	if err != nil {
		return nil, false, os.NewSyscallError("MapViewOfFile", err)
	}
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), size), true, nil
}

func unmapBytes(data []byte) error {
	return os.NewSyscallError("UnmapViewOfFile", windows.UnmapViewOfFile(uintptr(unsafe.Pointer(unsafe.SliceData(data)))))
}

// releasePages does nothing: the system trims the working set of mapped files on its own.
func releasePages([]byte) {}
