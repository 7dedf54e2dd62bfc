package checks

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestEachRowRunsAlone finds each loop over a table in which a test may fail:
// each row is a subtest, which `go test -run 'TestX/row'` plays alone. Rows that
// follow from each other are steps: the loop calls each of them step.
func TestEachRowRunsAlone(t *testing.T) {
	tables := 0
	for _, files := range testFiles(t) {
		set := token.NewFileSet()
		var parsed []*ast.File
		for _, file := range files {
			f, err := parser.ParseFile(set, file, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			parsed = append(parsed, f)
		}
		literals := literalsOf(parsed)
		for _, test := range testsOf(parsed) {
			for _, loop := range tablesOf(test, literals) {
				tables++
				if !hasSubtests(loop) && mayFail(loop) && !isSteps(loop) {
					place := strings.TrimPrefix(set.Position(loop.Pos()).String(), root+"/")
					t.Errorf("%s: %s: the rows of this table have no t.Run", place, test.Name.Name)
				}
			}
		}
	}
	if tables < 100 {
		t.Errorf("got %d tables: are they still found?", tables)
	}
}

// testFiles returns the files with tests, by their folders.
func testFiles(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, file := range strings.Fields(tracked(t, "*_test.go")) {
		if strings.Contains(file, "/testdata/") {
			continue
		}
		file = filepath.Join(root, file)
		all[filepath.Dir(file)] = append(all[filepath.Dir(file)], file)
	}
	return all
}

// testsOf returns the tests in files.
func testsOf(files []*ast.File) (tests []*ast.FuncDecl) {
	for _, f := range files {
		for _, decl := range f.Decls {
			test, is := decl.(*ast.FuncDecl)
			if is && test.Recv == nil && strings.HasPrefix(test.Name.Name, "Test") {
				tests = append(tests, test)
			}
		}
	}
	return tests
}

// literalsOf returns the literals that variables of a package begin with.
func literalsOf(files []*ast.File) map[string]*ast.CompositeLit {
	all := map[string]*ast.CompositeLit{}
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			if variables, is := n.(*ast.ValueSpec); is {
				for i, value := range variables.Values {
					if literal, is := value.(*ast.CompositeLit); is {
						all[variables.Names[i].Name] = literal
					}
				}
			}
			_, isFunction := n.(*ast.FuncDecl)
			return !isFunction
		})
	}
	return all
}

// tablesOf returns the loops of a test over tables. A loop within a subtest is
// part of a row.
func tablesOf(test *ast.FuncDecl, global map[string]*ast.CompositeLit) (loops []*ast.RangeStmt) {
	local := map[string]*ast.CompositeLit{}
	ast.Inspect(test, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for i, left := range n.Lhs {
				name, isName := left.(*ast.Ident)
				if !isName || len(n.Lhs) != len(n.Rhs) {
					continue
				}
				if literal, is := n.Rhs[i].(*ast.CompositeLit); is {
					local[name.Name] = literal
				}
			}
		case *ast.CallExpr:
			return !isSubtest(n)
		case *ast.RangeStmt:
			literal, is := n.X.(*ast.CompositeLit)
			if name, isName := n.X.(*ast.Ident); isName && !is {
				literal = local[name.Name]
				if literal == nil {
					literal = global[name.Name]
				}
			}
			if literal != nil && isTable(literal) {
				loops = append(loops, n)
			}
		}
		return true
	})
	return loops
}

// isTable reports whether a literal is a map that is not empty, or a list whose
// elements have parts. A list of words or numbers is no table.
func isTable(literal *ast.CompositeLit) bool {
	return slices.ContainsFunc(literal.Elts, func(element ast.Expr) bool {
		switch element.(type) {
		case *ast.CompositeLit, *ast.FuncLit, *ast.KeyValueExpr:
			return true
		}
		return false
	})
}

// isSubtest reports whether a call runs a subtest: T.Run, or World.Row.
func isSubtest(call *ast.CallExpr) bool {
	method, is := call.Fun.(*ast.SelectorExpr)
	return is && (method.Sel.Name == "Run" || method.Sel.Name == "Row") && len(call.Args) == 2
}

func hasSubtests(loop *ast.RangeStmt) bool {
	return contains(loop, func(n ast.Node) bool {
		call, is := n.(*ast.CallExpr)
		return is && isSubtest(call)
	})
}

// failing are names of functions that fail a test.
var failing = regexp.MustCompile(`^(Errorf?|Fatalf?|[wW]ant.*|[eE]xpect.*|noError|must)$`)

func mayFail(loop *ast.RangeStmt) bool {
	return contains(loop, func(n ast.Node) bool {
		call, is := n.(*ast.CallExpr)
		if !is {
			return false
		}
		switch f := call.Fun.(type) {
		case *ast.SelectorExpr:
			return failing.MatchString(f.Sel.Name)
		case *ast.Ident:
			return failing.MatchString(f.Name)
		}
		return false
	})
}

func isSteps(loop *ast.RangeStmt) bool {
	name, is := loop.Value.(*ast.Ident)
	return is && name.Name == "step"
}

func contains(loop *ast.RangeStmt, is func(ast.Node) bool) (found bool) {
	ast.Inspect(loop.Body, func(n ast.Node) bool {
		found = found || is(n)
		return !found
	})
	return found
}
