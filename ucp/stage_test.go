package ucp

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestStages_WithoutWaiter: a request goes on by what its stage says; no function compares
// stages or switches over them, which would be asking what kind of operation it is.
func TestStages_WithoutWaiter(t *testing.T) {
	names, err := filepath.Glob("*.go")
	require.NoError(t, err)
	isStage := func(e ast.Expr) bool {
		if u, ok := e.(*ast.UnaryExpr); ok && u.Op == token.AND {
			id, ok := u.X.(*ast.Ident)
			return ok && strings.HasSuffix(id.Name, "Stage")
		}
		sel, ok := e.(*ast.SelectorExpr)
		return ok && sel.Sel.Name == "stage"
	}
	tables := 0
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		src, err := os.ReadFile(name)
		require.NoError(t, err)
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, name, src, 0)
		require.NoError(t, err)
		ast.Inspect(f, func(n ast.Node) bool {
			bad := false
			switch n := n.(type) {
			case *ast.BinaryExpr:
				bad = isStage(n.X) || isStage(n.Y)
			case *ast.SwitchStmt:
				bad = n.Tag != nil && isStage(n.Tag)
			case *ast.UnaryExpr:
				if isStage(n) {
					tables++
				}
			}
			if bad {
				t.Errorf("%v asks for a stage", fset.Position(n.Pos()))
			}
			return true
		})
	}
	assert.Greater(t, tables, 10, "stages are found by their names")
}
