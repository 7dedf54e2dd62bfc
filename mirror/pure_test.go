package mirror

import (
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"
)

// pureFiles hold decisions, data and words: what is in them can be tested and fuzzed without a cluster.
var pureFiles = []string{
	"api.go", "options.go", "rules.go", "source.go", "metadata.go", "checksum.go", "copy.go", "plan.go", "backlog.go", "report.go",
}

func TestPureFilesImportNoClient(t *testing.T) {
	const allowed = "k8s.io/client-go/tools/cache" // for cache.ObjectName
	for _, name := range pureFiles {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range file.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(path+"/", "k8s.io/client-go/") && path != allowed {
				t.Errorf("%s: got an import of %s, want no client-go but %s", name, path, allowed)
			}
		}
	}
}
