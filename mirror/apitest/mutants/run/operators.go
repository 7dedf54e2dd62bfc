package main

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// large is from where on a count does not matter to one.
const large = 100

// maxQuoted is how many characters of code the name of a mutant quotes.
const maxQuoted = 72

// visit writes the mutations of a node, and reports whether nodes below it have
// some of their own.
func (i *instrumenter) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GenDecl:
		return n.Tok == token.VAR
	case *ast.ArrayType:
		return false // its length is a constant
	case *ast.BlockStmt:
		i.statements(n.List)
	case *ast.CaseClause:
		i.statements(n.Body)
	case *ast.CommClause:
		i.statements(n.Body)
	case *ast.IfStmt:
		i.judge(n.Body.List, true, n.Else == nil)
		i.values(n.Cond)
	case *ast.ForStmt:
		if n.Cond != nil && !i.isConstant(n.Cond) {
			// A loop that never ends would cost a timeout, and show nothing.
			i.wrap(n.Cond, i.text(n.Cond)+" is false", "((", ") && !mutants.On(%d))")
		}
	case *ast.SwitchStmt:
		i.judgeClauses(n.Body.List, n.Tag == nil)
		for _, clause := range n.Body.List {
			i.values(clause.(*ast.CaseClause).List...)
		}
	case *ast.TypeSwitchStmt:
		i.judgeClauses(n.Body.List, false)
	case *ast.ReturnStmt:
		i.valuesOrZero(n.Results...)
	case *ast.AssignStmt:
		i.values(n.Rhs...)
	case *ast.ValueSpec:
		i.values(n.Values...)
	case *ast.CallExpr:
		switch called(n) {
		case "make", "V": // a capacity, and how verbose the log is
		default:
			i.values(n.Args...)
		}
	case *ast.CompositeLit:
		i.composite(n)
	case *ast.IndexExpr:
		i.values(n.Index)
	case *ast.SliceExpr:
		i.values(n.Low, n.High)
	case *ast.RangeStmt:
		i.values(n.X)
	case *ast.BinaryExpr:
		i.binary(n)
	}
	e, ok := n.(ast.Expr)
	return !ok || !i.isConstant(e)
}

func (i *instrumenter) isConstant(e ast.Expr) bool { return i.info.Types[e].Value != nil }

// judge decides about the last statement of a body that has a condition.
func (i *instrumenter) judge(body []ast.Stmt, isMutated, mayGoOn bool) {
	if len(body) == 0 {
		return
	}
	last := body[len(body)-1]
	if len(body) == 1 && isMutated && mayGoOn {
		i.left[last] = true // the condition can be false, which is the same
	} else if mayGoOn {
		i.returns[last] = true
	}
}

// judgeClauses does that for the clauses of a switch.
func (i *instrumenter) judgeClauses(clauses []ast.Stmt, isMutated bool) {
	hasDefault := slices.ContainsFunc(clauses, func(s ast.Stmt) bool {
		return s.(*ast.CaseClause).List == nil
	})
	for _, s := range clauses {
		clause := s.(*ast.CaseClause)
		i.judge(clause.Body, isMutated && len(clause.List) == 1, !hasDefault)
	}
}

// statements makes each statement of a list one that can be left out.
func (i *instrumenter) statements(list []ast.Stmt) {
	for _, s := range list {
		if !i.left[s] && i.isRemovable(s) {
			i.wrap(s, "no "+i.text(s), "if !mutants.On(%d) { ", " }")
		}
	}
}

func (i *instrumenter) isRemovable(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.ExprStmt:
		call, ok := s.X.(*ast.CallExpr)
		return ok && called(call) != "panic" && !isLock(call)
	case *ast.DeferStmt:
		return !isLock(s.Call)
	case *ast.AssignStmt:
		return s.Tok != token.DEFINE
	case *ast.IncDecStmt, *ast.SendStmt, *ast.GoStmt:
		return true
	case *ast.ReturnStmt:
		return i.returns[s]
	case *ast.BranchStmt:
		return s.Tok == token.BREAK || s.Tok == token.CONTINUE
	}
	return false
}

// called returns the name of the function that a call names, without its package.
func called(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

// isLock reports whether a call is about a mutex: the race detector and deadlocks
// judge those.
func isLock(call *ast.CallExpr) bool {
	return slices.Contains([]string{"lock", "unlock", "rlock", "runlock"}, strings.ToLower(called(call)))
}

// values mutates conditions, and constants that are numbers.
func (i *instrumenter) values(expressions ...ast.Expr) {
	for _, e := range expressions {
		switch value := i.info.Types[e]; {
		case e == nil:
		case isNumber(value.Value):
			i.number(e, value)
		case value.Type != nil && isBool(value.Type):
			i.condition(e)
		}
	}
}

func isNumber(v constant.Value) bool {
	return v != nil && (v.Kind() == constant.Int || v.Kind() == constant.Float)
}

func isBool(t types.Type) bool {
	return types.Identical(types.Default(t), types.Typ[types.Bool])
}

// condition makes a condition always true, and always false.
func (i *instrumenter) condition(e ast.Expr) {
	text := i.text(e)
	if text != "true" {
		i.wrap(e, text+" is true", "((", ") || mutants.On(%d))")
	}
	if text != "false" {
		i.wrap(e, text+" is false", "((", ") && !mutants.On(%d))")
	}
}

// number changes a small count by one. It doubles and halves a large one, a
// duration and a fraction.
func (i *instrumenter) number(e ast.Expr, value types.TypeAndValue) {
	t := types.Default(value.Type)
	name := i.typeName(t)
	basic, isBasic := t.(*types.Basic)
	change := func(function, becomes string) {
		i.wrap(e, i.text(e)+" is "+becomes+" in "+i.line(e), "mutants."+function+"["+name+"](%d, ", ")")
	}
	isWhole := isBasic && basic.Info()&types.IsInteger != 0
	isZero := constant.Sign(value.Value) == 0
	isLarge := constant.Compare(value.Value, token.GEQ, constant.MakeInt64(large))
	switch {
	case name == "":
	case isWhole && !isLarge:
		one := constant.MakeInt64(1)
		change("Next", constant.BinaryOp(value.Value, token.ADD, one).ExactString())
		if !isZero {
			change("Previous", constant.BinaryOp(value.Value, token.SUB, one).ExactString())
		}
	case isBasic || name == "time.Duration":
		if !isZero {
			change("Double", "doubled")
			change("Half", "halved")
		}
	}
}

// typeName returns how the file names a type; empty if the file does not import
// its package.
func (i *instrumenter) typeName(t types.Type) string {
	isNamed := true
	name := types.TypeString(t, func(p *types.Package) string {
		if p == i.pkg {
			return ""
		}
		isNamed = isNamed && i.imports[p.Path()] != ""
		return i.imports[p.Path()]
	})
	if !isNamed {
		return ""
	}
	return name
}

// valuesOrZero is values, and has everything else that is used be zero.
func (i *instrumenter) valuesOrZero(expressions ...ast.Expr) {
	for _, e := range expressions {
		value := i.info.Types[e]
		_, isTuple := value.Type.(*types.Tuple)
		_, isFunction := e.(*ast.FuncLit)
		pointer, isUnary := e.(*ast.UnaryExpr)
		isPointer := isUnary && pointer.Op == token.AND // nobody overlooks a nil for it
		literal, isLiteral := e.(*ast.CompositeLit)
		isEmpty := isLiteral && len(literal.Elts) == 0
		isText := value.Value != nil && value.Value.Kind() == constant.String
		switch {
		case isBool(value.Type), value.Value != nil && !isText:
			i.values(e)
		case isText && constant.StringVal(value.Value) != "":
			if name := i.typeName(types.Default(value.Type)); name != "" {
				i.wrap(e, i.text(e)+" is zero", "mutants.Zero["+name+"](%d, ", ")")
			}
		case !isText && !isTuple && !isFunction && !isPointer && !isEmpty && !value.IsNil():
			i.wrap(e, i.text(e)+" is zero", "mutants.Zero(%d, ", ")")
		}
	}
}

// composite mutates what a literal consists of. Fields of a struct may be missing.
func (i *instrumenter) composite(n *ast.CompositeLit) {
	_, isStruct := i.info.Types[n].Type.Underlying().(*types.Struct)
	for _, e := range n.Elts {
		if pair, ok := e.(*ast.KeyValueExpr); ok {
			e = pair.Value
		}
		switch literal, isLiteral := e.(*ast.CompositeLit); {
		case isLiteral && literal.Type == nil: // its type is implied
		case isStruct:
			i.valuesOrZero(e)
		default:
			i.values(e)
		}
	}
}

// functions are the names in package mutants of operators, each with the one that
// it becomes.
var functions = map[token.Token]struct{ name, becomes string }{
	token.LSS: {"Less", "<="},
	token.LEQ: {"AtMost", "<"},
	token.GTR: {"More", ">="},
	token.GEQ: {"AtLeast", ">"},
	token.ADD: {"Sum", "-"},
	token.SUB: {"Difference", "+"},
	token.MUL: {"Product", "/"},
	token.QUO: {"Quotient", "*"},
}

// binary mutates an operator and its operands.
func (i *instrumenter) binary(n *ast.BinaryExpr) {
	if i.isConstant(n) {
		return
	}
	switch n.Op {
	case token.LAND:
		i.operands(n, " is true", ") || mutants.On(%d))")
		return
	case token.LOR:
		i.operands(n, " is false", ") && !mutants.On(%d))")
		return
	}
	if f, ok := functions[n.Op]; ok && i.takesFunction(n) {
		i.wrap(n, i.text(n)+" with "+f.becomes, "mutants."+f.name+"(%d, ", ")")
		at := i.offset(n.OpPos)
		copy(i.src[at:], strings.Repeat(" ", len(n.Op.String())))
		i.closing[at] = ","
	}
	i.values(n.X, n.Y)
}

// operands makes each operand of && true and each one of || false.
func (i *instrumenter) operands(n *ast.BinaryExpr, change, closing string) {
	for _, e := range []ast.Expr{n.X, n.Y} {
		if inner, ok := e.(*ast.BinaryExpr); !ok || inner.Op != n.Op {
			i.wrap(e, i.text(e)+change+" in "+i.text(n), "((", closing)
		}
	}
}

// takesFunction reports whether a function of package mutants can do what the
// operator does. Next to a constant that is mutated itself a comparison need not
// change.
func (i *instrumenter) takesFunction(n *ast.BinaryExpr) bool {
	x, y := i.info.Types[n.X], i.info.Types[n.Y]
	t := x.Type
	if x.Value != nil {
		t = y.Type
	}
	basic, ok := t.Underlying().(*types.Basic)
	if _, isParameter := t.(*types.TypeParam); !ok || isParameter {
		return false
	}
	switch n.Op {
	case token.LSS, token.LEQ, token.GTR, token.GEQ:
		isWhole := t == basic && basic.Info()&types.IsInteger != 0
		isCounted := isWhole && (x.Value != nil || y.Value != nil)
		return basic.Info()&types.IsOrdered != 0 && !isCounted
	}
	return basic.Info()&types.IsNumeric != 0
}

// wrap adds a mutant and puts text around its code. The text has %d where its
// number stands.
func (i *instrumenter) wrap(n ast.Node, change, opening, closing string) {
	m := mutant{i.place, change}
	i.named[m.String()]++
	if count := i.named[m.String()]; count > 1 {
		m.change += fmt.Sprintf(" #%d", count)
	}
	number := len(i.mutants)
	i.mutants = append(i.mutants, m)
	numbered := func(text string) string { return strings.ReplaceAll(text, "%d", fmt.Sprint(number)) }
	from, to := i.offset(n.Pos()), i.offset(n.End())
	// Outer code comes first.
	i.opening[from] += numbered(opening)
	i.closing[to] = numbered(closing) + i.closing[to]
}

func (i *instrumenter) offset(pos token.Pos) int { return i.files.Position(pos).Offset }

// text returns the code of a node in one line, clipped.
func (i *instrumenter) text(n ast.Node) string {
	return clip(string(i.original[i.offset(n.Pos()):i.offset(n.End())]))
}

// line returns the line of code in which a node begins.
func (i *instrumenter) line(n ast.Node) string {
	from := i.offset(n.Pos())
	before := i.original[:from]
	begin := strings.LastIndexByte(string(before), '\n') + 1
	line, _, _ := strings.Cut(string(i.original[begin:]), "\n")
	line, _, _ = strings.Cut(line, " // ")
	return clip(line)
}

func clip(code string) string {
	code = strings.Join(strings.Fields(code), " ")
	if characters := []rune(code); len(characters) > maxQuoted {
		return string(characters[:maxQuoted]) + "…"
	}
	return code
}
