// Command instrument writes copies of the Go files of a folder with a delay point before each statement, and overlay.json, by
// which go test -overlay takes them in place of the files:
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
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const imported = `; import delay "github.com/mirror-controller/mirror-controller/mirror/internal/delay"`

// Without delays stay functions that client-go calls with a lock of its own, and that take a lock for those: nobody else could go
// on meanwhile.
var (
	lockedFiles     = []string{"share.go"}
	lockedFunctions = []string{"stripConfigMap", "stripNamespace", "newCaches", "RegisterMetrics"}
	lockedTypes     = []string{"order"}
)

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
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	overlay := map[string]string{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || slices.Contains(lockedFiles, filepath.Base(file)) {
			continue
		}
		src, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if src, err = withDelays(filepath.Base(file), src); err != nil {
			return err
		}
		overlay[file] = filepath.Join(out, filepath.Base(file)+".delayed") // no Go file, or go would take the folder for a package
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

// withDelays returns the source of a file with delay points and with mutexes of package delay. The lines stay what they are.
func withDelays(name string, src []byte) ([]byte, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, src, 0)
	if err != nil {
		return nil, err
	}
	inserts := map[int]string{} // by offset
	at := func(pos token.Pos) int { return files.Position(pos).Offset }
	points := false
	visit := func(n ast.Node) bool {
		var statements []ast.Stmt
		switch n := n.(type) {
		case *ast.FuncDecl:
			if isLocked(n) {
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
			inserts[at(s.Pos())] = fmt.Sprintf("delay.At(%q); ", fmt.Sprintf("%s:%d", name, files.Position(s.Pos()).Line))
		}
		return true
	}
	ast.Inspect(file, visit)
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
	changed := out.Bytes()
	if name != "order.go" { // its mutex is taken under that of a queue
		changed = bytes.ReplaceAll(changed, []byte("sync.Mutex"), []byte("delay.Mutex"))
	}
	if bytes.Contains(src, []byte("\t\"sync\"\n")) {
		changed = append(changed, "\nvar _ sync.Locker = &delay.Mutex{}\n"...)
	}
	return changed, nil
}

func isLocked(f *ast.FuncDecl) bool {
	if slices.Contains(lockedFunctions, f.Name.Name) {
		return true
	}
	if f.Recv == nil {
		return false
	}
	of := f.Recv.List[0].Type
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	name, ok := of.(*ast.Ident)
	return ok && slices.Contains(lockedTypes, name.Name)
}
