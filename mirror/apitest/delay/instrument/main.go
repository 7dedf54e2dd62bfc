// Command instrument writes copies of the Go files of a folder and of those below it, with a delay point before each
// statement, and overlay.json, by which go test -overlay takes them in place of the files:
//
//	instrument FOLDER OUT
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const imported = `; import delay "github.com/mirror-controller/mirror-controller/mirror/apitest/delay"`

// withoutDelays are the folders and files that are no part of the running controller, or, as plan, never wait and share
// nothing, and those that client-go calls with a lock of its own.
var withoutDelays = []string{"plan", "apitest", "internal/cache/share.go", "internal/queue/order.go"}

// locked are, by file, the functions without delays. client-go calls them with a lock of its own, or they take a lock
// for those: a delay there would hold up everybody.
var locked = map[string][]string{
	"controller.go":           {"RegisterMetrics"},
	"internal/cache/cache.go": {"New"},
	"internal/cache/watch.go": {"stripConfigMap", "stripNamespace"},
	"metrics.go":              {"registerGauges"},
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: instrument FOLDER OUT")
		os.Exit(2)
	}
	if err := instrument(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// instrument fails if what is left out is not there.
func instrument(folder, out string) error {
	for _, name := range slices.Concat(withoutDelays, slices.Sorted(maps.Keys(locked))) {
		if _, err := os.Stat(filepath.Join(folder, name)); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	overlay := map[string]string{}
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		name := filepath.ToSlash(strings.TrimPrefix(strings.TrimPrefix(path, folder), string(filepath.Separator)))
		isLeft := slices.Contains(withoutDelays, name)
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (isLeft || entry.Name() == "testdata"):
			return fs.SkipDir
		case isLeft, entry.IsDir(), filepath.Ext(name) != ".go", strings.HasSuffix(name, "_test.go"):
			return nil
		}
		src, err := os.ReadFile(path)
		if err == nil {
			src, err = withDelays(name, src)
		}
		if err != nil {
			return err
		}
		// It is no Go file to its name, or go would take the folder for a package.
		overlay[path] = filepath.Join(out, strings.ReplaceAll(name, "/", "-")+".delayed")
		return os.WriteFile(overlay[path], src, 0o644)
	})
	if err != nil {
		return err
	}
	config, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, "overlay.json"), config, 0o644)
}

// withDelays returns the source of the file of this name with delay points and with mutexes of package delay. The lines
// keep their numbers.
func withDelays(name string, src []byte) ([]byte, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, src, 0)
	if err != nil {
		return nil, err
	}
	inserts := map[int]string{} // by offset
	at := func(pos token.Pos) int { return files.Position(pos).Offset }
	missing := slices.Clone(locked[name])
	ast.Inspect(file, func(n ast.Node) bool {
		var statements []ast.Stmt
		switch n := n.(type) {
		case *ast.FuncDecl:
			if i := slices.Index(missing, n.Name.Name); i >= 0 {
				missing = slices.Delete(missing, i, i+1)
				return false
			}
		case *ast.CallExpr: // rate.Sometimes calls its function with a lock
			if f, ok := n.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "Do" {
				return false
			}
		case *ast.BlockStmt:
			statements = n.List
		case *ast.CaseClause:
			statements = n.Body
		case *ast.CommClause:
			statements = n.Body
		}
		for _, s := range statements {
			switch s.(type) {
			case *ast.CaseClause, *ast.CommClause:
				continue
			}
			inserts[at(s.Pos())] = fmt.Sprintf("delay.At(%q); ", fmt.Sprintf("%s:%d", name, files.Position(s.Pos()).Line))
		}
		return true
	})
	switch {
	case len(missing) > 0:
		return nil, fmt.Errorf("%s has no function %s", name, strings.Join(missing, ", "))
	case bytes.Contains(src, []byte("sync.RWMutex")):
		return nil, fmt.Errorf("%s uses sync.RWMutex, which package delay does not replace", name)
	case len(inserts) == 0:
		return src, nil
	}
	inserts[at(file.Name.End())] = imported
	out := src
	for _, offset := range slices.Backward(slices.Sorted(maps.Keys(inserts))) {
		out = slices.Insert(slices.Clip(out), offset, []byte(inserts[offset])...)
	}
	out = bytes.ReplaceAll(out, []byte("sync.Mutex"), []byte("delay.Mutex"))
	if bytes.Contains(src, []byte("\t\"sync\"\n")) {
		out = append(out, "\nvar _ sync.Locker = &delay.Mutex{}\n"...)
	}
	return out, nil
}
