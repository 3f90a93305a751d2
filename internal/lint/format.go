package lint

import (
	"bytes"
	"go/format"
	"path"
)

// Formatted finds Go files that gofmt would change.
func Formatted(files []File) []Finding {
	var found []Finding
	for _, f := range files {
		if path.Ext(f.Path) != ".go" {
			continue
		}
		if want, err := format.Source(f.Data); err != nil || !bytes.Equal(want, f.Data) {
			found = append(found, Finding{File: f.Path, Msg: "not as gofmt writes it"})
		}
	}
	return found
}
