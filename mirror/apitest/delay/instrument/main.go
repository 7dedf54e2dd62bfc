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

// withoutDelays are the folders that are no part of the running controller, or, as plan, never wait and share nothing.
// instrument fails if one of them, or a file or function of locked, is not there.
var withoutDelays = []string{"plan", "apitest"}

// locked are, by file, the functions without delays; none means the whole file. client-go calls them with a
// lock of its own, or they take a lock for those: a delay there would hold up everybody.
var locked = map[string][]string{
	"controller.go":           {"RegisterMetrics"},
	"internal/cache/cache.go": {"New"},
	"internal/cache/share.go": nil,
	"internal/cache/watch.go": {"stripConfigMap", "stripNamespace"},
	"internal/queue/order.go": nil,
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

func instrument(folder, out string) error {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return err
	}
	if out, err = filepath.Abs(out); err != nil {
		return err
	}
	if err := isThere(folder); err != nil {
		return err
	}
	files, err := instrumented(folder)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	overlay := map[string]string{}
	for _, name := range files {
		file := filepath.Join(folder, name)
		src, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if src, err = withDelays(name, src); err != nil {
			return err
		}
		// It is no Go file to its name, or go would take the folder for a package.
		overlay[file] = filepath.Join(out, strings.ReplaceAll(name, "/", "-")+".delayed")
		if err := os.WriteFile(overlay[file], src, 0o644); err != nil {
			return err
		}
	}
	config, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, "overlay.json"), config, 0o644)
}

// isThere returns an error if a folder or a file that is left out is not below the folder.
func isThere(folder string) error {
	for _, name := range slices.Concat(withoutDelays, slices.Sorted(maps.Keys(locked))) {
		if _, err := os.Stat(filepath.Join(folder, filepath.FromSlash(name))); err != nil {
			return err
		}
	}
	return nil
}

// instrumented returns the files that get delay points, by their paths below the folder, with slashes.
func instrumented(folder string) (names []string, err error) {
	err = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		functions, isLocked := locked[name]
		switch {
		case entry.IsDir() && (slices.Contains(withoutDelays, name) || entry.Name() == "testdata"):
			return fs.SkipDir
		case entry.IsDir(), filepath.Ext(name) != ".go", strings.HasSuffix(name, "_test.go"),
			isLocked && functions == nil:
			return nil
		}
		names = append(names, name)
		return nil
	})
	return names, err
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
	points, missing := false, slices.Clone(locked[name])
	visit := func(n ast.Node) bool {
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
			points = true
			point := fmt.Sprintf("%s:%d", name, files.Position(s.Pos()).Line)
			inserts[at(s.Pos())] = fmt.Sprintf("delay.At(%q); ", point)
		}
		return true
	}
	ast.Inspect(file, visit)
	if len(missing) > 0 {
		return nil, fmt.Errorf("%s has no function %s", name, strings.Join(missing, ", "))
	}
	if bytes.Contains(src, []byte("sync.RWMutex")) {
		return nil, fmt.Errorf("%s uses sync.RWMutex, which package delay does not replace", name)
	}
	if !points {
		return src, nil
	}
	inserts[at(file.Name.End())] = imported
	var out bytes.Buffer
	last := 0
	for _, offset := range slices.Sorted(maps.Keys(inserts)) {
		out.Write(src[last:offset])
		out.WriteString(inserts[offset])
		last = offset
	}
	out.Write(src[last:])
	changed := bytes.ReplaceAll(out.Bytes(), []byte("sync.Mutex"), []byte("delay.Mutex"))
	if bytes.Contains(src, []byte("\t\"sync\"\n")) {
		changed = append(changed, "\nvar _ sync.Locker = &delay.Mutex{}\n"...)
	}
	return changed, nil
}
