package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const imported = `; import mutants "github.com/mirror-controller/mirror-controller/mirror/apitest/mutants"`

// mutant is one mutation of the code.
type mutant struct {
	// place is the file and the function, such as "mirror/plan/marks.go MarksOf".
	place string
	// change is the text in the source and what becomes of it. With the place it
	// names the mutant, until somebody edits this very text.
	change string
}

func (m mutant) String() string { return m.place + ": " + m.change }

func (m mutant) file() string { return fileOf(m.place) }

// listed is what go list prints of a package.
type listed struct {
	ImportPath, Dir string
	GoFiles, Deps   []string
	Export          string // the file with what the compiler exports
	DepOnly         bool   // it is only imported by what is asked for
	Module          *struct{ Dir string }
}

// instrument writes copies of the Go files of packages into the folder out, with
// each mutation behind its number, and overlay.json, by which go test -overlay
// takes them in place of the files. Packages that are only imported stay as they
// are. It returns the mutants, by number.
func instrument(all []listed, out string) ([]mutant, error) {
	exports := map[string]string{}
	for _, p := range all {
		exports[p.ImportPath] = p.Export
	}
	files := token.NewFileSet()
	open := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	compiled := importer.ForCompiler(files, "gc", open)
	mutants := []mutant{{}} // 0 is none
	overlay := map[string]string{}
	for _, p := range all {
		if p.DepOnly {
			continue
		}
		i := &instrumenter{files: files, mutants: mutants, named: map[string]int{}}
		sources, err := i.run(p, compiled)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.ImportPath, err)
		}
		mutants = i.mutants
		for path, src := range sources {
			name := fmt.Sprintf("%d-%s.mutated", len(overlay), filepath.Base(path))
			overlay[path] = filepath.Join(out, name)
			if err := os.WriteFile(overlay[path], src, 0o644); err != nil {
				return nil, err
			}
		}
	}
	config, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		return nil, err
	}
	return mutants, os.WriteFile(filepath.Join(out, "overlay.json"), config, 0o644)
}

// list returns packages and all that they import, with what the compiler exports
// of each.
func list(packages []string) ([]listed, error) {
	const fields = "-json=ImportPath,Dir,Export,GoFiles,DepOnly,Module"
	return goList(append([]string{"-deps", "-export", fields}, packages...))
}

// listTests returns which packages have tests that use a mutated one. The mutated
// ones themselves come first: their tests are the fastest.
func listTests(patterns []string, mutated []listed) ([]listed, error) {
	programs, err := goList(append([]string{"-test", "-json=ImportPath,Dir,Deps"}, patterns...))
	if err != nil {
		return nil, err
	}
	isMutated := map[string]bool{}
	for _, m := range mutated {
		isMutated[m.ImportPath] = !m.DepOnly
	}
	usesMutated := func(dep string) bool {
		path, _, _ := strings.Cut(dep, " ") // it may be compiled for these tests
		return isMutated[path]
	}
	var own, others []listed
	for _, p := range programs {
		tested, isProgram := strings.CutSuffix(p.ImportPath, ".test")
		if !isProgram {
			continue
		}
		p.ImportPath = tested
		if isMutated[tested] {
			own = append(own, p)
		} else if slices.ContainsFunc(p.Deps, usesMutated) {
			others = append(others, p)
		}
	}
	return append(own, others...), nil
}

// goList runs go list. It prints JSON objects one after the other.
func goList(args []string) ([]listed, error) {
	cmd := exec.CommandContext(context.Background(), "go", append([]string{"list"}, args...)...)
	cmd.Stderr = os.Stderr
	output, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	var all []listed
	decoder := json.NewDecoder(bytes.NewReader(output))
	for {
		var p listed
		switch err := decoder.Decode(&p); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, err
		}
		all = append(all, p)
	}
}

// instrumenter writes mutations into the files of one package.
type instrumenter struct {
	files   *token.FileSet
	mutants []mutant
	named   map[string]int // how many mutants have this name so far

	pkg   *types.Package
	info  types.Info
	place string
	// original is the file as it is, and src the same without the operators that
	// functions of package mutants stand for.
	original, src []byte
	imports       map[string]string // names in the file, by path
	// Text to insert, by offset: opening goes before a piece of code, and closing
	// after one.
	opening, closing map[int]string
	// left are statements whose removal would repeat another mutation, and returns
	// those without which a function still compiles.
	left, returns map[ast.Stmt]bool
}

// run returns the sources of a package with mutations, by their paths.
func (i *instrumenter) run(p listed, importer types.Importer) (map[string][]byte, error) {
	i.info = types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	var parsed []*ast.File
	for _, name := range p.GoFiles {
		path := filepath.Join(p.Dir, name)
		file, err := parser.ParseFile(i.files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		parsed = append(parsed, file)
	}
	var err error
	i.pkg, err = (&types.Config{Importer: importer}).Check(p.ImportPath, i.files, parsed, &i.info)
	if err != nil {
		return nil, err
	}
	sources := map[string][]byte{}
	for _, file := range parsed {
		path := i.files.Position(file.Pos()).Filename
		src, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		i.original = src
		i.src = slices.Clone(src)
		name, err := filepath.Rel(p.Module.Dir, path)
		if err != nil {
			return nil, err
		}
		sources[path] = i.mutate(filepath.ToSlash(name), file)
	}
	return sources, nil
}

// mutate returns the source of a file with its mutations.
func (i *instrumenter) mutate(name string, file *ast.File) []byte {
	i.opening, i.closing = map[int]string{}, map[int]string{}
	i.left, i.returns = map[ast.Stmt]bool{}, map[ast.Stmt]bool{}
	i.imports = map[string]string{}
	for _, spec := range file.Imports {
		path, _ := strconv.Unquote(spec.Path.Value) // the parser has checked it
		i.imports[path] = filepath.Base(path)
		if spec.Name != nil {
			i.imports[path] = spec.Name.Name
		}
	}
	before := len(i.mutants)
	for _, declaration := range file.Decls {
		i.place = name
		if f, ok := declaration.(*ast.FuncDecl); ok {
			i.place += " " + functionName(f)
		}
		ast.Inspect(declaration, i.visit)
	}
	if len(i.mutants) == before {
		return i.src
	}
	i.closing[i.offset(file.Name.End())] = imported
	var out []byte
	for offset := range len(i.src) + 1 {
		out = append(out, i.closing[offset]...)
		out = append(out, i.opening[offset]...)
		if offset < len(i.src) {
			out = append(out, i.src[offset])
		}
	}
	return out
}

// functionName returns the name of a function, after its receiver if it has one.
func functionName(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	receiver := f.Recv.List[0].Type
	if star, ok := receiver.(*ast.StarExpr); ok {
		receiver = star.X
	}
	if index, ok := receiver.(*ast.IndexExpr); ok { // of a generic type
		receiver = index.X
	}
	return receiver.(*ast.Ident).Name + "." + f.Name.Name
}
