package dv

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/internal/ibtest"
	"github.com/gucx/gucx/uct/ib/rc"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// TestDirect_NoPostOrPollOfVerbs: no code of this package calls functions of verbs that post or
// poll, or functions with such names. The cores post through a Driver of this package.
func TestDirect_NoPostOrPollOfVerbs(t *testing.T) {
	names, err := filepath.Glob("*.go")
	require.NoError(t, err)
	set := token.NewFileSet()
	calls := 0
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(set, name, nil, 0)
		require.NoError(t, err)
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			calls++
			if s, ok := call.Fun.(*ast.SelectorExpr); ok {
				switch s.Sel.Name {
				case "PostSend", "PostRecv", "Poll":
					t.Errorf("%v: calls %s", set.Position(call.Pos()), s.Sel.Name)
				}
			}
			return true
		})
	}
	assert.Greater(t, calls, 100, "the files were read")
}

// otherProvider is another type of provider.
type otherProvider struct{ verbs.Provider }

func TestDirect_UnsupportedOnOtherProviders(t *testing.T) {
	soft, err := softhca.NewDevice(softhca.Config{Name: "dev", Fabric: softhca.FabricLoop})
	require.NoError(t, err)
	other := verbs.NewDevice("dev", func() (verbs.Provider, error) {
		ctx, err := soft.Open()
		if err != nil {
			return nil, err
		}
		return otherProvider{ctx.Provider()}, nil
	})
	list := func() ([]*verbs.Device, error) { return []*verbs.Device{other}, nil }
	md, err := ib.New(list, RC(RCConfig{}), UD(UDConfig{}), rc.Transport(rc.Config{})).OpenMD("dev")
	require.NoError(t, err)
	defer func() { require.NoError(t, md.Close()) }()
	res, err := md.Resources()
	require.NoError(t, err)
	require.Len(t, res, 1, "only transports that the device supports")
	assert.Equal(t, rc.Name, res[0].Transport)
	for _, tl := range []string{RCName, UDName} {
		_, err = md.OpenIface(uct.IfaceParams{Transport: tl, Device: "dev:1"})
		assert.ErrorIs(t, err, errors.ErrUnsupported)
		assert.ErrorContains(t, err, "provider dv has no mlx5 queues", "the provider is named by its package, which is this one")
	}
}

// TestRC_InlineByDefault: puts are inline up to four basic blocks, unless the configuration has
// another limit. With smaller segments the limit is that of rc.
func TestRC_InlineByDefault(t *testing.T) {
	md, err := rcSuite.On(softhca.FabricLoop).OpenMD()
	require.NoError(t, err)
	defer func() { require.NoError(t, md.Close()) }()
	for _, c := range []struct {
		config any
		want   int
	}{
		{nil, MaxInline}, {RCConfig{}, MaxInline}, {rc.Config{}, MaxInline}, {&RCConfig{TxPostlist: 4}, MaxInline},
		{rc.Config{TxMaxInline: 64}, 64}, {RCConfig{Config: rc.Config{TxMaxInline: 300}}, 300},
		{rc.Config{SegSize: MaxInline}, MaxInline}, {rc.Config{SegSize: MaxInline - 1}, 128},
	} {
		it, err := md.OpenIface(uct.IfaceParams{Transport: RCName, Device: ibtest.Device, Config: c.config})
		require.NoError(t, err)
		assert.Equal(t, c.want, it.Attr().Put.MaxShort, "%+v", c.config)
		assert.NoError(t, it.Close())
	}
}

// TestInvalidateQPN: unpolled completions of a destroyed QP do not match another QP with its
// number.
func TestInvalidateQPN(t *testing.T) {
	b := newBench(t, t.Cleanup, verbs.QPTypeRC, rcLimits)
	var c compQueue
	require.NoError(t, c.open(b.cq))
	var qpns []uint32
	for i := range uint32(100) { // several times round the queue
		e := prm.CQE{Opcode: prm.CQERespSend, QPN: 0x100 + i%2, WQECounter: uint16(i), SendOp: prm.OpSend}
		c.Slot(i).Write(&e, c.Owner(i))
		if i%3 == 2 {
			c.invalidateQPN(0x101)
			for range 3 {
				s, tail := c.Peek()
				require.True(t, c.Owned(tail))
				require.False(t, c.Sent(tail))
				qpns = append(qpns, s.QPN())
				assert.Equal(t, uint16(c.CI()), tail.WQECounter())
				c.Take()
			}
			_, tail := c.Peek()
			require.False(t, c.Owned(tail))
		}
	}
	require.Len(t, qpns, 99)
	for i, qpn := range qpns {
		assert.Equal(t, []uint32{0x100, invalidQPN}[i%2], qpn)
	}
}
