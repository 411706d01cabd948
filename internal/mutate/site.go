package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"math/rand/v2"
	"slices"
	"strings"
)

// mutant is one change to a file, which a switch enables.
type mutant struct {
	id       int    // from 1; 0 before the mutant is chosen
	file     string // path of the file
	line     int
	from, to int    // byte offsets of the replaced text in the file
	lo, hi   int    // byte offsets of the replacement in the instrumented file
	text     string // the replacement, which behaves like the original unless isMutant(ID) is true
	was, is  string // original and mutated code, for the output
	outcome  outcome
}

// String returns the position of the mutant, in the format of compilers, and the change.
func (m *mutant) String() string { return fmt.Sprintf("%s:%d: %s => %s", m.file, m.line, m.was, m.is) }

// idMark is replaced by the id of the mutant when mutants are chosen.
const idMark = "\x00"

// on is the condition in the text of a mutant.
const on = "isMutant(" + idMark + ")"

// finder finds the mutants of a file.
type finder struct {
	p     *pkg
	file  *file
	stack []ast.Node // path from the file to the visited node
	found []*mutant
}

// find returns all mutants of the package, in the order of its files.
func (p *pkg) find() []*mutant {
	var all []*mutant
	for _, f := range p.files {
		x := &finder{p: p, file: f}
		ast.Inspect(f.syntax, x.visit)
		all = append(all, x.found...)
	}
	return all
}

func (x *finder) visit(n ast.Node) bool {
	if n == nil {
		x.stack = x.stack[:len(x.stack)-1]
		return true
	}
	switch n := n.(type) {
	case *ast.GenDecl: // constants and types must not change; initializers run before the tests
		if len(x.stack) == 1 {
			return false
		}
	case *ast.CaseClause:
		// Labels must be constants.
	case *ast.FuncDecl:
		x.funcDecl(n)
	case *ast.BinaryExpr:
		x.binary(n)
	case *ast.IfStmt:
		x.ifStmt(n)
	case *ast.BasicLit:
		x.literal(n)
	case ast.Stmt:
		x.statement(n)
	}
	x.stack = append(x.stack, n)
	return true
}

// source returns the text of a node.
func (x *finder) source(n ast.Node) string {
	return string(x.file.text[x.p.offset(n.Pos()):x.p.offset(n.End())])
}

// replace adds a mutant that replaces node n.
func (x *finder) replace(n ast.Node, text, is string) {
	x.add(n.Pos(), x.p.offset(n.Pos()), x.p.offset(n.End()), text, x.source(n), is)
}

func (x *finder) add(at token.Pos, from, to int, text, was, is string) {
	x.found = append(x.found, &mutant{file: x.file.path, line: x.p.fset.Position(at).Line,
		from: from, to: to, text: text, was: short(was), is: short(is)})
}

// short returns the text on one line.
func short(s string) string {
	const most = 80
	if s = strings.Join(strings.Fields(s), " "); len(s) > most {
		s = s[:most] + "..."
	}
	return s
}

// funcDecl adds a mutant in which the function returns zero values at once.
func (x *finder) funcDecl(f *ast.FuncDecl) {
	if f.Body == nil || len(f.Body.List) == 0 || f.Name.Name == "init" {
		return
	}
	var zeros []string
	if f.Type.Results != nil {
		for _, r := range f.Type.Results.List {
			for range max(1, len(r.Names)) {
				zeros = append(zeros, "*new("+x.source(r.Type)+")")
			}
		}
	}
	at := x.p.offset(f.Body.Lbrace) + 1
	text := fmt.Sprintf(" if %s { return %s }; ", on, strings.Join(zeros, ", "))
	x.add(f.Pos(), at, at, text, "func "+f.Name.Name, "return at once")
}

// Operators, and their replacements in mutants.
var (
	opposite = map[token.Token]token.Token{
		token.EQL: token.NEQ, token.NEQ: token.EQL, token.LSS: token.GEQ, token.GEQ: token.LSS,
		token.GTR: token.LEQ, token.LEQ: token.GTR, token.LAND: token.LOR, token.LOR: token.LAND,
	}
	atLimit = map[token.Token]token.Token{
		token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	}
	inverse = map[token.Token]token.Token{token.ADD: token.SUB, token.SUB: token.ADD}
)

// binary adds mutants with another operator.
func (x *finder) binary(b *ast.BinaryExpr) {
	tv := x.p.info.Types[b]
	if tv.Value != nil { // a constant expression
		return
	}
	// For && and || only one of both forms is evaluated, with its operands in the written order.
	logic := func(op token.Token) {
		is := fmt.Sprintf("%s %v %s", x.source(b.X), op, x.source(b.Y))
		if op == token.LAND || op == token.LOR {
			is = fmt.Sprintf("(%s) %v (%s)", x.source(b.X), op, x.source(b.Y))
		}
		x.replace(b, fmt.Sprintf("(%s && (%s) || !%s && (%s))", on, is, on, x.source(b)), is)
	}
	if op, ok := opposite[b.Op]; ok {
		logic(op)
	}
	if op, ok := atLimit[b.Op]; ok {
		logic(op)
	}
	if op, ok := inverse[b.Op]; ok && isNumber(tv.Type) {
		helper := map[token.Token]string{token.ADD: "mutantAdd", token.SUB: "mutantSub"}[b.Op]
		x.replace(b, fmt.Sprintf("%s(%s, %s, %s)", helper, idMark, x.source(b.X), x.source(b.Y)),
			fmt.Sprintf("%s %v %s", x.source(b.X), op, x.source(b.Y)))
	}
}

func isNumber(t types.Type) bool {
	b, ok := t.Underlying().(*types.Basic)
	return ok && b.Info()&types.IsNumeric != 0 && b.Info()&types.IsUntyped == 0
}

// ifStmt adds mutants without the check of an error, and with the negated condition if binary does not mutate it.
func (x *finder) ifStmt(s *ast.IfStmt) {
	cond := x.source(s.Cond)
	b, ok := s.Cond.(*ast.BinaryExpr)
	switch {
	case !ok:
		x.replace(s.Cond, fmt.Sprintf("(%s != (%s))", on, cond), "!("+cond+")")
	case b.Op == token.NEQ && types.Identical(x.p.info.TypeOf(b.X), types.Universe.Lookup("error").Type()):
		x.replace(s.Cond, fmt.Sprintf("(!%s && (%s))", on, cond), "false")
	}
}

// literal adds a mutant with an integer that is larger by 1.
func (x *finder) literal(l *ast.BasicLit) {
	if l.Kind != token.INT || x.mustBeConstant() {
		return
	}
	if t := x.p.info.TypeOf(l); t != nil && isNumber(t) {
		if b, ok := t.(*types.Basic); ok { // the file may not import the package of another type
			x.replace(l, fmt.Sprintf("mutantNext[%s](%s, %s)", b.Name(), idMark, l.Value), l.Value+" + 1")
		}
	}
}

// mustBeConstant reports whether the visited node is in the length of an array, a constant declaration or the label of a
// case.
func (x *finder) mustBeConstant() bool {
	for _, n := range slices.Backward(x.stack) {
		switch n := n.(type) {
		case *ast.ArrayType, *ast.CaseClause:
			return true
		case *ast.GenDecl:
			return n.Tok == token.CONST
		case ast.Stmt:
			return false
		}
	}
	return false
}

// statement adds a mutant without a statement of a block.
func (x *finder) statement(s ast.Stmt) {
	switch x.stack[len(x.stack)-1].(type) {
	case *ast.BlockStmt, *ast.CaseClause:
	default:
		return
	}
	switch s := s.(type) {
	case *ast.ExprStmt:
		if c, ok := s.X.(*ast.CallExpr); !ok || x.source(c.Fun) == "panic" {
			return
		}
	case *ast.AssignStmt:
		if s.Tok == token.DEFINE || x.source(s.Lhs[0]) == "_" {
			return
		}
	case *ast.IncDecStmt, *ast.DeferStmt, *ast.GoStmt:
	default:
		return
	}
	x.replace(s, fmt.Sprintf("if !%s { %s }", on, x.source(s)), "(dropped)")
}

// choose returns n random mutants that do not overlap, in the order of their positions.
func choose(all []*mutant, n int, seed uint64) []*mutant {
	r := rand.New(rand.NewPCG(seed, 0))
	var chosen []*mutant
	for _, i := range r.Perm(len(all)) {
		m := all[i]
		overlaps := slices.ContainsFunc(chosen, func(c *mutant) bool {
			return c.file == m.file && c.from <= m.to && m.from <= c.to
		})
		if !overlaps && len(chosen) < n {
			chosen = append(chosen, m)
		}
	}
	slices.SortFunc(chosen, func(a, b *mutant) int {
		if c := strings.Compare(a.file, b.file); c != 0 {
			return c
		}
		return a.from - b.from
	})
	for i, m := range chosen {
		m.id = i + 1
	}
	return chosen
}
