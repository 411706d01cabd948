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

	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/wireup"
)

// TestStages_AreNotCompared: the stage of a request has its behavior. No function compares stages or switches over them.
func TestStages_AreNotCompared(t *testing.T) {
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

// TestStage_MarksItsOwnLane: a post of a stage without a lane does not mark the lane of the next stage as connected.
func TestStage_MarksItsOwnLane(t *testing.T) {
	p, f := fakePair(t, faketp.LikeSM())
	f.Ifaces[0].Stuck = true
	put, err := p.ep.Put([]byte{1}, p.key.Addr(), p.key, nil)
	require.NoError(t, err)
	p.until(func() bool { return p.ep.lane(wireup.RMA) != nil })
	over := &stage{name: "over", role: wireup.RMA}
	r := p.w[0].newRequest(p.ep, &stage{name: "before", role: noRole, post: func(r *Request) error {
		r.stage = over
		return nil
	}})
	r, err = r.start()
	require.NoError(t, err)
	require.Nil(t, r)
	assert.False(t, p.ep.lane(wireup.RMA).Connected)
	f.Ifaces[0].Stuck = false
	require.NoError(t, p.finish(put, nil))
	assert.True(t, p.ep.lane(wireup.RMA).Connected)
}

// TestControl_MarksLane: the first control message over a lane marks the lane as connected, because later failures are
// those of its messages.
func TestControl_MarksLane(t *testing.T) {
	p, _ := fakePair(t, faketp.LikeSM())
	require.NoError(t, p.finish(p.ep.TagSend(1, []byte{1}, nil)))
	x := p.ep.lane(wireup.AM)
	x.Connected = false // as if the peer had opened it
	p.ep.control(creditControl, 0, 0)
	assert.True(t, x.Connected)
}
