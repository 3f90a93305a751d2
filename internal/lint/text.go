package lint

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
)

// foreign are texts that do not belong into the tree. The patterns are split so that this file does not match itself.
var foreign = []struct {
	re  *regexp.Regexp
	why string
}{
	{regexp.MustCompile(`\bpy` + `pi\.org|python` + `hosted\.org|\bregistry\.npm` + `js\.org|npm` + `mirror|\bproxy\.golang` + `\.org|\bcrates\.` + `io`),
		"names the host of a package registry"},
	{regexp.MustCompile(`(?:^|[^\w./-])/(?:wo` + `rk/(?:main|shared|models|dev|old)|ro` + `ot/|ho` + `me/\w+|Us` + `ers/\w+)`), "names a path of one machine"},
}

// Foreign finds hosts of package registries and paths of one machine in any text file. Checksums of modules are not text.
func Foreign(files []File) []Finding {
	var found []Finding
	for _, f := range files {
		if strings.HasSuffix(f.Path, "go.sum") || bytes.IndexByte(f.Data, 0) >= 0 {
			continue
		}
		for _, rule := range foreign {
			for _, at := range rule.re.FindAllIndex(f.Data, -1) {
				line := bytes.Count(f.Data[:at[0]], []byte("\n")) + 1
				found = append(found, Finding{File: f.Path, Line: line, Msg: fmt.Sprintf("%s: %q", rule.why, bytes.TrimSpace(f.Data[at[0]:at[1]]))})
			}
		}
	}
	return found
}
